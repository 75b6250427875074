"""A session as one value: what every screen, report and result shows.

Series over iterations are not kept here (a view keeps as many points as it draws); counts, the last record and all that
is rare are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from amptui.findings.finding import Finding
from amptui.findings.judgement import Row
from amptui.project import Policy
from amptui.protocol import events as told
from amptui.protocol.events import StageName
from amptui.protocol.facts import CaseFigures, Environment, Pass
from amptui.session.death import EngineDeath
from amptui.session.output_lines import OutputLine
from amptui.session.run_state import RunState

#: `done` also where the result was bad; `refused`: it could not be run; `failed`: the engine or its process did.
StageStatus = Literal["running", "done", "refused", "cancelled", "failed"]
EngineStatus = Literal["starting", "ready", "failed", "ended", "dead"]

#: So many trips of a trial are held.
TRIPS = 200


@dataclass(frozen=True, kw_only=True)
class CaseState:
    """One evaluation case: in the baseline, in the last trial, and after each run's stretch."""

    baseline: told.BaselineCaseRun | None = None
    trial: told.TrialCaseRun | None = None
    final: Mapping[Pass, CaseFigures] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrialState:
    """One trial. `trips` holds the last `TRIPS` of `tripped`; `phases` are those of the iteration stepped through."""

    started: told.TrialStarted
    run: RunState = field(default_factory=RunState)
    phases: tuple[told.PhaseDone, ...] = ()
    trips: tuple[told.GuardTripped, ...] = ()
    tripped: int = 0
    interventions: tuple[told.Intervened, ...] = ()
    diagnoses: tuple[told.Diagnosed, ...] = ()
    #: The last figures by layer of each update.
    layers: Mapping[str, told.LayersMeasured] = field(default_factory=dict)
    done: told.TrialDone | None = None
    verdict: told.VerdictReached | None = None
    cases: Mapping[str, told.TrialCaseRun] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return self.started.trial


@dataclass(frozen=True, kw_only=True)
class LeftPolicies:
    """The project's own policy, and that of the last trial under it."""

    own: Policy
    last: Policy


@dataclass(frozen=True, kw_only=True)
class SessionState:
    """A session after some of its events. What belongs to the opened project starts anew when one is opened."""

    # The engine.
    engine: EngineStatus = "starting"
    pid: int | None = None
    environment: Environment | None = None
    failure: told.EngineFailed | None = None
    death: EngineDeath | None = None
    goodbye: str | None = None
    # Where it is.
    stage: StageName | None = None
    stages: Mapping[StageName, StageStatus] = field(default_factory=dict)
    progress: told.Progressed | None = None
    doing: str = ""
    paused: told.Paused | None = None
    #: What the stage measure does or did last; None once another stage has begun.
    task: told.Task | None = None
    # The project.
    project: told.ProjectOpened | None = None
    refusal: told.Refused | None = None
    remarks: tuple[told.Remarked, ...] = ()
    probes: tuple[told.Probed, ...] = ()
    cases: Mapping[str, CaseState] = field(default_factory=dict)
    failures: tuple[told.CodeFailed, ...] = ()
    # The baseline.
    repeat: told.RepeatProved | None = None
    baseline: told.BaselineDone | None = None
    baseline_run: RunState = field(default_factory=RunState)
    forecast: told.ForecastMade | None = None
    # The criteria: those in force, and every revision of the session.
    proposed: told.CriteriaProposed | None = None
    locked: told.CriteriaLocked | None = None
    revisions: tuple[told.CriteriaLocked, ...] = ()
    # Trials, the last one last, and what the session keeps.
    trials: tuple[TrialState, ...] = ()
    #: How many of them ran before the project was opened last: by another engine, maybe of other code.
    earlier_trials: int = 0
    #: The policies when the project was opened again; None before that.
    left: LeftPolicies | None = None
    checkpoints: tuple[told.CheckpointWritten, ...] = ()
    retained: tuple[told.CaseRetained, ...] = ()
    replayed: tuple[told.CaseReplayed, ...] = ()
    #: By trial.
    precision: Mapping[int, told.PrecisionMapped] = field(default_factory=dict)
    measured: Mapping[int, told.Measured] = field(default_factory=dict)
    seeds: told.SeedsMeasured | None = None
    found_cases: told.CasesFound | None = None
    fell_back: told.FellBack | None = None
    # What the project's code printed.
    output: tuple[OutputLine, ...] = ()
    output_lines: int = 0
    #: Whether an engine only replays something now: nothing but what came of it is taken in.
    aside: bool = False
    #: How many events were reduced.
    events: int = 0

    @property
    def busy(self) -> bool:
        """Whether the engine works on a stage and is not paused."""
        return self.engine == "ready" and self.paused is None and "running" in self.stages.values()

    @property
    def obstacle(self) -> told.Refused | None:
        """The refusal that keeps the project from being judged; one of a measurement or of finding cases does not."""
        return self.refusal if self.task is None else None

    @property
    def trial(self) -> TrialState | None:
        """The last trial."""
        return self.trials[-1] if self.trials else None

    @property
    def verdict(self) -> told.VerdictReached | None:
        """The last trial's verdict."""
        return self.trials[-1].verdict if self.trials else None

    @property
    def policy(self) -> Policy | None:
        """What a further trial is under: the last one's since the project was opened, or what it is opened with.

        A project that is opened again with the policy and dtype that it had goes on where the last trial was: with the
        modules that were mended, say, after its engine died.
        """
        if len(self.trials) > self.earlier_trials:
            return self.trials[-1].started.policy
        own = self.project.policy if self.project is not None else None
        if own is not None and self.left is not None and self.left.own == own and self.left.last.dtype == own.dtype:
            return self.left.last
        return own

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.verdict.rows if self.verdict is not None else ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those of the verdict; of the refusal where the project could not be judged."""
        if self.verdict is not None:
            return self.verdict.findings
        return self.refusal.findings if self.refusal is not None else ()

    @property
    def interventions(self) -> int:
        """How often the user did in the last trial what an unattended run would not."""
        if self.verdict is not None:
            return self.verdict.interventions
        return len(self.trials[-1].interventions) if self.trials else 0
