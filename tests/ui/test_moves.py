"""What `c` does on each page, and that a key stands in the footer only where it does what one expects there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from amptui.protocol import events as told
from amptui.session.state import SessionState, reduce
from amptui.ui.moves import LABELS, Move, Situation, active, next_move, next_stage, to_measure
from amptui.ui.pages import Page
from tests.report import measured
from tests.report.stages import Told, baseline, ended, locked, opened, started, trial_started, verdict


def after(*events: Any, state: SessionState | None = None) -> SessionState:
    state = state or SessionState()
    for event in events:
        state = reduce(state, event)
    return state


def judged(decided: str, **changed: Any) -> Told:
    """A session with one trial, whose engine waits."""
    *stage, _goodbye = verdict(decided, f"{decided}: as it was.", [], **changed)
    return (*opened(), *baseline(), *locked(), *trial_started(), *stage)


ACCEPTED = after(*judged("accept"))
REJECTED = after(*judged("reject", fp32_regions=("conv",)))
MEASURED = after(started("measure"), measured.measured(1, "float16"), ended("measure"), state=ACCEPTED)
FOUND = replace(measured.FOUND, path=None)


@pytest.mark.parametrize(
    ("state", "page", "move"),
    [
        (ACCEPTED, "trial", "show verdict"),
        (ACCEPTED, "verdict", "show measure"),
        (ACCEPTED, "measure", "measure"),
        (MEASURED, "measure", "show report"),
        (MEASURED, "report", "write report"),
        (REJECTED, "verdict", "show measure"),
        (REJECTED, "measure", "show report"),
        (REJECTED, "report", "write report"),
        (after(*opened()), "report", "baseline"),
        (after(*opened(), FOUND), "cases", "write cases"),
        (after(*opened(), measured.FOUND), "cases", "baseline"),
        (after(told.FellBack(checkpoint="fp32", verified=1, proven=True), state=ACCEPTED), "verdict", "trial"),
        (after(told.FellBack(checkpoint="fp32", verified=1, proven=True), state=ACCEPTED), "measure", "measure"),
        (after(*locked(revision=2, reason="because"), state=ACCEPTED), "verdict", "trial"),
    ],
)
def test_c_leads_from_the_verdict_to_the_report(state: SessionState, page: Page, move: Move) -> None:
    now = Situation(state, page)
    assert next_move(now) == move
    assert "proceed" in active(now)
    assert LABELS[move]


@pytest.mark.parametrize("page", ["verdict", "measure", "report", "project"])
def test_a_new_trial_is_not_offered_where_one_looks_at_what_came_of_the_last(page: Page) -> None:
    assert not {"phase", "iteration", "unattended"} & active(Situation(ACCEPTED, page))
    assert {"phase", "iteration", "unattended"} <= active(Situation(ACCEPTED, "trial"))


def test_a_marked_verdict_can_be_confirmed_from_where_it_is_read() -> None:
    state = after(*judged("accept", interventions=1))
    assert "unattended" in active(Situation(state, "verdict"))
    assert "unattended" not in active(Situation(state, "report"))


def test_a_run_that_nobody_attends_takes_no_orders_but_to_end() -> None:
    state = after(*opened(), *baseline(), *locked(), *trial_started())
    steers = {"phase", "iteration", "proceed", "until", "pause", "unattended", "cancel", "retry"}
    assert steers & active(Situation(state, "trial")) == {"cancel"}
    attended = replace(
        state, trials=(replace(state.trials[0], started=replace(state.trials[0].started, attended=True)),)
    )
    assert steers & active(Situation(attended, "trial")) == {"cancel", "pause", "unattended"}


def test_what_was_accepted_is_measured_once_for_each_policy_and_the_newest_first() -> None:
    state = after(*measured.side_by_side(measure=False))
    order = []
    while (trial := to_measure(state)) is not None:
        order.append(trial.started.policy.dtype)
        state = after(measured.measured(trial.number, trial.started.policy.dtype), state=state)
    assert order == ["bfloat16", "float16"]
    longer = after(*measured.trial(3, "float16", "accept", scaled=True), state=state)
    assert to_measure(longer) is None


def test_a_trial_of_an_engine_before_is_not_measured_by_this_one() -> None:
    again = after(*opened()[1:], *baseline(), *locked(), state=ACCEPTED)
    assert to_measure(again) is None
    assert next_move(Situation(replace(again, fell_back=None), "measure")) == "show report"


def test_other_seeds_are_offered_once_where_something_is_trained() -> None:
    assert "yardstick" in active(Situation(ACCEPTED, "measure"))
    assert "yardstick" not in active(Situation(ACCEPTED, "verdict"))
    assert "yardstick" not in active(Situation(after(measured.SEEDS, state=ACCEPTED), "measure"))
    assert ACCEPTED.project is not None
    untrained = replace(ACCEPTED, project=replace(ACCEPTED.project, updates=()))
    assert "yardstick" not in active(Situation(untrained, "measure"))


def test_cases_are_looked_for_where_the_project_is_open_and_nothing_runs() -> None:
    opened_now = after(*opened())
    assert "find_cases" in active(Situation(opened_now, "project"))
    assert "find_cases" in active(Situation(after(*baseline(), state=opened_now), "baseline"))
    assert "find_cases" not in active(Situation(opened_now, "trial"))
    looking = after(told.StageStarted(stage="measure", task="cases"), state=opened_now)
    assert {"find_cases", "cancel"} & active(Situation(looking, "cases")) == {"cancel"}


def test_a_measurement_that_was_refused_keeps_nothing_else_from_going_on() -> None:
    refused = told.Refused(code="measurement-failed", message="the project fails in forward")
    state = after(told.StageStarted(stage="measure", task="time"), refused, ended("measure"), state=ACCEPTED)
    assert next_stage(state) is None
    assert next_move(Situation(state, "measure")) == "measure"
    assert "fall_back" in active(Situation(state, "measure"))


@pytest.mark.parametrize("state", [ACCEPTED, REJECTED, after(*opened())])
def test_a_recorded_session_and_one_whose_engine_is_gone_can_be_reported(state: SessionState) -> None:
    recorded = Situation(state, "report", mode="recorded", connected=False)
    gone = Situation(replace(state, engine="dead"), "report", connected=False)
    assert next_move(recorded) == next_move(gone) == "write report"
    assert next_move(replace(recorded, page="verdict")) is None


def test_what_was_planned_before_the_lock_is_what_c_runs_after_it() -> None:
    state = after(*opened(), *baseline(), *locked())
    assert next_move(Situation(state, "criteria", planned="float16, bfloat16")) == "trials"
    before = after(*opened(), *baseline())
    assert "policies" in active(Situation(before, "criteria"))
    assert "policies" not in active(Situation(before, "baseline"))


def test_changed_limits_are_locked_by_c_on_their_page_alone() -> None:
    assert next_move(Situation(ACCEPTED, "criteria", criteria_changed=True)) == "lock"
    assert next_move(Situation(ACCEPTED, "verdict", criteria_changed=True)) == "show measure"


@pytest.mark.parametrize("busy", ["starting", "reloading", "falling_back"])
def test_while_an_engine_is_replaced_or_brought_back_nothing_else_is_asked_of_it(busy: str) -> None:
    for state in (ACCEPTED, REJECTED):
        for page in ("project", "trial", "verdict", "measure", "report"):
            now = Situation(state, page, **{busy: True})  # type: ignore[arg-type]
            begins = {"proceed", "phase", "iteration", "unattended", "extend", "policies", "mend", "reload"}
            assert not active(now) & begins
            assert next_move(now) is None
            assert ("fall_back" in active(now)) == (busy != "falling_back")
