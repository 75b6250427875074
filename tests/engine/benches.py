"""Opened projects on a bench, without a conductor or a session's engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from amptui import Policy, Project
from amptui.engine.bench import Bench
from amptui.engine.precision import PrecisionSettings
from amptui.engine.snapshot import Snapshot
from amptui.protocol.events import Event
from amptui.session.folder import SessionFolder
from tests.engine.projects import opened

E = TypeVar("E", bound=Event)


@dataclass
class Told:
    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


def bench_of(project: Project, folder: Path, policy: Policy | None = None) -> Bench:
    live = opened(project, folder / "batches")
    start = Snapshot.take(live.state)
    return Bench(
        live=live,
        start=start,
        rng=start.rng,
        precision=PrecisionSettings.current(),
        policy=policy or project.policy or Policy(),
        folder=SessionFolder.create(folder / "session"),
        emit=Told(),
        between=lambda: None,
    )


def unchanged(bench: Bench) -> bool:
    """Whether everything is as it was when the bench was made."""
    return bench.start.differences(Snapshot.take(bench.live.state)) is None
