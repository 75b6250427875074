"""What was measured, as plain values: the input of findings, rows and verdict. The engine fills it, tests write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from amptui.findings.finding import Finding
from amptui.findings.judgement import ScaleCourse, UpdateCounts
from amptui.project import Criteria, Policy


@dataclass(frozen=True, kw_only=True)
class OutputRange:
    """One output over all cases in the FP32 baseline. `noise` and `randomness` are largest absolute differences."""

    name: str
    largest: float
    noise: float
    randomness: float


@dataclass(frozen=True, kw_only=True)
class TensorDifference:
    """Trial against baseline for one tensor.

    For outputs and losses, `measured` is the largest |trial − baseline| − rtol·|baseline| over the elements and `limit`
    is atol, `baseline` and `trial` the values at that element. For gradients, `measured` is the norm of the difference
    over the larger of the tensor's own norm and a hundredth of the whole gradient's, and `limit` a bound on that.
    """

    name: str
    measured: float
    limit: float
    largest: float
    baseline: float | None
    trial: float | None
    place: tuple[int, ...]
    elements: int
    beyond: int
    #: Elements that are NaN, or infinite where the baseline is not the same infinity.
    nonfinite: int
    update: str | None = None


@dataclass(frozen=True, kw_only=True)
class CaseEvidence:
    """One case on the checkpoint's weights: baseline beside trial.

    `decision_stands` is None without `decide`. `randomness` names the outputs that differed between two FP32 runs with
    different RNG states, `noise` those that differed with the same one, with the largest difference.
    """

    case: str
    index: int
    tag: str
    differences: tuple[TensorDifference, ...] = ()
    decision: object = None
    trial_decision: object = None
    margin: float | None = None
    trial_margin: float | None = None
    decision_stands: bool | None = None
    #: Whether the baseline's best candidates were exactly tied.
    tied: bool = False
    baseline_nonfinite: tuple[str, ...] = ()
    noise: Mapping[str, float] = field(default_factory=dict)
    randomness: Mapping[str, float] = field(default_factory=dict)
    decision_random: bool = False


@dataclass(frozen=True, kw_only=True)
class FinalCaseEvidence:
    """One case after the stretch: names of outputs that are not finite, in the baseline and in the trial."""

    case: str
    index: int
    baseline_nonfinite: tuple[str, ...] = ()
    trial_nonfinite: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TripEvidence:
    """Why the guard held an update back, and what replays of the same iteration showed.

    `bad` names micro-batches, layers and buffers. `fp32_finite` is a replay in true FP32 on the same weights, batch and
    RNG; `fitting_scale` the largest power of two at which the unscaled gradients are finite under the policy, None
    where no scale helps (or none was used); `count` how many iterations of the stretch ended this way.
    """

    step: int
    update: str
    outcome: str
    loss: float
    scale: float
    found_inf: bool
    bad: tuple[str, ...]
    fp32_finite: bool
    fitting_scale: float | None
    count: int
    last_step: int
    #: First step of the baseline's own stretch that was not finite for this update, or None.
    baseline_step: int | None = None
    #: Float buffers that this forward left non-finite (before any rollback).
    buffers: tuple[str, ...] = ()
    #: Id of the retained case.
    retained: str | None = None
    loss_at: str | None = None


@dataclass(frozen=True, kw_only=True)
class SilentLayers:
    """Layers of one update whose gradient was zero in every applied iteration of the trial and in none of FP32's.

    `of` is the number of the update's layers, `norm` the largest norm that one of these had in FP32.
    """

    update: str
    layers: tuple[str, ...]
    of: int
    norm: float


@dataclass(frozen=True, kw_only=True)
class CodeFailure:
    """User code raised. `under` is "policy" or "fp32"; `where` is the user's innermost `file:line`."""

    under: str
    exception: str
    message: str
    where: str | None
    module: str
    op: str | None
    step: int | None
    case: str | None
    update: str | None
    phase: str


@dataclass(frozen=True, kw_only=True)
class BaselineEvidence:
    """The FP32 side. `first_bad` maps an update to the first step of the FP32 stretch that was not finite."""

    repeatable: bool
    difference: str | None
    first_bad: Mapping[str, int]
    outputs: Mapping[str, OutputRange]
    quality: float | None
    quality_before: float | None
    counts: tuple[UpdateCounts, ...]
    #: Mean loss of the last quarter of the stretch, by update.
    late_loss: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class TrialEvidence:
    """Everything a verdict is reached from."""

    policy: Policy
    criteria: Criteria
    baseline: BaselineEvidence
    cases: tuple[CaseEvidence, ...]
    final_cases: tuple[FinalCaseEvidence, ...]
    #: Loss and gradients of iteration 0, by update.
    first_iteration: tuple[TensorDifference, ...]
    iterations: int
    completed: bool
    counts: tuple[UpdateCounts, ...]
    scaler: ScaleCourse | None
    trips: tuple[TripEvidence, ...]
    failures: tuple[CodeFailure, ...]
    quality: float | None
    quality_better: str
    late_loss: Mapping[str, float]
    interventions: int = 0
    silent: tuple[SilentLayers, ...] = ()
    #: Findings that the engine made itself (origins, regions, errors located by tracing).
    located: tuple[Finding, ...] = ()
    #: The same, told only in the place of a general finding: alone they say nothing.
    details: tuple[Finding, ...] = ()
