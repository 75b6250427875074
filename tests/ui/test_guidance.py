"""At every moment of every kind of session the screen says what is true and names only keys that do something."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from amptui.findings.finding import Finding
from amptui.protocol import events as told
from amptui.session.death import EngineDeath
from amptui.session.state import SessionState, died, reduce
from amptui.text import display_width
from amptui.ui import bars
from amptui.ui.guidance import guidance
from amptui.ui.keys import KEYS, shown
from amptui.ui.moves import Situation, active, next_stage
from amptui.ui.pages import STAGES, Page
from amptui.ui.raster.glyphs import ASCII, UNICODE
from tests.report import measured, sessions
from tests.report.stages import (
    Told,
    baseline,
    ended,
    iteration,
    locked,
    opened,
    record,
    started,
    trial_started,
    trip,
    verdict,
)
from tests.ui.test_moves import after

PAGES: tuple[Page, ...] = (*STAGES, "output", "events", "help", "diagnosis", "cases")
STEPPED = (
    *opened(),
    ended("project"),
    *baseline(),
    told.CriteriaProposed(criteria=sessions.locked()[1].criteria, proposals=()),  # type: ignore[union-attr]
    ended("baseline"),
    *locked(),
    ended("criteria"),
    *trial_started(),
    told.Paused(step=0, why="after this phase"),
    told.Running(what="run"),
    iteration(0),
    trip(1),
    told.Paused(step=1, why="the guard held an update back"),
    told.Running(what="run"),
    iteration(1, "bad_gradient"),
    told.Cancelled(stage="trial"),
    ended("trial", completed=False),
    told.FellBack(checkpoint="fp32", verified=6, proven=True),
)
BEYOND: Told = (
    *measured.side_by_side(measure=False),
    told.StageStarted(stage="measure", task="time"),
    told.Progressed(stage="measure", what="rounds", done=7, total=40),
    measured.measured(1, "float16", measured.FASTER),
    ended("measure"),
    told.StageStarted(stage="measure", task="seeds"),
    told.Progressed(stage="measure", what="other seeds", done=70, total=120),
    told.Cancelled(stage="measure"),
    ended("measure", completed=False),
    told.StageStarted(stage="measure", task="cases"),
    told.Progressed(stage="measure", what="batches", done=7, total=40),
    replace(measured.FOUND, path=None),
    ended("measure"),
    told.StageStarted(stage="measure", task="cases"),
    measured.FOUND,
    ended("measure"),
    told.StageStarted(stage="measure", task="time"),
    told.Refused(code="measurement-failed", message="the project fails in forward", hint="mend this to go on"),
    ended("measure", completed=False),
    *measured.trial(3, "float16", "reject", scaled=True),
)
SESSIONS: dict[str, Told] = {
    "beyond the verdict": BEYOND,
    "accepted": sessions.accepted(),
    "rejected": sessions.rejected(),
    "inconclusive": sessions.inconclusive(),
    "refused": sessions.refused(),
    "fails in FP32": sessions.fails_in_fp32(),
    "killed": sessions.killed(),
    "engine failed": sessions.engine_failed(),
    "stepped": STEPPED,
}


def moments(events: Told) -> list[SessionState]:
    states = [SessionState()]
    for event in events:
        states.append(died(states[-1], event) if isinstance(event, EngineDeath) else reduce(states[-1], event))
    return states


def situations(events: Told) -> list[Situation]:
    return [
        Situation(state, page, connected=state.engine in ("starting", "ready"))
        for state in moments(events)
        for page in PAGES
    ]


def named_keys(press: str) -> list[str]:
    """Ids of the keys that begin a clause of `press`: ``c runs it, F falls back.``"""
    owners = {shown(name): key.id for key in KEYS if key.group != "Move" for name in key.keys}
    words = re.findall(r"(?:^|, |\. )(\S+?):? ", press)
    return [owners[word] for word in words if word in owners]


@pytest.mark.parametrize("name", SESSIONS)
def test_the_advice_names_only_keys_that_do_something(name: str) -> None:
    for now in situations(SESSIONS[name]):
        missing = set(named_keys(guidance(now).press)) - active(now)
        assert not missing, f"{guidance(now)} on {now.page}"


@pytest.mark.parametrize("name", ["accepted", "stepped", "beyond the verdict"])
def test_the_advice_fits_into_the_lines_there_are_at_80_columns(name: str) -> None:
    for now in situations(SESSIONS[name]):
        lines = guidance(now)
        assert display_width(lines.now) <= 160, lines.now
        assert display_width(lines.press) <= 80, lines.press


def test_on_each_page_behind_the_verdict_a_sentence_says_what_it_is_for_and_what_c_does() -> None:
    state = moments(measured.side_by_side(measure=False))[-1]
    said = {page: guidance(Situation(state, page)) for page in ("verdict", "measure", "report")}
    assert said["verdict"].press.startswith("c goes on to time and memory")
    assert "what it brings in time and memory" in said["measure"].now
    assert said["measure"].press.startswith("c measures")
    assert "for a colleague to judge" in said["report"].now
    assert said["report"].press.startswith("c writes the report")
    written = guidance(Situation(state, "report", written="/tmp/r.html"))
    assert ("/tmp/r.html" in written.now, "y copies its path" in written.press) == (True, True)


def test_what_is_not_accepted_is_not_measured_and_the_reason_and_the_way_on_are_said() -> None:
    now = Situation(moments(BEYOND)[-1], "measure")
    now = replace(now, state=replace(now.state, trials=now.state.trials[2:], refusal=None))
    assert "Nothing is measured: the verdict is reject" in guidance(now).now
    assert guidance(now).press.startswith("c goes on to the report")


def test_a_refused_measurement_is_told_beside_what_can_be_done() -> None:
    at = next(n for n, event in enumerate(BEYOND) if isinstance(event, told.Refused))
    lines = guidance(Situation(moments(BEYOND[: at + 2])[-1], "measure"))
    assert lines.now == "Not done: the project fails in forward (mend this to go on)"
    assert lines.press.startswith("c measures")


def test_a_verdict_too_long_for_two_lines_does_not_push_away_what_to_press() -> None:
    *stage, _goodbye = verdict("reject", "Reject: " + "and so on; " * 40, [])
    state = moments((*opened(), *baseline(), *locked(), *trial_started(), *stage))[-1]
    assert display_width(guidance(Situation(state, "verdict")).now) <= 160
    assert "above" in guidance(Situation(state, "verdict")).now
    assert "page 5" in guidance(Situation(state, "trial")).now


def test_a_search_for_cases_and_a_measurement_say_what_runs_and_how_to_end_it() -> None:
    for task, what, says in (
        ("time", "rounds", "round 3, of 9 at most"),
        ("seeds", "other seeds", "iteration 3 of 9"),
        ("cases", "batches", "batch 3 of 9"),
    ):
        events = (
            *opened(),
            told.StageStarted(stage="measure", task=task),  # type: ignore[arg-type]
            told.Progressed(stage="measure", what=what, done=3, total=9),
        )
        lines = guidance(Situation(moments(events)[-1], "cases" if task == "cases" else "measure"))
        assert says in lines.now
        assert lines.press == "C ends it early."


def test_someone_who_only_presses_c_is_led_from_project_to_verdict() -> None:
    due = [next_stage(state) for state in moments(STEPPED[:-3])]
    order = [stage for n, stage in enumerate(due) if n == 0 or stage != due[n - 1]]
    assert order == ["project", "baseline", "criteria", "trial"]
    assert next_stage(moments(sessions.accepted())[-1]) is None
    for state in moments(sessions.accepted()):
        now = Situation(state, "verdict")
        if now.engine_waits and state.project is not None and state.refusal is None:
            assert "proceed" in active(now)


def test_falling_back_is_possible_from_the_checkpoint_on_also_after_the_engines_death() -> None:
    for events in (sessions.accepted(), sessions.killed(), STEPPED):
        for now in situations(events):
            assert ("fall_back" in active(now)) == bool(now.state.checkpoints)


def test_a_pause_at_a_trip_offers_to_retry_and_no_other_does() -> None:
    offers = [s for s in situations(STEPPED) if "retry" in active(s)]
    assert {now.state.paused.step for now in offers if now.state.paused} == {1}
    assert all(now.trip_waits for now in offers)


def test_a_recorded_session_offers_nothing_that_runs() -> None:
    for state in moments(sessions.accepted()):
        ids = active(Situation(state, "trial", mode="recorded", connected=False))
        assert not ids & {"proceed", "phase", "iteration", "fall_back", "new_engine", "cancel", "pause"}


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_the_stages_fit_into_80_columns_whatever_became_of_them(glyphs: object) -> None:
    for events in SESSIONS.values():
        for now in situations(events):
            pieces = bars.stages(now, glyphs)  # type: ignore[arg-type]
            assert sum(display_width(text) for text, _ in pieces) <= 80


def test_a_verdicts_mark_is_its_own() -> None:
    marks = {}
    for name in ("accepted", "rejected", "inconclusive"):
        now = Situation(moments(SESSIONS[name])[-1], "project")
        text = "".join(text for text, _ in bars.stages(now, UNICODE))
        marks[name] = text[text.index("Verdict") + len("Verdict")]
    assert marks == {"accepted": "✓", "rejected": "✗", "inconclusive": "!"}


def test_a_trial_that_has_no_verdict_yet_does_not_wear_that_of_the_one_before() -> None:
    for again in (trial_started(), (*trial_started(), EngineDeath(how="signal", words="killed", last_output=()))):
        now = Situation(moments((*sessions.accepted(), *again))[-1], "verdict")
        assert "VERDICT " in "".join(text for text, _ in bars.stages(now, UNICODE))


def test_the_search_for_cases_is_no_measurement() -> None:
    looking = (*opened(), told.StageStarted(stage="measure", task="cases"))
    now = Situation(moments(looking)[-1], "cases")
    assert "6 Measure " in "".join(text for text, _ in bars.stages(now, UNICODE))


def test_a_written_report_is_marked() -> None:
    now = Situation(moments(sessions.accepted())[-1], "report")
    for written, mark in (("", " "), ("/tmp/r.html", "✓")):
        assert "".join(text for text, _ in bars.stages(replace(now, written=written), UNICODE)).endswith(
            f"REPORT{mark}"
        )


def test_starting_says_so_before_anything_is_known() -> None:
    assert "torch" in guidance(Situation(SessionState(), "project")).now
    assert guidance(Situation(reduce(SessionState(), started("project")), "project")).now


def test_whose_error_ended_the_engine_is_said() -> None:
    *before, failed = sessions.engine_failed()
    assert "an error of its own" in guidance(Situation(after(*before, failed), "baseline")).now
    raised = replace(failed, message="TimeoutError", hint="it must not raise")  # type: ignore[type-var]
    said = guidance(Situation(after(*before, raised), "baseline")).now
    assert said == "The project's code ended the engine: TimeoutError"


def test_a_skip_that_no_scale_mends_is_not_called_usual() -> None:
    looked_into = told.Diagnosed(
        step=1,
        update="main",
        case=None,
        retained=None,
        findings=(),
        variations=(("as it ran: float16, scale 2^16", "not finite"), ("true FP32, no scaling", "finite")),
    )
    fits = replace(looked_into, variations=(*looked_into.variations, ("float16 at scale 2^8", "finite")))
    held = told.Paused(step=1, why="the guard held an update back")
    before = (*opened(), ended("project"), *locked(), *trial_started())

    def said(*events: object) -> str:
        return guidance(Situation(moments((*before, *events))[-1], "trial")).now  # type: ignore[arg-type]

    assert "Usual" in said(trip(1), held)
    assert "Usual" in said(fits, trip(1), held)
    assert "No smaller scale" in said(looked_into, trip(1), held)


def test_a_skip_is_called_usual_for_a_reason_that_fits_its_moment() -> None:
    held = told.Paused(step=8, why="the guard held an update back")
    before = (*opened(), ended("project"), *locked(), *trial_started())

    def said(scale: float, *events: object) -> str:
        tripped = replace(trip(8), record=record(8, "bad_gradient", scale=scale))
        return guidance(Situation(moments((*before, *events, tripped, held))[-1], "trial")).now  # type: ignore[arg-type]

    assert "while the scale settles" in said(2.0**16)
    assert "while the scale settles" in said(2.0**15, iteration(7, "bad_gradient"))
    assert "after the scale has grown" in said(2.0**17, iteration(7)), "above the first scale"
    skipped_once = (iteration(5, "bad_gradient"), iteration(6), iteration(7))
    assert "after the scale has grown" in said(2.0**16, *skipped_once), "above one that was held before"
    late = said(2.0**15, iteration(5, "bad_gradient"), iteration(7))
    assert "Earlier updates did fit this scale" in late
    assert "Usual" not in late


def test_advice_for_a_region_that_no_replay_named_says_when_m_becomes_possible() -> None:
    finding = Finding(
        kind="overflow", severity="fault", stage="forward", advice="Run it in FP32: Policy(fp32_regions=[…])."
    )
    diagnosed = told.Diagnosed(
        step=1, update="main", case=None, retained=None, findings=(finding,), variations=(("as it ran", "not finite"),)
    )
    held = told.Paused(step=1, why="the guard held an update back")
    now = Situation(after(*STEPPED[:-8], diagnosed, held), "diagnosis")
    assert "m after the verdict puts modules in FP32" in guidance(now).press
    named = replace(diagnosed, findings=(replace(finding, facts={"fp32_regions": ["conv"]}),))
    now = Situation(after(*STEPPED[:-8], named, held), "diagnosis")
    assert "m puts modules in FP32" in guidance(now).press


def test_an_engine_that_could_not_go_on_says_why() -> None:
    refused = told.Refused(code="space", message="there is no room left on the disk", hint="make room")
    state = after(*opened(), told.StageStarted(stage="baseline"), refused, told.Goodbye(why="refused"))
    assert guidance(Situation(state, "baseline")).now == "The engine has ended: there is no room left on the disk."


def test_what_to_correct_is_a_sentence_before_what_to_press() -> None:
    refused = told.Refused(code="syntax", message="Python cannot read line 3", hint="correct it")
    state = after(*opened()[:1], told.StageStarted(stage="project"), refused)
    assert guidance(Situation(state, "project")).press.startswith("Correct it. R loads it again")
