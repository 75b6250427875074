"""A session as one value: what every screen, report and result shows, computed from its events alone.

``reduce(state, event)`` is pure, so a recorded session fed through it again is that session. Series over iterations are
not kept here (a view keeps as many points as it draws); counts, the last record and all that is rare are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from amptui.findings.finding import Finding
from amptui.findings.judgement import Row
from amptui.project import Policy
from amptui.protocol import events as told
from amptui.protocol.events import Event, StageName
from amptui.protocol.facts import CaseFigures, Environment, Pass
from amptui.session.death import EngineDeath
from amptui.session.output_lines import OutputLine, continued
from amptui.session.run_state import RunState as RunState  # noqa: PLC0414 - a part of the state, had from here too
from amptui.session.run_state import advanced, exact

#: `done` also where the result was bad; `refused`: it could not be run; `failed`: the engine or its process did.
StageStatus = Literal["running", "done", "refused", "cancelled", "failed"]
EngineStatus = Literal["starting", "ready", "failed", "ended", "dead"]

OUTPUT_LINES = 500
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
        """The policy of the last trial since the project was opened, or what it is opened with."""
        if len(self.trials) > self.earlier_trials:
            return self.trials[-1].started.policy
        return self.project.policy if self.project is not None else None

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


def reduce(state: SessionState, event: Event) -> SessionState:
    """`state` after `event`. An event that it does not know changes nothing but the count."""
    if state.aside and not isinstance(event, _ASIDE):
        return replace(state, events=state.events + 1)
    step = _STEPS.get(type(event))
    changed = state if step is None else step(state, event)
    return replace(changed, events=state.events + 1)


def died(state: SessionState, death: EngineDeath) -> SessionState:
    """`state` once its engine's process has ended without a goodbye."""
    return replace(_ended(state, "failed"), engine="dead", death=death)


def _engine_started(state: SessionState, event: told.EngineStarted) -> SessionState:
    return replace(
        _ended(state, "failed"),  # an engine before it may have died in the middle
        engine="ready",
        pid=event.pid,
        environment=state.environment or event.environment,  # the project's own follows when it is opened
        aside=False,
        failure=None,
        death=None,
        goodbye=None,
    )


def _stage_started(state: SessionState, event: told.StageStarted) -> SessionState:
    if event.aside:
        return replace(state, aside=True, refusal=None)
    state = replace(_ended(state, "done"), aside=False, task=event.task)
    if event.stage == "project":
        state = replace(_without_project(state), earlier_trials=len(state.trials))
    if event.stage == "baseline":
        state = replace(state, baseline=None, baseline_run=RunState(), repeat=None, proposed=None, forecast=None)
    stage = state.stage if event.task == "cases" else event.stage  # finding cases is no step of the way
    return replace(state, stage=stage, stages={**state.stages, event.stage: "running"}, refusal=None)


def _without_project(state: SessionState) -> SessionState:
    """What belongs to the session as a whole, and its history."""
    return replace(
        SessionState(),
        **{
            name: getattr(state, name)
            for name in (
                "engine",
                "pid",
                "environment",
                "revisions",
                "trials",
                "precision",
                "measured",
                "checkpoints",
                "retained",
                "output",
                "output_lines",
            )
        },
    )


def _ended(state: SessionState, status: StageStatus) -> SessionState:
    """With `status` for whatever was running."""
    stages = {stage: status if now == "running" else now for stage, now in state.stages.items()}
    if state.task == "cases":  # which has measured nothing
        stages.pop("measure", None)
        if state.measured or state.seeds is not None:
            stages["measure"] = "done"
    return replace(state, stages=stages, progress=None, doing="", paused=None)


def _stage_ended(state: SessionState, event: told.StageEnded) -> SessionState:
    # Refused and cancelled stages have said so before; `stage` stays, as the trial's command ends in the verdict.
    return _ended(state, "done" if event.completed else "failed")


def _project_opened(state: SessionState, event: told.ProjectOpened) -> SessionState:
    cases = {case.id: CaseState() for case in event.cases}
    return replace(state, project=event, environment=event.environment, cases=cases)


def _refused(state: SessionState, event: told.Refused) -> SessionState:
    if state.aside:
        return replace(state, refusal=event)
    return replace(_ended(state, "refused"), refusal=event)


def _cancelled(state: SessionState, event: told.Cancelled) -> SessionState:
    state = _ended(state, "cancelled")
    if state.task == "cases":
        return state
    return replace(state, stages={**state.stages, event.stage: "cancelled"})


def _engine_failed(state: SessionState, event: told.EngineFailed) -> SessionState:
    return replace(_ended(state, "failed"), engine="failed", failure=event)


def _goodbye(state: SessionState, event: told.Goodbye) -> SessionState:
    return replace(_ended(state, "done"), engine="ended", goodbye=event.why)


def _output(state: SessionState, event: told.OutputCaptured) -> SessionState:
    lines = continued(state.output, event.stream, event.text)
    more = len(lines) - len(state.output)
    return replace(state, output=lines[-OUTPUT_LINES:], output_lines=state.output_lines + more)


def _case(state: SessionState, case: str, **changed: Any) -> SessionState:
    now = state.cases.get(case, CaseState())
    return replace(state, cases={**state.cases, case: replace(now, **changed)})


def _final_case(state: SessionState, event: told.FinalCaseRun) -> SessionState:
    now = state.cases.get(event.figures.case, CaseState())
    return _case(state, event.figures.case, final={**now.final, event.run: event.figures})


def _criteria_locked(state: SessionState, event: told.CriteriaLocked) -> SessionState:
    # A new engine may go on under the revision that was locked last: it is told again.
    again = any(revision.revision == event.revision for revision in state.revisions)
    return replace(state, locked=event, revisions=state.revisions if again else (*state.revisions, event))


def _trial_started(state: SessionState, event: told.TrialStarted) -> SessionState:
    cases = {
        name: replace(case, trial=None, final={run: figures for run, figures in case.final.items() if run != "trial"})
        for name, case in state.cases.items()
    }
    return replace(
        state,
        trials=(*state.trials, TrialState(started=event)),
        cases=cases,
        fell_back=None,
    )


def _trial_case(state: SessionState, event: told.TrialCaseRun) -> SessionState:
    state = _case(state, event.figures.case, trial=event)
    trial = state.trial
    return state if trial is None else _trial(state, cases={**trial.cases, event.figures.case: event})


def _trial(state: SessionState, **changed: Any) -> SessionState:
    if not state.trials:
        return state
    return replace(state, trials=(*state.trials[:-1], replace(state.trials[-1], **changed)))


def _iteration(state: SessionState, event: told.IterationDone) -> SessionState:
    if event.run == "baseline":
        return replace(state, baseline_run=advanced(state.baseline_run, event.record))
    trial = state.trial
    return state if trial is None else _trial(state, run=advanced(trial.run, event.record))


def _baseline_done(state: SessionState, event: told.BaselineDone) -> SessionState:
    run = exact(state.baseline_run, event.counts, None)
    return replace(state, baseline=event, baseline_run=run)


def _phase(state: SessionState, event: told.PhaseDone) -> SessionState:
    trial = state.trial
    if trial is None:
        return state
    same = bool(trial.phases) and trial.phases[-1].step == event.step
    return _trial(state, phases=(*trial.phases, event) if same else (event,))


def _tripped(state: SessionState, event: told.GuardTripped) -> SessionState:
    trial = state.trial
    if trial is None:
        return state
    return _trial(state, trips=(*trial.trips, event)[-TRIPS:], tripped=trial.tripped + 1)


def _intervened(state: SessionState, event: told.Intervened) -> SessionState:
    trial = state.trial
    return state if trial is None else _trial(state, interventions=(*trial.interventions, event))


def _layers(state: SessionState, event: told.LayersMeasured) -> SessionState:
    trial = state.trial
    return state if trial is None else _trial(state, layers={**trial.layers, event.update: event})


def _diagnoses(state: SessionState) -> tuple[told.Diagnosed, ...]:
    return state.trial.diagnoses if state.trial is not None else ()


def _trial_done(state: SessionState, event: told.TrialDone) -> SessionState:
    trial = state.trial
    if trial is None:
        return state
    return _trial(state, done=event, run=exact(trial.run, event.counts, event.scaler))


#: What is taken in while something is replayed beside the session.
_ASIDE = (
    told.EngineStarted,
    told.StageStarted,
    told.Refused,
    told.CaseReplayed,
    told.OutputCaptured,
    told.EngineFailed,
    told.Goodbye,
)

_STEPS: Mapping[type[Event], Callable[[SessionState, Any], SessionState]] = {
    told.EngineStarted: _engine_started,
    told.ProjectOpened: _project_opened,
    told.Remarked: lambda state, event: replace(state, remarks=(*state.remarks, event)),
    told.Refused: _refused,
    told.Probed: lambda state, event: replace(state, probes=(*state.probes, event)),
    told.StageStarted: _stage_started,
    told.StageEnded: _stage_ended,
    told.Progressed: lambda state, event: replace(state, progress=event),
    told.OutputCaptured: _output,
    told.CheckpointWritten: lambda state, event: replace(state, checkpoints=(*state.checkpoints, event)),
    told.RepeatProved: lambda state, event: replace(state, repeat=event),
    told.BaselineCaseRun: lambda state, event: _case(state, event.figures.case, baseline=event),
    told.IterationDone: _iteration,
    told.BaselineDone: _baseline_done,
    told.CriteriaProposed: lambda state, event: replace(state, proposed=event),
    told.CriteriaLocked: _criteria_locked,
    told.TrialStarted: _trial_started,
    told.TrialCaseRun: _trial_case,
    told.PhaseDone: _phase,
    told.GuardTripped: _tripped,
    told.CaseRetained: lambda state, event: replace(state, retained=(*state.retained, event)),
    told.Intervened: _intervened,
    told.Diagnosed: lambda state, event: _trial(state, diagnoses=(*_diagnoses(state), event)),
    told.LayersMeasured: _layers,
    told.CaseReplayed: lambda state, event: replace(state, replayed=(*state.replayed, event)),
    told.CodeFailed: lambda state, event: replace(state, failures=(*state.failures, event)),
    told.FinalCaseRun: _final_case,
    told.TrialDone: _trial_done,
    told.VerdictReached: lambda state, event: _trial(state, verdict=event),
    told.ForecastMade: lambda state, event: replace(state, forecast=event),
    told.PrecisionMapped: lambda state, event: replace(state, precision={**state.precision, event.trial: event}),
    told.Measured: lambda state, event: replace(state, measured={**state.measured, event.trial: event}),
    told.SeedsMeasured: lambda state, event: replace(state, seeds=event),
    told.CasesFound: lambda state, event: replace(state, found_cases=event),
    told.FellBack: lambda state, event: replace(state, fell_back=event),
    told.Paused: lambda state, event: replace(state, paused=event, doing=""),
    told.Running: lambda state, event: replace(state, paused=None, doing=event.what),
    told.Cancelled: _cancelled,
    told.EngineFailed: _engine_failed,
    told.Goodbye: _goodbye,
}
