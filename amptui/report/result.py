"""The JSON that `amptui check` writes on every exit, and its exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import amptui
from amptui.findings.judgement import Row
from amptui.session.side_by_side import chosen, comparison, recommendation, seed_claims, summary
from amptui.session.state import CaseState, SessionState, TrialState

ACCEPT, REJECT, CANNOT_JUDGE, INCONCLUSIVE, INTERRUPTED = 0, 1, 2, 3, 130

#: The code of what has come to no verdict without anything that kept it from one.
UNFINISHED = "unfinished"

_CODES = {"accept": ACCEPT, "reject": REJECT, "inconclusive": INCONCLUSIVE}


def exit_code(state: SessionState) -> int:
    """0 accept, 1 reject, 3 inconclusive; 2 for anything that kept it from judging.

    Of several policies side by side the chosen one counts: 0 if any of them is accepted.
    """
    trial = chosen(state)
    return _CODES[trial.verdict.verdict] if trial is not None and trial.verdict is not None else CANNOT_JUDGE


def check_result(
    state: SessionState, *, session: str | None, cut_short: tuple[str, str] | None = None, alive: bool = False
) -> dict[str, Any]:
    """The documented object (DESIGN "Findings and JSON"), and beside it all that a verdict rests on.

    `cut_short`: code and message of what ended the check from outside; then there is no verdict, whatever had been
    reached. `alive`: an engine still drives the session. Non-finite numbers are left to the writer, which spells them
    out.
    """
    trial = chosen(state) if cut_short is None else None
    verdict = trial.verdict if trial is not None else None
    advised = recommendation(state)
    return {
        "verdict": verdict.verdict if verdict is not None else None,
        "words": verdict.words if verdict is not None else None,
        "interventions": verdict.interventions if verdict is not None else state.interventions,
        "rows": [_row(row) for row in verdict.rows] if verdict is not None else [],
        "updates": [asdict(count) for count in verdict.counts] if verdict is not None else [],
        "scaler": asdict(verdict.scaler) if verdict is not None and verdict.scaler is not None else None,
        "fp32_regions": list(verdict.fp32_regions) if verdict is not None else [],
        "findings": [f.as_json() for f in (verdict.findings if verdict is not None else state.findings)],
        "error": error(state, cut_short=cut_short, alive=alive),
        "session": session,
        "policy": _policy(state, trial),
        "trials": [_trial(state, each) for each in state.trials],
        "recommendation": asdict(advised) if advised is not None else None,
        "forecast": asdict(state.forecast) if state.forecast is not None else None,
        "measurement": _measurement(state),
        "criteria": [_revision(state, number) for number in range(len(state.revisions))],
        "baseline": _baseline(state),
        "cases": [_case(name, case, trial) for name, case in state.cases.items()],
        "retained": [asdict(kept) for kept in state.retained],
        "checkpoints": [asdict(written) for written in state.checkpoints],
        "remarks": [asdict(remark) for remark in state.remarks],
        "probes": [asdict(probe) for probe in state.probes],
        "project": _project(state),
        "environment": asdict(state.environment) if state.environment is not None else None,
        "amptui": amptui.__version__,
    }


def error(
    state: SessionState, *, cut_short: tuple[str, str] | None = None, alive: bool = False
) -> dict[str, Any] | None:
    """What kept amptui from judging, as one message with place and mend; None where there is a verdict."""
    trial = chosen(state)
    if cut_short is None and trial is not None and trial.verdict is not None:
        return None
    if state.obstacle is not None:
        refused = state.obstacle
        return {"code": refused.code, "message": refused.message, "where": refused.where, "hint": refused.hint}
    hint = "the session stays restorable: amptui restore"
    output = {"output": list(state.death.last_output)} if state.death is not None else {}
    if state.failure is not None:  # what its process ended of
        failed = state.failure
        said = {"message": failed.message, "where": failed.where, "hint": failed.hint or hint}
        return {"code": "engine-failed", **said, **output}
    if state.death is not None:
        return {"code": "engine-died", "message": state.death.words, "where": None, "hint": hint, **output}
    if cut_short is not None:
        return {"code": cut_short[0], "message": cut_short[1], "where": None, "hint": ""}
    if alive:
        hint = "ask again once it has come to one"
        return {"code": UNFINISHED, "message": "the session has not ended yet", "where": None, "hint": hint}
    why = f": {state.goodbye}" if state.goodbye else ""
    return {"code": UNFINISHED, "message": f"the engine ended before a verdict{why}", "where": None, "hint": ""}


def _row(row: Row) -> dict[str, Any]:
    return asdict(row)


def _revision(state: SessionState, number: int) -> dict[str, Any]:
    locked = state.revisions[number]
    return {
        "revision": locked.revision,
        "digest": locked.digest,
        "reason": locked.reason,
        "after_trial": locked.after_trial,
        "criteria": asdict(locked.criteria),
        "proposals": [asdict(proposal) for proposal in locked.proposals],
    }


def _baseline(state: SessionState) -> dict[str, Any] | None:
    if state.baseline is None:
        return None
    repeat = asdict(state.repeat) if state.repeat is not None else None
    return {**asdict(state.baseline), "repeat": repeat}


def _policy(state: SessionState, trial: TrialState | None) -> dict[str, Any] | None:
    policy = trial.started.policy if trial is not None else state.policy
    return asdict(policy) if policy is not None else None


def _trial(state: SessionState, trial: TrialState) -> dict[str, Any]:
    """One of several policies: what it passed and failed, its updates and scale, and what its forecast was worth."""
    verdict, beside = trial.verdict, comparison(state, trial)
    precision = state.precision.get(trial.number)
    measured = state.measured.get(trial.number)
    return {
        "trial": trial.number,
        "name": summary(state, trial).name,
        "policy": asdict(trial.started.policy),
        "verdict": verdict.verdict if verdict is not None else None,
        "words": verdict.words if verdict is not None else None,
        "interventions": verdict.interventions if verdict is not None else len(trial.interventions),
        "rows": [_row(row) for row in verdict.rows] if verdict is not None else [],
        "failed": list(summary(state, trial).failed),
        "updates": [asdict(count) for count in verdict.counts] if verdict is not None else [],
        "scaler": asdict(verdict.scaler) if verdict is not None and verdict.scaler is not None else None,
        "quality": trial.done.quality if trial.done is not None else None,
        "fp32_regions": list(verdict.fp32_regions) if verdict is not None else [],
        "findings": [finding.as_json() for finding in verdict.findings] if verdict is not None else [],
        "forecast": asdict(beside) if beside is not None else None,
        "precision": asdict(precision) if precision is not None else None,
        "seeds": [asdict(claim) for claim in seed_claims(state, trial)],
        "measurement": asdict(measured) if measured is not None else None,
    }


def _measurement(state: SessionState) -> dict[str, Any] | None:
    """Ratios with their spread for every timed trial, and FP32 under other seeds; None if neither was asked for."""
    if not state.measured and state.seeds is None:
        return None
    return {
        "trials": [asdict(measured) for measured in state.measured.values()],
        "seeds": asdict(state.seeds) if state.seeds is not None else None,
    }


def _case(name: str, case: CaseState, trial: TrialState | None) -> dict[str, Any]:
    told = trial.cases.get(name) if trial is not None else None
    return {
        "id": name,
        "baseline": asdict(case.baseline) if case.baseline is not None else None,
        "trial": asdict(told) if told is not None else None,
        "final": {run: asdict(figures) for run, figures in case.final.items()},
    }


def _project(state: SessionState) -> Mapping[str, Any] | None:
    if state.project is None:
        return None
    opened = asdict(state.project)
    del opened["environment"]
    return opened
