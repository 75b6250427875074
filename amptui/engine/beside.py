"""One case under the policy beside the baseline: differences against the limits, and whether the decision stands."""

from __future__ import annotations

from amptui.engine.baseline import Baseline
from amptui.engine.compare import compare_outputs
from amptui.engine.decisions import decisions_agree, tied_choices
from amptui.engine.evaluate import Evaluated, nonfinite_outputs
from amptui.findings.criteria import limits_for
from amptui.findings.evidence import CaseEvidence, TensorDifference
from amptui.project import Criteria, Project


def beside(project: Project, baseline: Baseline, criteria: Criteria, trial: Evaluated) -> CaseEvidence:
    """`trial` held against the same case of `baseline` under `criteria`."""
    expected = baseline.cases[trial.index]
    ties = tied_choices(expected.outputs, expected.decision)
    stands = None
    if project.decide is not None:
        stands = decisions_agree(expected.decision, trial.decision, ties if criteria.tie == "any" else None)
    identity = trial.case.id
    return CaseEvidence(
        case=identity,
        index=trial.index,
        tag=trial.case.tag,
        differences=_differences(criteria, expected, trial),
        decision=expected.decision,
        trial_decision=trial.decision,
        margin=expected.margin,
        trial_margin=trial.margin,
        decision_stands=stands,
        tied=ties is not None and any(len(row) > 1 for row in ties),
        baseline_nonfinite=nonfinite_outputs(expected),
        noise=baseline.noise[identity],
        randomness=baseline.randomness[identity],
        decision_random=identity in baseline.random_decisions,
    )


def _differences(criteria: Criteria, expected: Evaluated, trial: Evaluated) -> tuple[TensorDifference, ...]:
    found = []
    for name in {**expected.outputs, **trial.outputs}:
        atol, rtol = limits_for(criteria, name)
        if name in expected.outputs and name in trial.outputs:
            found.append(compare_outputs(name, expected.outputs[name], trial.outputs[name], atol=atol, rtol=rtol))
        else:
            found.append(_missing(name, atol, name in trial.outputs))
    return tuple(found)


def _missing(name: str, limit: float, in_trial: bool) -> TensorDifference:
    return TensorDifference(
        name=f"{name} (only in the {'trial' if in_trial else 'baseline'})",
        measured=float("inf"),
        limit=limit,
        largest=float("inf"),
        baseline=None,
        trial=None,
        place=(),
        elements=0,
        beyond=0,
        nonfinite=0,
    )
