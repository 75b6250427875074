"""What the engine is asked: commands in their order, and the flags that a running stage looks at between phases."""

from __future__ import annotations

import queue
import time
from typing import Literal

from amptui.protocol.commands import Cancel, Close, Command, Pause

_WAIT_S = 0.5

OnDisconnect = Literal["wait", "stop"]


class Inbox:
    """Commands from whoever is attached.

    `Pause` and `Cancel` overtake the queue: they set a flag that a running stage takes between phases. Where nothing
    runs, `next` hands them out like any command. `Close`, a signal to end, and a client that goes (if the engine is to
    stop then) set `closing`, which stays; `next` then gives `Close`.

    Signal handlers may call every method but `next`: nothing here takes a lock that the interrupted code could hold.
    """

    def __init__(self, on_disconnect: OnDisconnect = "wait") -> None:
        self.on_disconnect: OnDisconnect = on_disconnect
        #: Whether a client is attached.
        self.connected = False
        #: When the last client left (monotonic seconds); None while one is attached.
        self.alone_since: float | None = time.monotonic()
        #: Why the engine is to end after this phase, in words; None to go on.
        self.closing: str | None = None
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()  # its `put` is reentrant
        self._pause = False
        self._cancel = False

    def put(self, command: Command) -> None:
        if isinstance(command, Close):
            self.close("asked to")
        elif isinstance(command, Pause):
            self._pause = True
            self._commands.put(None)
        elif isinstance(command, Cancel):
            self._cancel = True
            self._commands.put(None)
        else:
            self._commands.put(command)

    def close(self, why: str) -> None:
        """Ends the engine after the running phase; the first reason counts."""
        self.closing = self.closing or why
        self._commands.put(None)

    def client_came(self) -> None:
        self.connected, self.alone_since = True, None

    def client_left(self) -> None:
        """The engine finishes its phase, then waits for another client or ends."""
        self.connected, self.alone_since = False, time.monotonic()
        if self.on_disconnect == "stop":
            self.close("the client is gone")
        else:
            self._pause = True
            self._commands.put(None)

    def next(self, timeout: float | None = None) -> Command | None:
        """The next command; None if none came within `timeout` seconds. Never waits once `closing` is set."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            command = self._take_now()
            if command is not None:
                return command
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            try:
                # Never for long: a signal that comes just before the wait would be handled only after it.
                woken = self._commands.get(timeout=_WAIT_S if left is None else min(left, _WAIT_S))
            except queue.Empty:
                continue
            if woken is not None:
                return Close() if self.closing is not None else woken

    def poll(self) -> Command | None:
        """The next command if there is one now."""
        return self.next(timeout=0)

    @property
    def pause_asked(self) -> bool:
        """Whether a pause is asked for; stays until `take_pause`."""
        return self._pause

    @property
    def cancel_asked(self) -> bool:
        """Whether the running stage is to end at its next safe point; stays until `take_cancel`."""
        return self._cancel

    def take_pause(self) -> bool:
        asked, self._pause = self._pause, False
        return asked

    def take_cancel(self) -> bool:
        asked, self._cancel = self._cancel, False
        return asked

    def _take_now(self) -> Command | None:
        if self.closing is not None:
            return Close()
        while True:
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                break
            if command is not None:
                return command
        if self.take_cancel():
            return Cancel()
        return Pause() if self.take_pause() else None
