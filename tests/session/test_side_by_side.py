"""Several trials of one session: which one speaks for it, what its forecast was worth, what seeds do beside it."""

from __future__ import annotations

import pytest

from amptui.session.side_by_side import chosen, comparison, recommendation, seed_claims, summaries
from amptui.session.state import SessionState, reduce
from tests.report import measured
from tests.report.stages import Told, baseline, locked, opened


def after(events: Told) -> SessionState:
    state = SessionState()
    for event in events:
        state = reduce(state, event)  # type: ignore[arg-type]
    return state


def test_each_trial_is_summed_up_with_what_was_measured_of_it() -> None:
    half, brain = summaries(after(measured.side_by_side()))

    assert (half.trial, half.name, half.verdict, half.quality) == (1, "float16", "accept", 0.955)
    assert half.claims == (measured.FASTER, measured.SMALLER)
    assert half.scaler is not None
    assert (brain.name, brain.scaler, brain.claims) == ("bfloat16", None, (measured.SAME,))


def test_the_recommended_trial_speaks_for_the_session() -> None:
    state = after(measured.side_by_side())
    trial = chosen(state)

    said = recommendation(state)
    assert said is not None
    assert said.trial == 1
    assert trial is not None
    assert trial.number == 1


def test_unmeasured_the_one_without_a_scaler_speaks() -> None:
    trial = chosen(after(measured.side_by_side(measure=False)))

    assert trial is not None
    assert trial.number == 2


def test_an_accepted_trial_speaks_before_a_rejected_one_even_without_a_gain() -> None:
    events = [*measured.side_by_side(measure=False, first="reject"), measured.measured(2, "bfloat16", measured.SAME)]
    state = after(events)

    said, trial = recommendation(state), chosen(state)
    assert said is not None
    assert said.trial is None, "it gains nothing"
    assert trial is not None
    assert trial.number == 2, "but it was accepted"


def test_where_nothing_is_gained_the_measured_one_speaks() -> None:
    events = [*measured.side_by_side(measure=False), measured.measured(2, "bfloat16", measured.SAME)]
    trial = chosen(after(events))

    assert trial is not None
    assert trial.number == 2


def test_trials_of_an_opening_before_do_not_compete() -> None:
    one, two = measured.side_by_side(measure=False), measured.trial(3, "float16", "accept", scaled=True)
    state = after([*one, *opened(), *baseline(), *locked(), *two])
    said, trial = recommendation(state), chosen(state)

    assert said is not None
    assert said.trial == 3, "trial 2 needs no scaler, but ran other code, maybe"
    assert trial is not None
    assert trial.number == 3


def test_a_single_trial_speaks_for_itself() -> None:
    state = after(measured.trial(1, "float16", "reject", scaled=True))

    assert chosen(state) is state.trial


def test_without_a_trial_nothing_is_recommended() -> None:
    assert recommendation(SessionState()) is None
    assert chosen(SessionState()) is None


def test_the_forecast_stands_beside_the_trial_of_its_dtype() -> None:
    state = after(measured.side_by_side())

    beside = comparison(state, state.trials[0])
    assert beside is not None
    assert (beside.dtype, beside.foreseen_scale, beside.trial_scale) == ("float16", 2.0**12, 4096.0)


def test_without_a_forecast_nothing_is_compared() -> None:
    state = after(measured.trial(1, "float16", "accept", scaled=True))

    assert comparison(state, state.trials[0]) is None


def test_loss_and_quality_are_held_against_other_seeds() -> None:
    state = after(measured.side_by_side())
    loss, quality = seed_claims(state, state.trials[0])

    assert (loss.subject, loss.figure) == ("loss", pytest.approx(0.01))
    assert (quality.subject, quality.direction) == ("quality", "none")


def test_the_cases_of_every_trial_are_kept() -> None:
    from tests.report.stages import case_run, difference

    state = after(
        [
            *measured.trial(1, "float16", "accept", scaled=True)[:2],
            case_run(1, difference(0.5, largest=0.5)),
            *measured.trial(2, "bfloat16", "accept", scaled=False)[:2],
            case_run(1, difference(0.1, largest=0.1)),
        ]
    )

    assert [trial.cases["plain-2"].differences[0].measured for trial in state.trials] == [0.5, 0.1]
