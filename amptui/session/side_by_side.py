"""Several trials of one session beside each other, and which of them speaks for it."""

from __future__ import annotations

from amptui.findings import foreseen
from amptui.findings.foreseen import Comparison
from amptui.findings.gain import Claim, seed_claim
from amptui.findings.policies import Recommendation, TrialSummary, by_standing, recommend
from amptui.session.state import SessionState, TrialState


def summary(state: SessionState, trial: TrialState) -> TrialSummary:
    """What the comparison reads of a trial, the measurement included where there is one."""
    verdict, done, measured = trial.verdict, trial.done, state.measured.get(trial.number)
    return TrialSummary(
        trial=trial.number,
        policy=trial.started.policy,
        verdict=verdict.verdict if verdict is not None else None,
        rows=verdict.rows if verdict is not None else (),
        counts=verdict.counts if verdict is not None else (),
        scaler=verdict.scaler if verdict is not None else None,
        quality=done.quality if done is not None else None,
        interventions=verdict.interventions if verdict is not None else len(trial.interventions),
        claims=measured.claims if measured is not None else (),
    )


def summaries(state: SessionState) -> tuple[TrialSummary, ...]:
    return tuple(summary(state, trial) for trial in state.trials)


def comparable(state: SessionState) -> tuple[TrialState, ...]:
    """The trials of the project as it was opened last; those before ran other code, maybe. All where there are none."""
    return state.trials[state.earlier_trials :] or state.trials


def recommendation(state: SessionState) -> Recommendation | None:
    """Which policy to take; None before the first trial."""
    return recommend([summary(state, trial) for trial in comparable(state)]) if state.trials else None


def chosen(state: SessionState) -> TrialState | None:
    """The trial that speaks for the session, on the screen, in report and result.

    The recommended one; else the accepted one with the least to go wrong, those first that were measured; else the
    first with a verdict; else the last one.
    """
    trials = comparable(state)
    said = recommendation(state)
    if said is not None and said.trial is not None:
        return next(trial for trial in trials if trial.number == said.trial)
    order = by_standing([summary(state, trial) for trial in trials])
    if order:
        return next(trial for trial in trials if trial.number == order[0].trial)
    return next((trial for trial in trials if trial.verdict is not None), state.trial)


def comparison(state: SessionState, trial: TrialState) -> Comparison | None:
    """The forecast beside what the trial showed; None where one of them is missing."""
    if state.forecast is None or trial.verdict is None:
        return None
    dtype = trial.started.policy.dtype
    forecast = next((f for f in state.forecast.dtypes if f.dtype == dtype), None)
    if forecast is None:
        return None
    return foreseen.compare(forecast, trial.verdict.findings, trial.verdict.counts, trial.verdict.scaler)


def seed_claims(state: SessionState, trial: TrialState) -> tuple[Claim, ...]:
    """The trial's effect on loss and quality beside the spread of other seeds in FP32."""
    if state.seeds is None or trial.verdict is None:
        return ()
    values = {
        f"loss of {row.update}": row.trial
        for row in trial.verdict.rows
        if row.criterion == "progress" and row.update is not None
    }
    if trial.done is not None:
        values["quality"] = trial.done.quality
    found = []
    for spread in state.seeds.spreads:
        value = values.get(spread.what)
        if isinstance(value, int | float):
            found.append(seed_claim(spread, float(value)))
    return tuple(found)
