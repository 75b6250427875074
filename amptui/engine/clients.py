"""Who is attached: one client at a time, by the line it was started with or by the engine's socket."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from amptui.engine.descriptors import moved_out_of_reach
from amptui.engine.inbox import Inbox
from amptui.engine.outbox import Outbox, turn_away
from amptui.protocol.channel import ChannelClosed, ChannelError, Connection, Listener
from amptui.protocol.codec import ProtocolError, decode
from amptui.protocol.commands import Command
from amptui.protocol.greeting import Attach, decode_greeting
from amptui.session.engine_file import end_processes

#: A client that connects and says nothing is hung up on.
GREETING_S = 5.0
#: How long a phase that runs may still take once the engine is to end and nobody is attached.
ABANDONED_S = 15.0
#: Exit code of an engine whose phase took longer (EX_TEMPFAIL).
ABANDONED = 75


class Clients:
    """Lets clients in and reads what they say, on threads of its own."""

    def __init__(
        self, inbox: Inbox, outbox: Outbox, listener: Listener | None, *, patience: float, mark: str = "none"
    ) -> None:
        """`patience`: seconds without any client after which the engine ends. `mark`: that of all its processes."""
        self._inbox = inbox
        self._outbox = outbox
        self._listener = listener
        self._patience = patience
        self._mark = mark
        self._lock = threading.Lock()
        self._attached: Connection | None = None
        self._attached_pid: int | None = None
        self._closing = False

    def start(self, first: Connection | None, pid: int | None) -> None:
        """Attaches the client that started the engine, then listens for others."""
        if first is not None:
            self._let_in(first, pid)
        threading.Thread(target=self._listen, name="amptui-listener", daemon=True).start()

    def close(self) -> None:
        self._closing = True
        if self._listener is not None:
            self._listener.close()
        with self._lock:
            if self._attached is not None:
                self._attached.shutdown()

    def left(self, connection: Connection) -> None:
        """`connection` is of no use any more."""
        with self._lock:
            if self._attached is not connection:
                return
            self._attached = self._attached_pid = None
        self._outbox.detach(connection)
        connection.shutdown()
        self._inbox.client_left()

    def _listen(self) -> None:
        asked_to_end: float | None = None
        while not self._closing:
            alone = self._inbox.alone_since
            if alone is not None and time.monotonic() - alone > self._patience:
                self._inbox.close(f"no client for {self._patience:.0f} seconds")
            if alone is None or self._inbox.closing is None:
                asked_to_end = None
            elif asked_to_end is None:
                asked_to_end = time.monotonic()
            elif time.monotonic() - asked_to_end > ABANDONED_S:
                self._end_at_once()
            if self._listener is None:
                time.sleep(0.5)
                continue
            try:
                connection = self._listener.accept(timeout=0.5)
            except ChannelError:
                self._listener = None  # user code closed it: the attached client stays, nobody else can come
                continue
            if connection is not None:
                threading.Thread(target=self._greet, args=(connection,), name="amptui-greeter", daemon=True).start()

    def _end_at_once(self) -> None:
        """The project's code does not return, and no client is there to see to it: nothing is left running."""
        if self._listener is not None:
            self._listener.close()
        end_processes(self._mark)
        os._exit(ABANDONED)

    def _greet(self, connection: Connection) -> None:
        try:
            connection.move(moved_out_of_reach)
            line = connection.receive(GREETING_S)
            greeting = None if line is None else decode_greeting(line)
        except (ChannelError, ProtocolError, OSError):
            greeting = None
        if not isinstance(greeting, Attach):
            turn_away(connection, "no greeting came")
            connection.close()
            return
        before = self._attached
        if before is not None and before.hung_up:  # its reader has not come to notice yet
            self.left(before)
        with self._lock:
            holder, holder_pid = self._attached, self._attached_pid
            if holder is not None and greeting.take_over:
                self._attached = self._attached_pid = None
        if holder is not None and not greeting.take_over:
            turn_away(connection, f"process {holder_pid} is attached to this engine", holder_pid)
            connection.close()
            return
        if holder is not None:
            self._outbox.turn_out(holder, f"process {greeting.pid} took over", greeting.pid)
        self._let_in(connection, greeting.pid)

    def _let_in(self, connection: Connection, pid: int | None) -> None:
        with self._lock:
            other, other_pid = self._attached, self._attached_pid
            if other is None:
                self._attached, self._attached_pid = connection, pid
        if other is not None:  # two came at the same moment
            turn_away(connection, f"process {other_pid} is attached to this engine", other_pid)
            connection.close()
            return
        self._inbox.client_came()
        self._outbox.attach(connection)
        threading.Thread(target=self._read, args=(connection,), name="amptui-reader", daemon=True).start()

    def _read(self, connection: Connection) -> None:
        try:
            while (line := connection.receive()) is not None:
                self._inbox.put(_command(line))
        except ChannelClosed:
            self.left(connection)
        except (ChannelError, ProtocolError) as error:
            with suppress(ChannelError):
                self._outbox.turn_out(connection, f"not understood: {error}", None)
            self.left(connection)
        finally:
            connection.close()


def _command(line: bytes) -> Command:
    command = decode(line)
    if not isinstance(command, Command):
        raise ProtocolError(f"{type(command).__name__} is an event, not a command")
    return command
