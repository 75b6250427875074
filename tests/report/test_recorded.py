"""What a report reads from the events: which trial it is about, and both runs' figures by iteration."""

from __future__ import annotations

import dataclasses
import math

from amptui.project import Policy
from amptui.protocol import events as told
from amptui.report.recorded import TAKEN
from tests.report.sessions import accepted, refused
from tests.report.stages import opened, trial_started, verdict
from tests.report.written import recorded, step


def test_curves_hold_every_iteration_of_both_runs_as_recorded() -> None:
    events = (
        *opened(),
        told.StageStarted(stage="baseline"),
        step(0, run="baseline", updates=[{"loss": 2.0, "norm": 3.0}]),
        *trial_started(),
        step(0, scale=8.0, updates=[{"loss": math.nan, "norm": math.inf, "outcome": "bad_gradient"}]),
        step(1, scale=4.0, updates=[{"outcome": "no_gradient"}, {"update": "second", "mapped_loss": True}]),
        step(2, scale=4.0, updates=[{"outcome": "bad_after_unscale"}]),
    )
    session = recorded(events)
    assert session.baseline.updates["main"].losses.tolist() == [2.0]
    assert session.baseline.updates["main"].norms.tolist() == [3.0]
    assert session.curves is not None
    main, second = session.curves.updates["main"], session.curves.updates["second"]
    assert main.steps.tolist() == [0, 1, 2]
    assert math.isnan(main.losses[0])
    assert main.norms[0] == math.inf
    assert [TAKEN[taken] for taken in main.taken] == ["skipped", "no gradient", "withheld"]
    assert (main.mapped_loss, second.mapped_loss) == (False, True)
    assert session.curves.scales.tolist() == [8.0, 4.0, 4.0]


def test_a_run_without_a_scaler_has_no_scales() -> None:
    session = recorded((*opened(), *trial_started(), step(0, updates=[{}])))
    assert session.curves is not None
    assert session.curves.scales.tolist() == []


def trial(number: int, dtype: str, result: str) -> tuple[told.Event, ...]:
    start = told.TrialStarted(trial=number, policy=Policy(dtype=dtype), iterations=1, revision=1, attended=False)
    reached = next(e for e in verdict(result, f"{result}.", []) if isinstance(e, told.VerdictReached))
    return (start, step(0, updates=[{"loss": float(number)}]), dataclasses.replace(reached, trial=number))


def test_the_report_is_about_the_trial_that_speaks_for_the_session() -> None:
    session = recorded(
        (*opened(), *trial(1, "float16", "reject"), *trial(2, "bfloat16", "accept"), *trial(3, "float16", "reject"))
    )
    assert session.trial is not None
    assert session.trial.number == 2
    assert session.policy == Policy(dtype="bfloat16")
    assert session.curves is not None
    assert session.curves.updates["main"].losses.tolist() == [2.0]


def test_a_project_opened_again_without_a_trial_leaves_the_judged_one_in_the_report() -> None:
    again = [
        dataclasses.replace(event, name="another") if isinstance(event, told.ProjectOpened) else event
        for event in opened()
    ]
    session = recorded(
        (
            *accepted()[:-1],
            *again,
            told.StageStarted(stage="baseline"),
            step(0, run="baseline", updates=[{"loss": 9.0}]),
        )
    )
    assert session.opened_again
    assert session.state.project is not None
    assert session.state.project.name == "tiny"
    assert session.verdict is not None
    assert "main" not in session.baseline.updates, "the judged baseline had no iterations in these events"

    judged = recorded((*accepted()[:-1], *again, *trial(2, "float16", "reject")))
    assert not judged.opened_again
    assert judged.state.project is not None
    assert judged.state.project.name == "another"


def test_a_refused_project_has_no_trial() -> None:
    session = recorded(refused())
    assert (session.trial, session.verdict, session.curves, session.policy) == (None, None, None, None)


def test_fallbacks_are_all_kept_and_times_are_those_of_the_events() -> None:
    fell = told.FellBack(checkpoint="fp32", verified=9, proven=True)
    session = recorded((*accepted(), fell, fell))
    assert session.fallbacks == (fell, fell)
    assert session.began is not None
    assert session.ended is not None
    assert session.ended > session.began
