"""What the project's own code prints: captured by descriptor, kept in a bounded log, told in coalesced events.

Standard output and standard error of the engine are pipes from its first instruction on, so that what C code, child
processes and the interpreter itself write is caught too. The client that started the engine holds the reading ends as
well: after a sudden death it reads what the engine no longer could.
"""

from __future__ import annotations

import codecs
import io
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from amptui.engine.descriptors import moved_out_of_reach
from amptui.protocol.events import OutputCaptured
from amptui.session.errors import SessionError

Stream = Literal["stdout", "stderr"]

#: The log keeps the last 4 to 8 MiB, in two files of this size.
LOG_BYTES = 4 * 2**20
#: Text of one event; what is printed faster than an event a quarter second is left out of the events, not of the log.
EVENT_CHARACTERS = 4096
_EVERY_S = 0.25
_CHUNK = 2**16


class Output:
    """Reads the pipes behind the engine's standard output and error, from `start` to `stop`."""

    def __init__(self, pipes: Mapping[Stream, int], log: OutputLog, tell: Callable[[OutputCaptured], object]) -> None:
        """`pipes`: reading ends; `tell` gets the events, on this object's own thread."""
        self._tails: dict[int, _Tail] = {descriptor: _Tail(stream) for stream, descriptor in pipes.items()}
        self._log = log
        self._tell = tell
        self._wake_reader, self._wake_writer = map(moved_out_of_reach, os.pipe())
        self._thread = threading.Thread(target=self._run, name="amptui-output", daemon=True)
        for descriptor in self._tails:
            os.set_blocking(descriptor, False)

    def start(self) -> None:
        _line_buffered()
        self._thread.start()

    def stop(self) -> None:
        """Reads what is there still, tells it, and ends. Call it from the thread that printed last."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the project may have put anything in their place
                stream.flush()
        with suppress(OSError):
            os.write(self._wake_writer, b".")
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        waiting = select.poll()
        waiting.register(self._wake_reader, select.POLLIN)
        for descriptor in self._tails:
            waiting.register(descriptor, select.POLLIN)
        due: float | None = None
        while True:
            left = None if due is None else max(0.0, due - time.monotonic()) * 1000
            ready = {descriptor for descriptor, _ in waiting.poll(left)}
            stopping = self._wake_reader in ready
            for descriptor, tail in self._tails.items():
                if (descriptor in ready or stopping) and not self._read(descriptor, tail, to_the_end=stopping):
                    waiting.unregister(descriptor)
            if due is None and any(tail.waiting for tail in self._tails.values()):
                due = time.monotonic() + _EVERY_S
            if stopping or (due is not None and time.monotonic() >= due):
                due = None
                for tail in self._tails.values():
                    for event in tail.events(final=stopping):
                        # A store that fails is told by whoever sends next; to stop reading would block who prints.
                        with suppress(SessionError):
                            self._tell(event)
            if stopping:
                return

    def _read(self, descriptor: int, tail: _Tail, *, to_the_end: bool) -> bool:
        """Takes what the pipe holds; False once nobody can write to it any more."""
        # A pipe that a child process keeps filling has no end: what fits into it is all that `stop` waits for.
        for _ in range(64 if to_the_end else 1):
            try:
                data = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._log.write(data)
            tail.take(data)
        return True


class _Tail:
    """The end of one stream that has not been told yet."""

    def __init__(self, stream: Stream) -> None:
        self._stream: Stream = stream
        # A character cut in two by a read is whole with the next one; bytes that are no UTF-8 become visible.
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._text = ""
        self._left_out = 0

    @property
    def waiting(self) -> bool:
        return bool(self._text)

    def take(self, data: bytes) -> None:
        self._text += self._decoder.decode(data)
        if len(self._text) > 2 * EVENT_CHARACTERS:
            self._left_out += len(self._text) - EVENT_CHARACTERS
            self._text = self._text[-EVENT_CHARACTERS:]

    def events(self, *, final: bool) -> list[OutputCaptured]:
        """Whole lines; a line without an end yet is told too, since a progress bar never ends one."""
        if final:
            self._text += self._decoder.decode(b"", True)
        text, self._text = self._text, ""
        if len(text) > EVENT_CHARACTERS:
            self._left_out += len(text) - EVENT_CHARACTERS
            text = text[-EVENT_CHARACTERS:]
        if self._left_out:
            text = f"… {self._left_out:,} characters left out here; output.log has the last of them\n{text}"
            self._left_out = 0
        return [OutputCaptured(stream=self._stream, text=text)] if text else []


class OutputLog:
    """A log file of bounded size: when it is full it becomes ``….1`` and a new one begins. Bytes as they came."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = _append_to(path)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, data: bytes) -> None:
        """Appends; a full disk silences the log, not the engine."""
        with suppress(OSError):
            if self._size + len(data) > LOG_BYTES:
                os.close(self._descriptor)
                self.path.replace(self.path.with_name(self.path.name + ".1"))
                self._descriptor, self._size = moved_out_of_reach(_append_to(self.path)), 0
            self._size += os.write(self._descriptor, data)

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._descriptor)


def _append_to(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _line_buffered() -> None:
    """A pipe makes Python buffer whole blocks; what is printed should be seen while the project runs, and be UTF-8."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
