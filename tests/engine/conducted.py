"""The conductor in this process: what the engine process runs, without the process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch

from amptui import Project
from amptui.engine import opened_project as opening
from amptui.engine.conductor import Conductor
from amptui.engine.inbox import Inbox
from amptui.protocol.commands import Command, LockCriteria, OpenProject, RunBaseline, RunTrial
from amptui.protocol.events import Event, ProjectOpened, Refused
from amptui.session.folder import SessionFolder
from amptui.session.state import SessionState, reduce
from amptui.spec.own_code import Line
from amptui.spec.reference import Reference
from amptui.spec.resolve import LoadedProject

E = TypeVar("E", bound=Event)

torch.set_num_threads(1)


@dataclass
class Recorder:
    """An outbox without a store or a client."""

    events: list[Event] = field(default_factory=list)
    store: None = None

    def send(self, event: Event) -> int:
        self.events.append(event)
        return len(self.events)


@dataclass
class Conducted:
    conductor: Conductor
    recorder: Recorder
    inbox: Inbox

    def do(self, *commands: Command) -> Conducted:
        for command in commands:
            self.conductor.carry_out(command)
        return self

    def judge(self, **trial: object) -> Conducted:
        return self.do(RunBaseline(), LockCriteria(), RunTrial(**trial))  # type: ignore[arg-type]

    @property
    def state(self) -> SessionState:
        state = SessionState()
        for event in self.recorder.events:
            state = reduce(state, event)
        return state

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.recorder.events if isinstance(event, kind)]

    def one(self, kind: type[E]) -> E:
        [event] = self.all(kind)
        return event

    @property
    def refusals(self) -> list[str]:
        return [refused.code for refused in self.all(Refused)]


def opened_by(project: Project, folder: Path, monkeypatch: object, **given: object) -> Conducted:
    """A conductor that has opened `project`, without a file that defines it."""
    recorder, inbox = Recorder(), Inbox("wait")
    session = SessionFolder.create(folder / "session")
    conductor = Conductor(inbox, recorder, session)  # type: ignore[arg-type]
    loaded = LoadedProject(project=project, defined_at=Line(__file__, 1), sources=(), own=None)  # type: ignore[arg-type]
    monkeypatch.setattr(opening, "load_project", lambda *_args, **_kwargs: loaded)  # type: ignore[attr-defined]
    reference = Reference(kind="file", target=__file__, attribute="project", text="test")
    monkeypatch.setattr(opening, "parse_reference", lambda *_args, **_kwargs: reference)  # type: ignore[attr-defined]
    done = Conducted(conductor, recorder, inbox)
    return done.do(OpenProject(spec="test", folder=str(folder), **given))  # type: ignore[arg-type]


def is_open(conducted: Conducted) -> bool:
    return bool(conducted.all(ProjectOpened))
