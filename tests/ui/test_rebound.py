"""Once the configuration file binds keys otherwise, no sentence of the screen names one of before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from amptui.protocol import events as told
from amptui.ui.dialogs import questions
from amptui.ui.dialogs.question import Question
from amptui.ui.explain import explanation
from amptui.ui.guidance import guidance
from amptui.ui.key_names import AS_DECLARED, KeyNames
from amptui.ui.keys import KEYS, rebind, shown
from amptui.ui.known_failures import known_failures
from amptui.ui.moves import Situation
from amptui.ui.raster.line import plain
from amptui.ui.session_view import SessionView
from amptui.ui.stages.diagnosis import tell_diagnosis
from amptui.ui.stages.iteration_pane import iteration_text
from amptui.ui.stages.measure import tell_measure_stage
from amptui.ui.stages.stage import Shown
from amptui.ui.widgets.told import told_lines
from tests.report.stages import locked, opened
from tests.ui.test_guidance import SESSIONS, moments, situations

#: Every key by another one, whose name no sentence has by itself: the Cyrillic letters.
OTHERS = KeyNames(rebind(KEYS, {key.id: chr(ord("А") + number) for number, key in enumerate(KEYS)}))
USUAL = {shown(name) for key in KEYS for name in key.keys}
#: A letter that stands alone.
_LETTER = re.compile(r"(?<![\w^.+'/-])[b-zB-Z](?!['\w^])")
#: Keys that are words or figures too, where a sentence means the key.
_OTHER = re.compile(
    r"(?:^|, |\. |until )(a|enter|space|tab) (?:\w+s|then|never)\b|\((a)\)"
    r"|(?<![\w+])([1-7]) (?:to \d show|shows|how|for a)"
)


def usual_keys_in(text: str) -> set[str]:
    """Keys as they are declared that `text` names."""
    others = {name for found in _OTHER.findall(text) for name in found if name}
    return {found for found in _LETTER.findall(text) if found in USUAL} | others


def every(keys: KeyNames) -> Iterator[Situation]:
    """Every moment of every session, on every page, live, recorded, and on the way back or anew."""
    for events in SESSIONS.values():
        for now in situations(events):
            yield replace(now, keys=keys)
            yield replace(now, keys=keys, mode="recorded", connected=False)
            yield replace(now, keys=keys, connected=False, can_restart=False)
            yield replace(now, keys=keys, falling_back=True)
            yield replace(now, keys=keys, reloading=True)
            yield replace(now, keys=keys, criteria_changed=True, planned="two", written="/tmp/r.html")


def asked(keys: KeyNames) -> list[Question]:
    refused = told.Refused(code="syntax", message="wrong")
    states = [moments(events)[-1] for events in SESSIONS.values()]
    return [
        questions.nothing_to_restore(refused, "one", keys),
        questions.mend(["head"], keys),
        *(questions.fall_back(state, keys) for state in states),
        *(questions.policies(state, keys) for state in states if state.project is not None),
    ]


def words_of(question: Question) -> str:
    said = ["".join(text for text, _ in item.spans) for item in question.paragraphs if item is not None]
    return " ".join((question.title, *said, *(option.label for option in question.options)))


def test_the_check_finds_keys_as_they_are_declared() -> None:
    for text in ("c runs it", "q: back, F falls back", "(a)", "an F ends it", "1 to 7 show", "until a confirms it"):
        assert usual_keys_in(text), text
    for text in ("a trial of 7 steps", "FP32 at 2^16, step 3 of 7", "space for a tab", "Ж runs it"):
        assert not usual_keys_in(text), text


def test_neither_guidance_nor_explanations_name_a_key_of_before() -> None:
    texts = {text for now in every(OTHERS) for text in (guidance(now).now, guidance(now).press, *explanation(now)[1])}
    assert any(OTHERS.say("{proceed} runs") in text for text in texts)
    assert {text: found for text in texts if (found := usual_keys_in(text))} == {}


def test_no_question_names_a_key_of_before_and_the_key_that_asks_confirms() -> None:
    assert {words_of(one): found for one in asked(OTHERS) if (found := usual_keys_in(words_of(one)))} == {}
    state = moments(SESSIONS["accepted"])[-1]
    assert questions.fall_back(state, OTHERS).options[0].key == OTHERS.key("fall_back")
    assert questions.mend(["head"], OTHERS).options[0].key == OTHERS.key("mend")


def fields_of(keys: KeyNames) -> set[str]:
    """The labels beside what panes of a rejected session tell, and how its trial can be begun."""
    view = SessionView()
    view.take_all(SESSIONS["rejected"])
    state = view.state
    tells = [lambda page: tell_measure_stage(page, state, state.trial, keys)]
    tells += [
        lambda page, one=one: tell_diagnosis(page, view, one, mend=keys.say("{mend}")) for one in known_failures(state)
    ]
    return {plain(line)[4:16].strip() for tell in tells for line in told_lines(tell, 80)}


def test_panes_name_the_keys_as_they_are_bound() -> None:
    ids = ("mend", "diagnose", "policies")
    usual, others = ({keys.say(f"{{{name}}}") for name in ids} for keys in (AS_DECLARED, OTHERS))
    assert fields_of(AS_DECLARED) & (usual | others) == usual
    assert fields_of(OTHERS) & (usual | others) == others


def test_how_a_trial_is_begun_names_the_key_as_it_is_bound() -> None:
    view = SessionView()
    view.take_all((*opened(), *locked()))
    for keys in (AS_DECLARED, OTHERS):
        pane = iteration_text(Shown(view, Situation(view.state, "trial", keys=keys), "main"))
        assert keys.say("{phase} goes through them") in words_of(Question(title="", paragraphs=pane.paragraphs))
