"""What the engine tells: each event is one fact that has happened.

An event's place in the session is its sequence number, given by the engine's outbox. `durable` events change the
state of a session and are committed before they are acknowledged; the others are telemetry, recorded in batches.
"""

# ruff: noqa: PLC0414 - "as" says that these names are meant to be had from here too

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from amptui.findings.finding import Finding
from amptui.findings.judgement import Proposal, UpdateCounts
from amptui.project import Criteria, Policy
from amptui.protocol.base import Event as Event
from amptui.protocol.facts import (
    CaseFacts,
    CaseFigures,
    Digests,
    Environment,
    IterationRecord,
    ModuleFacts,
    Pass,
    UpdateFacts,
)
from amptui.protocol.layers import LayersMeasured as LayersMeasured
from amptui.protocol.measuring import CasesFound as CasesFound
from amptui.protocol.measuring import ForecastMade as ForecastMade
from amptui.protocol.measuring import Measured as Measured
from amptui.protocol.measuring import PrecisionMapped as PrecisionMapped
from amptui.protocol.measuring import SeedsMeasured as SeedsMeasured
from amptui.protocol.measuring import Task as Task
from amptui.protocol.recalling import CaseReplayed as CaseReplayed
from amptui.protocol.recalling import Diagnosed as Diagnosed
from amptui.protocol.trying import CaseRetained as CaseRetained
from amptui.protocol.trying import CodeFailed as CodeFailed
from amptui.protocol.trying import FinalCaseRun as FinalCaseRun
from amptui.protocol.trying import GuardTripped as GuardTripped
from amptui.protocol.trying import Intervened as Intervened
from amptui.protocol.trying import PhaseDone as PhaseDone
from amptui.protocol.trying import TrialCaseRun as TrialCaseRun
from amptui.protocol.trying import TrialDone as TrialDone
from amptui.protocol.trying import TrialStarted as TrialStarted
from amptui.protocol.trying import VerdictReached as VerdictReached

StageName = Literal["project", "baseline", "criteria", "trial", "verdict", "measure", "report"]


@dataclass(frozen=True, kw_only=True)
class EngineStarted(Event):
    pid: int
    environment: Environment


@dataclass(frozen=True, kw_only=True)
class ProjectOpened(Event):
    """The spec was loaded, checked, moved and frozen; `remainder` batches at the end fill no whole window."""

    name: str
    spec: str
    #: `file:line` of the factory or object.
    defined_at: str | None
    modules: tuple[ModuleFacts, ...]
    parameters: int
    updates: tuple[UpdateFacts, ...]
    cases: tuple[CaseFacts, ...]
    batches: int
    iterations: int
    remainder: int
    policy: Policy
    #: What the project itself asked for; None lets amptui propose.
    criteria: Criteria | None
    digests: Digests
    has_decide: bool
    has_quality: bool
    environment: Environment


@dataclass(frozen=True, kw_only=True)
class Remarked(Event):
    """A preflight remark: explained, with its mend; nothing was refused."""

    code: str
    message: str
    where: str | None = None
    advice: str = ""


@dataclass(frozen=True, kw_only=True)
class Refused(Event):
    """The project cannot be judged as it is: what is wrong, where, and the mend. Nothing was run."""

    code: str
    message: str
    where: str | None = None
    hint: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Probed(Event):
    """One iteration run per dtype as an operator probe: what this device supports is tried, not looked up."""

    dtype: str
    supported: bool
    error: str | None = None
    where: str | None = None


@dataclass(frozen=True, kw_only=True)
class StageStarted(Event):
    stage: StageName
    #: For a replay beside the session: its baseline, criteria and verdicts stay as they are.
    aside: bool = False
    #: Which of its commands the stage measure carries out.
    task: Task | None = None


@dataclass(frozen=True, kw_only=True)
class StageEnded(Event):
    """A command has been carried out, refused or cancelled; the engine waits for the next one."""

    stage: StageName
    completed: bool


@dataclass(frozen=True, kw_only=True)
class Progressed(Event):
    durable: ClassVar[bool] = False
    stage: StageName
    what: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class OutputCaptured(Event):
    """Lines that the project printed."""

    durable: ClassVar[bool] = False
    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True, kw_only=True)
class CheckpointWritten(Event):
    name: str
    path: str
    sha256: str
    tensors: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class RepeatProved(Event):
    """The first iterations were run twice from the checkpoint. `difference` names the first tensor that differed."""

    repeatable: bool
    iterations: int
    difference: str | None = None
    step: int | None = None
    #: Whether there was anything to run (a project without updates has no stretch).
    advice: str = ""


@dataclass(frozen=True, kw_only=True)
class BaselineCaseRun(Event):
    """A case in true FP32. `noise`: largest difference of two equal runs; `randomness`: of runs with another RNG."""

    figures: CaseFigures
    noise: Mapping[str, float]
    randomness: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class IterationDone(Event):
    durable: ClassVar[bool] = False
    run: Pass
    record: IterationRecord


@dataclass(frozen=True, kw_only=True)
class BaselineDone(Event):
    finite: bool
    repeatable: bool
    #: Why the baseline decides nothing, if so.
    reasons: tuple[str, ...]
    quality_before: float | None
    quality: float | None
    counts: tuple[UpdateCounts, ...]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CriteriaProposed(Event):
    criteria: Criteria
    proposals: tuple[Proposal, ...]
    #: The coarsest dtype that they are for.
    dtype: str = ""


@dataclass(frozen=True, kw_only=True)
class CriteriaLocked(Event):
    revision: int
    digest: str
    criteria: Criteria
    proposals: tuple[Proposal, ...]
    #: Why it was changed; empty for the first revision.
    reason: str
    #: Whether a trial had already run when this revision was written.
    after_trial: bool


@dataclass(frozen=True, kw_only=True)
class FellBack(Event):
    """The FP32 checkpoint is restored; `verified` tensors were compared bit for bit afterwards."""

    checkpoint: str
    verified: int
    #: Whether "bit for bit" may be said: every part was proven equal and the repeat proof holds.
    proven: bool


@dataclass(frozen=True, kw_only=True)
class Paused(Event):
    durable: ClassVar[bool] = False
    step: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Running(Event):
    durable: ClassVar[bool] = False
    what: str


@dataclass(frozen=True, kw_only=True)
class Cancelled(Event):
    stage: StageName


@dataclass(frozen=True, kw_only=True)
class EngineFailed(Event):
    """An error ended the engine; the session stays restorable.

    It is the engine's own, unless `hint` says what the project has to do about it: then its code raised.
    """

    message: str
    where: str | None
    detail: str = ""
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class Goodbye(Event):
    """The engine ends by its own decision; an end without it is a crash, whatever the exit code."""

    why: str
