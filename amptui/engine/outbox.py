"""What the engine tells: numbered, recorded, then sent, without ever making the trainer wait for a client."""

from __future__ import annotations

import os
import threading
import time as clock
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import amptui
from amptui.protocol.channel import ChannelError, Connection
from amptui.protocol.codec import encode, encode_envelope
from amptui.protocol.events import Event
from amptui.protocol.greeting import Dropped, Hello, Turned, encode_greeting
from amptui.session.errors import SessionError
from amptui.session.store import Store

#: Telemetry waiting for a client that does not read; above it, telemetry is dropped with a count.
TELEMETRY_BYTES = 2 * 2**20
#: All that may wait; above it the client is given up. It can attach again and read the store.
WAITING_BYTES = 64 * 2**20
_BATCH_BYTES = 2**16


class Outbox:
    """The one way out for events; any thread may call `send`.

    A durable event is committed to the store before `send` returns and before any client sees it.
    """

    def __init__(self, store: Store | None, *, on_gone: Callable[[Connection], object] = lambda _: None) -> None:
        """`on_gone(connection)` is called, on the sender's thread, when a client is given up."""
        self.store = store
        self.on_gone = on_gone
        self._owner = os.getpid()
        self._seq = -1 if store is None else store.last_seq
        self._order = threading.Lock()  # number, record and queue as one step: the line keeps the store's order
        self._queue = threading.Condition()
        self._lines: deque[str] = deque()
        self._bytes = 0
        self._dropped = 0
        self._connection: Connection | None = None
        self._closing = False
        self._sending = False
        self._sender = threading.Thread(target=self._run, name="amptui-sender", daemon=True)
        self._sender.start()

    def send(self, event: Event) -> int:
        """Records `event`, then queues it for the client; gives its sequence number. Raises SessionError."""
        body, kind = encode(event), type(event)
        with self._order:
            time = clock.time()
            # Taken before it is recorded: a signal handler of the project may raise anywhere from here on, and a number
            # that the store may know already must not be used again.
            self._seq += 1
            if self.store is not None:
                self.store.record(self._seq, time, kind.__name__, body, durable=kind.durable)
            self._enqueue(encode_envelope(self._seq, time, body), durable=kind.durable)
            return self._seq

    def say_last(self, event: Event) -> None:
        """Sends `event` even where the store is what failed: recorded if possible, told in any case."""
        try:
            self.send(event)
        except SessionError:
            with self._order:
                self._seq += 1
                self._enqueue(encode_envelope(self._seq, clock.time(), encode(event)), durable=True)

    def attach(self, connection: Connection) -> None:
        """From here on events go to `connection`; its first line says up to where the store has them already."""
        with self._order:
            if self.store is not None:
                with suppress(SessionError):  # the engine says so at its next event
                    self.store.flush()
            hello = Hello(pid=self._owner, amptui=amptui.__version__, history=self._seq)
            with self._queue:
                self._lines.clear()
                self._bytes = self._dropped = 0
                self._connection = connection
            self._enqueue(encode_greeting(hello), durable=True)

    def detach(self, connection: Connection) -> None:
        """Sends nothing more to `connection`."""
        with self._queue:
            if self._connection is connection:
                self._connection = None
                self._lines.clear()
                self._bytes = 0
                self._queue.notify_all()

    def turn_out(self, connection: Connection, why: str, by: int | None) -> None:
        """Ends what is sent to `connection`, with the reason if it is still reading, and hangs up."""
        self.detach(connection)
        with self._queue:
            quiet = self._queue.wait_for(lambda: not self._sending, 0.2)
        if quiet:
            turn_away(connection, why, by)
        connection.shutdown()

    def flush(self, timeout: float = 5.0) -> bool:
        """Waits until the client has been sent everything; False if it did not read in time."""
        with self._queue:
            done = lambda: self._connection is None or (not self._lines and not self._sending)  # noqa: E731
            return self._queue.wait_for(done, timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Sends what is waiting, then ends the sender."""
        self.flush(timeout)
        with self._queue:
            self._closing = True
            connection = self._connection
            self._queue.notify_all()
        if connection is not None and self._sending:
            connection.shutdown()
        self._sender.join(timeout=1.0)

    def _enqueue(self, line: str, *, durable: bool) -> None:
        with self._queue:
            if self._connection is None or self._closing:
                return
            if not durable and self._bytes + len(line) > TELEMETRY_BYTES:
                self._dropped += 1
                return
            if self._dropped:
                self._push(encode_greeting(Dropped(events=self._dropped)))
                self._dropped = 0
            self._push(line)
            if self._bytes > WAITING_BYTES:
                self._connection.shutdown()  # the sender finds out and gives it up
            self._queue.notify_all()

    def _push(self, line: str) -> None:
        self._lines.append(line)
        self._bytes += len(line)

    def _run(self) -> None:
        while True:
            with self._queue:
                self._queue.wait_for(lambda: self._lines or self._closing)
                if not self._lines:
                    return
                batch = self._next_lines()
                connection = self._connection
                self._sending = connection is not None
            if connection is None:
                continue
            try:
                connection.send(batch)
            except ChannelError:
                self.detach(connection)
                self.on_gone(connection)
            finally:
                with self._queue:
                    self._sending = False
                    self._queue.notify_all()

    def _next_lines(self) -> str:
        lines: list[str] = []
        size = 0
        while self._lines and (not lines or size + len(self._lines[0]) < _BATCH_BYTES):
            lines.append(self._lines.popleft())
            size += len(lines[-1])
        self._bytes -= size
        return "\n".join(lines)


def turn_away(connection: Connection, why: str, by: int | None = None) -> None:
    """Tells a client that it is not (or no longer) attached, and hangs up."""
    with suppress(ChannelError):  # it may be gone already
        connection.send(encode_greeting(Turned(why=why, by=by)), timeout=0.2)
    connection.shutdown()
