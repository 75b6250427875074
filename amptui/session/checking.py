"""`amptui check` as a client: one engine, the stages in their order, nobody in between."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from amptui.protocol.commands import (
    Command,
    LockCriteria,
    Measure,
    MeasureSeeds,
    OpenProject,
    RunBaseline,
    RunTrial,
)
from amptui.protocol.events import Event, StageEnded
from amptui.session.death import EngineDeath
from amptui.session.folder import SessionFolder
from amptui.session.process import EngineProcess
from amptui.session.state import SessionState, died, reduce
from amptui.spec.policies import coarsest
from amptui.spec.run_settings import RunSettings

Told = Callable[["Event | EngineDeath", SessionState], None]


def check(
    settings: RunSettings,
    folder: SessionFolder,
    *,
    on_event: Told,
    policies: Sequence[Mapping[str, object]] = (),
    measure: bool = False,
) -> SessionState:
    """Takes the project of `settings` through baseline, locked criteria and unattended trial.

    `policies` are tried one after the other under the same criteria (none: the project's own alone). With `measure`
    every accepted one is timed, and FP32 is repeated under other seeds. Returns the session's last state, in which a
    verdict, a refusal or the engine's death says how it ended.
    Raises EngineUnavailable if no engine could be started; `KeyboardInterrupt` ends the engine and passes on.
    """
    state = SessionState()
    trials = [RunTrial(policy=dict(given), planned=True) for given in policies] or [RunTrial()]
    with EngineProcess.start(settings.python or sys.executable, folder, on_disconnect="stop") as engine:
        opened = open_command(settings, criteria_dtype=coarsest(policies))
        first: tuple[Command, ...] = (opened, RunBaseline(), LockCriteria())
        for command in first:
            state, completed = carried_out(engine, command, state, on_event)
            if not completed:
                return state
        for trial in trials:  # one that is refused does not keep the others from running
            state, _ = carried_out(engine, trial, state, on_event)
            if state.engine != "ready":
                return state
        for command in measurements(state) if measure else ():
            state, _ = carried_out(engine, command, state, on_event)
            if state.engine != "ready":
                return state
    return state


def measurements(state: SessionState) -> Iterator[Command]:
    """What is to be measured: every accepted trial, and the yardstick if something is trained."""
    for trial in state.trials:
        if trial.verdict is not None and trial.verdict.verdict == "accept":
            yield Measure(trial=trial.number)
    if state.project is not None and state.project.updates and state.trials:
        yield MeasureSeeds()


def carried_out(
    engine: EngineProcess, command: Command, state: SessionState, on_event: Told
) -> tuple[SessionState, bool]:
    """Sends `command` and takes in what the engine tells until it has ended the stage, or itself."""
    engine.send(command)
    while True:
        event = engine.receive()
        if event is None:  # its goodbye has been received
            return state, False
        state = died(state, event) if isinstance(event, EngineDeath) else reduce(state, event)
        on_event(event, state)
        if isinstance(event, EngineDeath):
            return state, False
        if isinstance(event, StageEnded):
            return state, event.completed


def open_command(settings: RunSettings, *, criteria_dtype: str | None = None) -> OpenProject:
    """What the engine is asked to open."""
    assert settings.entry is not None, "the command line or amptui.yaml names an entry"
    return OpenProject(
        spec=settings.entry.absolute,
        folder=settings.app_dir or str(Path.cwd()),
        arguments=dict(settings.args or {}),
        app_dir=settings.app_dir,
        device=settings.device,
        iterations=settings.iterations,
        policy=dict(settings.policy),
        criteria=dict(settings.criteria),
        criteria_dtype=criteria_dtype,
    )
