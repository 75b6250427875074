"""A session's state computed from its events alone.

``reduce(state, event)`` is pure, so a recorded session fed through it again is that session.
"""

# ruff: noqa: PLC0414 - "as" says that these names are meant to be had from here too

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from amptui.protocol import events as told
from amptui.protocol.events import Event
from amptui.session.death import EngineDeath
from amptui.session.output_lines import continued
from amptui.session.run_state import RunState as RunState
from amptui.session.run_state import advanced, exact
from amptui.session.session_state import TRIPS, LeftPolicies
from amptui.session.session_state import CaseState as CaseState
from amptui.session.session_state import EngineStatus as EngineStatus
from amptui.session.session_state import SessionState as SessionState
from amptui.session.session_state import StageStatus as StageStatus
from amptui.session.session_state import TrialState as TrialState

#: So many lines of the project's output are held.
OUTPUT_LINES = 500


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
        left = state.left
        if state.project is not None and state.policy is not None:
            left = LeftPolicies(own=state.project.policy, last=state.policy)
        state = replace(_without_project(state), earlier_trials=len(state.trials), left=left)
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
