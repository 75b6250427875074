"""The engine behind the screen: started, attached to, replaced, let go or ended, without making the screen wait."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from amptui.protocol import events as told
from amptui.protocol.events import Event
from amptui.session.death import EngineDeath
from amptui.session.errors import SessionError

if TYPE_CHECKING:
    from amptui.protocol.commands import Command, OpenProject
    from amptui.session.folder import SessionFolder
    from amptui.spec.run_settings import RunSettings
    from amptui.ui.engine_link import EngineLink, Told

# What starts and reads engines is imported when there is one to start: after the first paint.

#: Recorded events that are taken in at a time, before keys have their turn.
_SLICE = 200
#: Seconds that an engine which is to be replaced has to end by itself.
_SHORTLY = 0.5
_PATIENTLY = 3.0


class EngineRoom:
    """One session's engine. `deliver` is called in the loop with everything that is told."""

    def __init__(
        self, folder: SessionFolder, settings: RunSettings | None, deliver: Callable[[Event | EngineDeath], None]
    ) -> None:
        self.folder = folder
        self._settings = settings
        self._deliver = deliver
        self._link: EngineLink | None = None
        self._open_next = False
        #: How the session's project was opened, and by which interpreter: what is known after attaching.
        self._opened_with: OpenProject | None = None
        self._python: str | None = None

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def can_start(self) -> bool:
        """Whether it is known what an engine would have to open."""
        return self._settings is not None or self._opened_with is not None

    def send(self, command: Command) -> None:
        if self._link is not None:
            self._link.send(command)

    def start(self) -> None:
        """Starts an engine that opens the project as its first thing; a failure is told as its death."""
        from amptui.session.process import EngineProcess  # noqa: PLC0415
        from amptui.ui.engine_link import EngineLink  # noqa: PLC0415

        python = self._settings.python if self._settings is not None else self._python
        try:
            engine = EngineProcess.start(python or sys.executable, self.folder)
        except SessionError as error:
            self._deliver(EngineDeath(how="not started", words=str(error), last_output=()))
            return
        self._open_next = True
        self._link = EngineLink(engine, self._arrived, asyncio.get_running_loop())

    async def attach(self, *, take_over: bool = False) -> None:
        """Attaches to the session's engine; what happened before is read from the store. Raises SessionError."""
        from amptui.session.process import EngineProcess  # noqa: PLC0415
        from amptui.ui.engine_link import EngineLink  # noqa: PLC0415

        engine = await asyncio.to_thread(EngineProcess.attach, self.folder, take_over=take_over)
        await self.replay(up_to=engine.history)
        self._opened_with = await asyncio.to_thread(_opened_with, self.folder)
        self._link = EngineLink(engine, self._arrived, asyncio.get_running_loop())

    async def replay(self, up_to: int | None = None) -> None:
        """Tells the session's recorded events, up to `up_to`. Raises SessionError where they cannot be read."""
        from amptui.session.history import history  # noqa: PLC0415
        from amptui.session.store import Store  # noqa: PLC0415

        with Store.read(self.folder) as store:
            for number, envelope in enumerate(history(store, up_to=up_to)):
                if isinstance(envelope.event, told.EngineStarted):
                    self._python = envelope.event.environment.executable
                self._deliver(envelope.event)
                if number % _SLICE == _SLICE - 1:
                    await asyncio.sleep(0)

    async def restart(self) -> None:
        """Ends the engine whatever it does, and starts another one for the same session."""
        link = self._link
        await self.end(_SHORTLY)
        if link is not None and link.delivered >= 0:
            self._catch_up(link.delivered)
        self.start()

    def _catch_up(self, after: int) -> None:
        """Tells what the engine recorded in its last moments, when nobody listened any more: its verdict, say."""
        from amptui.session.history import history  # noqa: PLC0415
        from amptui.session.store import Store  # noqa: PLC0415

        with suppress(SessionError), Store.read(self.folder) as store:
            for envelope in history(store, after=after):
                if not isinstance(envelope.event, told.Goodbye):  # another engine follows
                    self._deliver(envelope.event)

    async def end(self, patience: float = _PATIENTLY) -> None:
        """Ends the engine and all that it started."""
        link, self._link = self._link, None
        if link is not None:
            await asyncio.to_thread(link.stop, patience)

    def leave(self) -> None:
        """Lets the engine go; it pauses and waits for `amptui attach`."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _arrived(self, said: Told) -> None:
        if isinstance(said, SessionError):  # detached: another client has taken over
            self.leave()
            self._deliver(told.Goodbye(why=str(said)))
            return
        if isinstance(said, EngineDeath | told.Goodbye):
            self._end_quietly()
        self._deliver(said)
        if isinstance(said, told.EngineStarted) and self._open_next:
            self._open_next = False
            self._open()

    def _open(self) -> None:
        """Has the engine open the project: as the settings say, else as it was opened before."""
        from amptui.session.checking import open_command  # noqa: PLC0415

        if self._settings is not None:
            self.send(open_command(self._settings))
        elif self._opened_with is not None:
            self.send(self._opened_with)

    def _end_quietly(self) -> None:
        """After its last word: the descriptors are closed and remains are cleared, off the loop."""
        link, self._link = self._link, None
        if link is not None:
            asyncio.get_running_loop().run_in_executor(None, link.stop, _SHORTLY)


def _opened_with(folder: SessionFolder) -> OpenProject | None:
    """How the session's project was opened; None where it never was. Raises SessionError where it cannot be read."""
    from amptui.session.recalling import recorded_opening  # noqa: PLC0415

    return recorded_opening(folder)
