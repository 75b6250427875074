"""The client's side of an engine: start or attach, send and receive, notice its death, end it without remains."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import amptui
from amptui.protocol.channel import ChannelClosed, ChannelError, Connection, connect
from amptui.protocol.codec import ProtocolError, UnknownKind, decode_envelope, encode
from amptui.protocol.commands import Close, Command
from amptui.protocol.events import EngineFailed, Event, Goodbye
from amptui.protocol.greeting import Attach, Dropped, Hello, Turned, decode_greeting, encode_greeting
from amptui.session.death import (
    EngineDeath,
    Trace,
    drained,
    explain,
    last_lines,
    oom_kills,
    size_of,
    tail_of,
)
from amptui.session.engine_file import FAULTS, EngineFile, end_processes, read_engine_file
from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from amptui.session.launch import LaunchError, launch
from amptui.session.process_handle import ProcessHandle
from amptui.session.ways_in import ways_in
from amptui.text import safe_text

__all__ = ["Detached", "EngineDeath", "EngineProcess", "EngineUnavailable"]

PACKAGE = Path(amptui.__file__).resolve().parent
BOOTSTRAP = PACKAGE / "engine" / "bootstrap.py"

_GREETING_S = 5.0
#: How long an engine that closed its line may take to die before it is taken for silent; longer than it gives the
#: project's own threads and exit handlers at its end.
_SILENCE_S = 6.0
#: The same where another program runs in its place.
_REPLACED_S = 1.0
#: How long one that has told its own failure may take to end (it ends itself after a few seconds).
_ENDING_S = 15.0
_POLL_S = 0.05


class EngineUnavailable(SessionError):
    """No engine could be started or reached, and why."""


class Detached(SessionError):
    """The engine lives on, but speaks to another client now."""


class EngineProcess:
    """One engine, started by this process or attached to.

    One thread may `receive` while another one calls `send`; `stop` and `close` are for when nobody receives any more.
    """

    def __init__(
        self,
        folder: SessionFolder,
        process: ProcessHandle,
        connection: Connection,
        mark: str,
        pipes: tuple[int, ...] = (),
    ) -> None:
        self.folder = folder
        self.pid = process.pid
        #: Events up to this sequence number are in the store already; None until the engine has said hello.
        self.history: int | None = None
        #: Sequence number of the last event received, and when anything was last heard (monotonic seconds): an engine
        #: that lives but says nothing is told from one that works by this.
        self.last_seq = -1
        self.last_heard = time.monotonic()
        #: Telemetry events that the engine left out because this client did not read; the store has them.
        self.dropped = 0
        #: The goodbye, once it came: from then on the engine ends by itself.
        self.goodbye: Goodbye | None = None
        self._process = process
        self._connection = connection
        self._mark = mark
        self._pipes = pipes
        self._detached = False
        self._failure: str | None = None
        self._silent_since: float | None = None
        self._death: EngineDeath | None = None
        self._set_aside: deque[Event] = deque()
        self._oom_kills = oom_kills()
        self._log_start = size_of(folder.output_log)

    @classmethod
    def start(
        cls,
        python: str | Path,
        folder: SessionFolder,
        *,
        on_disconnect: Literal["wait", "stop"] = "wait",
        env: Mapping[str, str] | None = None,
        program: Path = BOOTSTRAP,
        arguments: Sequence[str] = (),
    ) -> EngineProcess:
        """Starts an engine for `folder` in the interpreter `python` and returns at once, before it has said anything.

        The caller must not hold the session's lock. `program` is the file that the interpreter runs, `arguments` are
        added to its command line. Raises EngineUnavailable if the interpreter cannot be started.
        """
        options = ["--folder", str(folder.path), "--on-disconnect", on_disconnect, *arguments]
        try:
            launched = launch(python, program, options, os.environ if env is None else env)
        except LaunchError as error:
            raise EngineUnavailable(str(error)) from error
        process = ProcessHandle(launched.child.pid, launched.child)
        return cls(folder, process, launched.connection, launched.mark, launched.pipes)

    @classmethod
    def attach(cls, folder: SessionFolder, *, take_over: bool = False) -> EngineProcess:
        """Attaches to the living engine of `folder`; its `history` is known when this returns.

        With `take_over`, a client that is attached now is put out. Raises EngineUnavailable.
        """
        said = read_engine_file(folder)
        if said is None or not said.is_alive:
            raise EngineUnavailable(f"no engine runs for session {safe_text(folder.session_id)}")
        if said.socket is None:
            raise EngineUnavailable(f"the engine (process {said.pid}) could open no socket: nobody can attach to it")
        try:
            connection = connect(Path(said.socket))
        except ChannelError as error:
            raise EngineUnavailable(f"the engine (process {said.pid}) cannot be reached: {error}") from error
        engine = cls(folder, ProcessHandle(said.pid), connection, said.mark)
        try:
            engine._pipes = said.open_pipes()
            engine._greet(take_over=take_over)
        except BaseException:
            engine.close()
            raise
        return engine

    def _greet(self, *, take_over: bool) -> None:
        try:
            self._connection.send(encode_greeting(Attach(pid=os.getpid(), take_over=take_over)), _GREETING_S)
            line = self._connection.receive(_GREETING_S)
            greeting = None if line is None else decode_greeting(line)
        except (ChannelError, ProtocolError) as error:
            raise EngineUnavailable(f"the engine (process {self.pid}) hung up: {error}") from error
        if isinstance(greeting, Turned):
            turned = f"the engine (process {self.pid}) turned this client away: {greeting.why}"
            raise EngineUnavailable(f"{turned}. {ways_in(self.folder)}")
        if not isinstance(greeting, Hello):
            raise EngineUnavailable(f"the engine (process {self.pid}) lives but does not answer; it may hang")
        self.history = greeting.history

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._death is None and self._process.alive

    def send(self, command: Command) -> None:
        """Sends `command`; lost without a word if the engine is dying, which `receive` then tells."""
        with suppress(ChannelError):
            self._connection.send(encode(command), timeout=_GREETING_S)

    def receive(self, timeout: float | None = None) -> Event | EngineDeath | None:
        """The next event, or how the engine died; None after `timeout` seconds, and for ever after its goodbye.

        All that was sent before a death comes first. Raises Detached once another client has taken over.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._set_aside:
                return self._set_aside.popleft()
            if self._death is not None or self.goodbye is not None:
                return self._death
            ended = not self.alive  # asked before reading: what a dead process sent is all there already
            event = self._read_one()
            if event is not None:
                return event
            if ended or self._is_silent():
                self._death = self._dead()
                continue
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._wait(left)

    def stop(self, patience: float = 5.0) -> None:
        """Ends the engine and all that it started: asks, then SIGTERM, then SIGKILL, each after `patience` seconds.

        Events that come meanwhile are kept for `receive`. A second call does nothing; nor does this end an engine that
        speaks to another client now.
        """
        if self._detached:
            self.close()
            return
        if self._death is None and self.alive:
            with suppress(KeyboardInterrupt):  # asked a second time: no more patience
                self.send(Close())
                if not self._ends_within(patience):
                    self._process.signal_group(signal.SIGTERM)
                    self._ends_within(patience)
            if self.alive:
                self._process.signal_group(signal.SIGKILL)
                self._ends_within(patience)
        self._ends_within(0)
        self._clear_remains()
        self.close()

    def close(self) -> None:
        """Lets go of the engine; if it was started with `on_disconnect="wait"`, it finishes its phase and waits."""
        self._connection.close()
        for descriptor in self._pipes:
            os.close(descriptor)
        self._pipes = ()
        self._process.close()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read_one(self) -> Event | None:
        """The next event that is here already."""
        while True:
            try:
                line = self._connection.receive(0)
            except ChannelClosed:
                line = None
                self._silent_since = self._silent_since or time.monotonic()
            if line is None:
                return None
            self.last_heard = time.monotonic()
            event = self._understood(line)
            if event is not None:
                return event

    def _understood(self, line: bytes) -> Event | None:
        greeting = decode_greeting(line)
        if isinstance(greeting, Hello):
            self.history = greeting.history
        elif isinstance(greeting, Dropped):
            self.dropped += greeting.events
        elif isinstance(greeting, Turned):
            self._detached = True
            raise Detached(f"the engine (process {self.pid}) speaks to another client: {greeting.why}")
        if greeting is not None:
            return None
        try:
            envelope = decode_envelope(line)
        except UnknownKind:  # from a newer engine; nothing that this client could show
            return None
        self.last_seq = envelope.seq
        if isinstance(envelope.event, Goodbye):
            self.goodbye = envelope.event
        if isinstance(envelope.event, EngineFailed):
            self._failure = envelope.event.message
        return envelope.event

    def _wait(self, left: float | None) -> None:
        """Until something may have happened: a line, or the end of the process."""
        waiting = select.poll()
        if self._silent_since is None:
            waiting.register(self._connection, select.POLLIN)
        else:
            left = min(_POLL_S, left or _POLL_S)
        if not self._process.wakes(waiting):
            left = min(_POLL_S, left or _POLL_S)
        waiting.poll(None if left is None else left * 1000)

    def _is_silent(self) -> bool:
        if self._silent_since is None:
            return False
        waited = time.monotonic() - self._silent_since
        if self._failure is not None:  # it ends by itself; how long the project's threads let it live is no silence
            return waited > _ENDING_S
        return waited > _SILENCE_S or (waited > _REPLACED_S and self._process.replaced_by() is not None)

    # --- its end ------------------------------------------------------------------------------------------------------

    def _ends_within(self, seconds: float) -> bool:
        """Whether the process has ended after at most `seconds`; reads on meanwhile, so that it can say goodbye."""
        deadline = time.monotonic() + seconds
        while True:
            ended = not self.alive
            with suppress(Detached, ChannelError, ProtocolError):
                while (event := self._read_one()) is not None:
                    self._set_aside.append(event)
            left = deadline - time.monotonic()
            if ended or left <= 0:
                return ended
            self._wait(min(left, 0.25))

    def _dead(self) -> EngineDeath:
        """What is to be said of an engine that is dead, or silent for good."""
        if self.alive:
            how, words = self._silence()
        else:
            self._clear_remains()
            fault = tail_of(self.folder.path / FAULTS)
            how, words = explain(
                Trace(
                    status=self._process.status,
                    fault=fault,
                    failure=self._failure,
                    oom_kills=oom_kills() - self._oom_kills,
                    own_code=(str(PACKAGE),),
                )
            )
        return EngineDeath(how=how, words=words, last_output=self._last_output())

    def _silence(self) -> tuple[str, str]:
        if self._failure is not None:
            return "failed", f"The engine met an error and does not end: {self._failure}"
        running = self._process.replaced_by()
        if running is not None:
            program = safe_text(running, 120)
            words = f"The project's code replaced the engine (process {self.pid}) by another program (exec): {program}"
            return "replaced", words
        closed = "its line is closed: the project's code closed files that are not its own"
        return "silent", f"The engine (process {self.pid}) still runs, but {closed}."

    def _last_output(self) -> tuple[str, ...]:
        """What the log has, what the engine could no longer read from its pipes, where it crashed."""
        printed = tail_of(self.folder.output_log, self._log_start) + "".join(map(drained, self._pipes))
        return last_lines(printed, tail_of(self.folder.path / FAULTS))

    def _clear_remains(self) -> None:
        """Ends what the engine left running."""
        self._process.reap()
        end_processes(self._mark, group=self.pid)
        said = read_engine_file(self.folder)
        if said is not None and said.mark == self._mark:
            if said.socket is not None:
                Path(said.socket).unlink(missing_ok=True)
            EngineFile.remove(self.folder)
