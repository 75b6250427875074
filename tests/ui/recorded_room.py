"""An engine that only tells what was recorded: the screen takes it for a live one. No torch, no process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from amptui.protocol.commands import Command
from amptui.protocol.events import Event
from amptui.session.death import EngineDeath
from amptui.session.folder import SessionFolder
from amptui.ui.app import AmptuiApp
from amptui.ui.start import Start


class RecordedRoom:
    """Tells `events` as soon as the screen asks for an engine, keeps what the screen sends."""

    can_start = True

    def __init__(self, events: Sequence[Event | EngineDeath]) -> None:
        self.events = events
        self.sent: list[Command] = []
        self.connected = True
        self.restarted = 0
        self.deliver: Callable[[Event | EngineDeath], None] = lambda _: None

    def start(self) -> None:
        for event in self.events:
            if isinstance(event, EngineDeath):
                self.connected = False
            self.deliver(event)

    def send(self, command: Command) -> None:
        self.sent.append(command)

    async def restart(self) -> None:
        self.restarted += 1

    async def end(self, patience: float = 0.0) -> None:
        self.connected = False

    def leave(self) -> None:
        self.connected = False


def recorded_app(events: Sequence[Event | EngineDeath], **start: Any) -> tuple[AmptuiApp, RecordedRoom]:
    """The app on `events`; run it with `run_test`."""
    folder = SessionFolder(Path(tempfile.gettempdir()) / "20260101-120000-tiny-0000")
    room = RecordedRoom(events)

    def made(deliver: Callable[[Event | EngineDeath], None]) -> Any:
        room.deliver = deliver
        return room

    return AmptuiApp(Start(how="run", folder=folder, **start), room=made), room


def screen_text(app: AmptuiApp) -> str:
    """What the screen shows, line by line."""
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)
