"""Evidence of an ordinary trial in which everything held; tests change one thing at a time."""

from __future__ import annotations

from typing import Any

from amptui.findings.evidence import (
    BaselineEvidence,
    CaseEvidence,
    CodeFailure,
    FinalCaseEvidence,
    OutputRange,
    TensorDifference,
    TrialEvidence,
    TripEvidence,
)
from amptui.findings.judgement import ScaleCourse, UpdateCounts
from amptui.project import Criteria, Policy

NAN, INF = float("nan"), float("inf")

CRITERIA = Criteria(
    outputs={
        "logits": {"atol": 0.1, "rtol": 0.0},
        "loss": {"atol": 0.01, "rtol": 0.0},
        "gradient": {"atol": 0.05, "rtol": 0.0},
    },
    quality_drop=0.02,
)


def difference(measured: float = 0.01, **changes: Any) -> TensorDifference:
    values: dict[str, Any] = {
        "name": "logits",
        "measured": measured,
        "limit": 0.1,
        "largest": measured,
        "baseline": 1.5,
        "trial": 1.51,
        "place": (0, 3),
        "elements": 10,
        "beyond": int(measured > 0.1),
        "nonfinite": 0,
    }
    return TensorDifference(**{**values, **changes})


def nonfinite_difference(**changes: Any) -> TensorDifference:
    values = {"nonfinite": 2, "trial": NAN, "beyond": 2, "largest": INF}
    return difference(INF, **{**values, **changes})


def case(name: str = "digit-3", index: int = 0, **changes: Any) -> CaseEvidence:
    values: dict[str, Any] = {
        "case": name,
        "index": index,
        "tag": "ordinary",
        "differences": (difference(),),
        "decision": 3,
        "trial_decision": 3,
        "margin": 0.8,
        "trial_margin": 0.79,
        "decision_stands": True,
    }
    return CaseEvidence(**{**values, **changes})


def final_case(name: str = "digit-3", index: int = 0, **changes: Any) -> FinalCaseEvidence:
    return FinalCaseEvidence(case=name, index=index, **changes)


def counts(name: str = "main", **changes: Any) -> UpdateCounts:
    values: dict[str, Any] = {
        "iterations": 20,
        "applied": 20,
        "skipped": 0,
        "withheld": 0,
        "changed": 20,
        "first_applied": 0,
    }
    return UpdateCounts(name=name, **{**values, **changes})


def trip(outcome: str = "bad_gradient", **changes: Any) -> TripEvidence:
    """A gradient that is infinite at 2^16 and finite at 2^14: settling, until a change says otherwise."""
    values: dict[str, Any] = {
        "step": 0,
        "update": "main",
        "loss": 0.7,
        "scale": 65536.0,
        "found_inf": True,
        "bad": ("conv2.weight",),
        "fp32_finite": True,
        "fitting_scale": 16384.0 if outcome == "bad_gradient" else None,
        "count": 2,
        "last_step": 1,
    }
    return TripEvidence(outcome=outcome, **{**values, **changes})


def failure(**changes: Any) -> CodeFailure:
    values: dict[str, Any] = {
        "under": "policy",
        "exception": "RuntimeError",
        "message": "mat1 and mat2 must have the same dtype, but got Half and Float",
        "where": "train.py:12",
        "module": "mixer",
        "op": "mm",
        "step": 0,
        "case": None,
        "update": "main",
        "phase": "forward",
    }
    return CodeFailure(**{**values, **changes})


def baseline(**changes: Any) -> BaselineEvidence:
    values: dict[str, Any] = {
        "repeatable": True,
        "difference": None,
        "first_bad": {},
        "outputs": {"logits": OutputRange(name="logits", largest=6.0, noise=0.0, randomness=0.0)},
        "quality": 0.9,
        "quality_before": 0.8,
        "counts": (counts(),),
        "late_loss": {"main": 0.5},
    }
    return BaselineEvidence(**{**values, **changes})


def trial(**changes: Any) -> TrialEvidence:
    """A float16 trial: two cases, 20 iterations of one update, all within the criteria."""
    values: dict[str, Any] = {
        "policy": Policy(),
        "criteria": CRITERIA,
        "baseline": baseline(),
        "cases": (case(), case("near-tie", 1, tag="boundary", margin=0.4, trial_margin=0.41)),
        "final_cases": (final_case(), final_case("near-tie", 1)),
        "first_iteration": (
            difference(0.001, name="loss", limit=0.01, place=(), elements=1, update="main"),
            difference(0.004, name="gradient fc.weight", limit=0.05, place=(), elements=4, update="main"),
        ),
        "iterations": 20,
        "completed": True,
        "counts": (counts(),),
        "scaler": ScaleCourse(initial=65536.0, final=65536.0, lowest=65536.0),
        "trips": (),
        "failures": (),
        "quality": 0.9,
        "quality_better": "higher",
        "late_loss": {"main": 0.51},
    }
    return TrialEvidence(**{**values, **changes})


def settled(trip_changes: dict[str, Any] | None = None, **changes: Any) -> TrialEvidence:
    """The same trial with two skips at the start, until the scale fits."""
    values: dict[str, Any] = {
        "trips": (trip(**(trip_changes or {})),),
        "counts": (counts(applied=18, skipped=2, changed=18, first_applied=2),),
        "scaler": ScaleCourse(initial=65536.0, final=16384.0, lowest=16384.0),
    }
    return trial(**{**values, **changes})


def cases_only(*cases: CaseEvidence, **changes: Any) -> TrialEvidence:
    """A trial of a project without updates."""
    values: dict[str, Any] = {
        "baseline": baseline(counts=(), late_loss={}),
        "cases": cases or (case(),),
        "final_cases": (),
        "first_iteration": (),
        "iterations": 0,
        "counts": (),
        "scaler": None,
        "late_loss": {},
    }
    return trial(**{**values, **changes})


__all__ = [name for name in globals() if not name.startswith("_") and name not in ("annotations", "replace", "Any")]
