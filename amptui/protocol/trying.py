"""What happens in a trial: its cases, its phases, what the guard held back and kept, its end and its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from amptui.findings.evidence import TensorDifference
from amptui.findings.finding import Finding
from amptui.findings.judgement import Row, ScaleCourse, UpdateCounts, Verdict
from amptui.project import Policy
from amptui.protocol.base import Event
from amptui.protocol.facts import CaseFigures, OutputFacts, Pass, PhaseName, UpdateRecord


@dataclass(frozen=True, kw_only=True)
class TrialStarted(Event):
    trial: int
    policy: Policy
    iterations: int
    revision: int
    attended: bool


@dataclass(frozen=True, kw_only=True)
class TrialCaseRun(Event):
    """A case under the policy on the checkpoint's weights, beside the baseline."""

    figures: CaseFigures
    differences: tuple[TensorDifference, ...]
    decision_stands: bool | None
    baseline_decision: object = None
    baseline_margin: float | None = None


@dataclass(frozen=True, kw_only=True)
class PhaseDone(Event):
    """One phase of a guarded iteration; sent while the user steps, not while the trial runs."""

    durable: ClassVar[bool] = False
    step: int
    update: str | None
    phase: PhaseName
    micro_batch: int | None
    values: Mapping[str, float]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class GuardTripped(Event):
    """The guard held an update back; the weights are untouched. `words` say it to a newcomer."""

    record: UpdateRecord
    words: str
    #: Id of the retained case, or None where enough of its kind were kept.
    retained: str | None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CaseRetained(Event):
    id: str
    step: int | None
    update: str | None
    case: str | None
    outcome: str
    path: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Intervened(Event):
    """The user did something in mid-run that an unattended run would not: the verdict is marked."""

    what: str
    step: int


@dataclass(frozen=True, kw_only=True)
class CodeFailed(Event):
    """User code raised; `under` says whether the policy or true FP32 was on."""

    under: Pass
    exception: str
    message: str
    where: str | None
    module: str
    step: int | None
    case: str | None
    #: The user's frames, innermost last, as `file:line in function`.
    frames: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FinalCaseRun(Event):
    """A case after the stretch, in one of the two runs."""

    run: Pass
    figures: CaseFigures


@dataclass(frozen=True, kw_only=True)
class TrialDone(Event):
    trial: int
    completed: bool
    counts: tuple[UpdateCounts, ...]
    scaler: ScaleCourse | None
    quality: float | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class VerdictReached(Event):
    trial: int
    verdict: Verdict
    #: One sentence for a newcomer.
    words: str
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]
    counts: tuple[UpdateCounts, ...]
    scaler: ScaleCourse | None
    fp32_regions: tuple[str, ...]
    interventions: int
    extremes: Mapping[str, tuple[OutputFacts, ...]] = field(default_factory=dict)
