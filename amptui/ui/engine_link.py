"""The screen's line to its engine: one thread reads, the event loop gets what came in small batches.

The thread waits in `EngineProcess.receive`, which tells a death, a silence and another client's arrival apart. An
engine that floods is held back here, so that a key is answered while it does.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from amptui.protocol.channel import ChannelError
from amptui.protocol.codec import ProtocolError
from amptui.protocol.commands import Command
from amptui.protocol.events import Event
from amptui.session.process import Detached, EngineDeath, EngineProcess

Told = Event | EngineDeath | Detached

#: Seconds of the loop's time that a batch may take before keys and paints have their turn.
SLICE = 0.010
_WAITING = 2000
_WAKE_S = 0.25


class EngineLink:
    """Reads `engine` until it ends, and calls `deliver` in `loop` with each thing that it told."""

    def __init__(self, engine: EngineProcess, deliver: Callable[[Told], None], loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self._deliver = deliver
        self._loop = loop
        # What `deliver` needs of the context that this is made in: the framework looks for its app there.
        self._context = contextvars.copy_context()
        #: What came, each with the number of the last event that had come by then.
        self._arrived: deque[tuple[Told, int]] = deque()
        #: The number of the last event that was delivered; -1 before the first.
        self.delivered = -1
        self._scheduled = threading.Event()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._read, name="amptui-engine", daemon=True)
        self._thread.start()

    def send(self, command: Command) -> None:
        self.engine.send(command)

    def close(self) -> None:
        """Lets go of the engine, which pauses at its next phase and waits for another client."""
        self._leave()
        self.engine.close()

    def stop(self, patience: float) -> None:
        """Ends the engine: asks, then SIGTERM, then SIGKILL, each after `patience` seconds. Blocks."""
        self._leave()
        self.engine.stop(patience)

    def _leave(self) -> None:
        self._leaving.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _read(self) -> None:
        while not self._leaving.is_set():
            try:
                told = self.engine.receive(_WAKE_S)
            except Detached as detached:
                self._hand_over(detached)
                return
            except (ChannelError, ProtocolError):  # a line that is none: what the process does next tells the rest
                continue
            if told is not None:
                self._hand_over(told)
            elif self.engine.goodbye is not None:
                return
            if isinstance(told, EngineDeath):
                return

    def _hand_over(self, told: Told) -> None:
        self._arrived.append((told, self.engine.last_seq))
        if not self._scheduled.is_set():
            self._scheduled.set()
            with suppress(RuntimeError):  # the loop has ended with the app
                self._loop.call_soon_threadsafe(self._take, context=self._context)
        while len(self._arrived) > _WAITING and not self._leaving.is_set():
            time.sleep(0.005)

    def _take(self) -> None:
        until = time.perf_counter() + SLICE
        while self._arrived and not self._leaving.is_set():
            told, self.delivered = self._arrived.popleft()
            self._deliver(told)
            if time.perf_counter() > until:
                self._loop.call_later(0.002, self._take, context=self._context)
                return
        self._scheduled.clear()
        if self._arrived and not self._leaving.is_set():  # came between the last look and the clearing
            self._scheduled.set()
            self._loop.call_soon(self._take, context=self._context)
