"""Starts the reading child, listens to it, and knows how it ended."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from amptui.inspection.result import Inspection, unread
from amptui.inspection.wire import unpacked

#: A child that says nothing for so long is stuck (a dead network file system) and is killed.
SILENCE_SECONDS = 60.0
_MAX_LINE = 256 << 20
_CHILD = Path(__file__).with_name("child.py")

Progress = Callable[[int, int], object]


def inspect_in_child(
    path: str,
    *,
    values: bool = False,
    structure_done: Callable[[Inspection], object] | None = None,
    progress: Progress | None = None,
    silence: float = SILENCE_SECONDS,
) -> Inspection:
    """Look into the checkpoint at `path` in a process of its own; whatever becomes of that, an inspection comes back.

    `structure_done` gets what is known before a large checkpoint's values are read, `progress` the bytes read and
    their total.
    """
    command = [sys.executable, "-I", "-S", str(_CHILD), "values" if values else "structure", os.fspath(path)]
    try:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and file; the path is data
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except (OSError, ValueError) as error:
        return unread(path, "unreadable", f"the reading process cannot start: {error}", "Check the path and try again.")
    structure: Inspection | None = None
    last_words = b""
    try:
        for kind, text in _lines(child, silence):
            if kind == b"R":
                return unpacked(text)
            if kind == b"S":
                structure = unpacked(text)
                if structure_done is not None:
                    structure_done(structure)
            elif kind == b"P" and progress is not None:
                done, total = text.split()
                progress(int(done), int(total))
            elif kind == b"E":
                last_words = text
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        child.wait()
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()
    return _ended(path, child.returncode, last_words, structure)


def _lines(child: subprocess.Popen[bytes], silence: float) -> Iterator[tuple[bytes, bytes]]:
    """(kind, text) of every line of the child's output; `E` is the end of what it wrote as errors."""
    if child.stdout is None or child.stderr is None:
        return
    buffer, errors = bytearray(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        selector.register(child.stderr, selectors.EVENT_READ)
        deadline = time.monotonic() + silence
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                yield b"E", b"it said nothing for too long"
                return
            deadline = time.monotonic() + silence
            for key, _ in ready:
                piece = os.read(key.fd, 1 << 18)
                if not piece:
                    selector.unregister(key.fileobj)
                elif key.fileobj is child.stderr:
                    errors = (errors + piece)[-2000:]
                else:
                    buffer += piece
                    *whole, rest = buffer.split(b"\n") if b"\n" in piece else [buffer]
                    buffer = bytearray(rest)
                    for line in whole:
                        yield bytes(line[:1]), bytes(line[2:])
                    if len(buffer) > _MAX_LINE:
                        yield b"E", b"its answer is too long"
                        return
    yield b"E", errors


def _ended(path: str, code: int | None, last_words: bytes, structure: Inspection | None) -> Inspection:
    """The inspection of a checkpoint whose reading process ended without an answer."""
    kind, advice = "limit", "The file is not like any that training writes: do not load it."
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        why = "the reading process was stopped: it took too long or too much memory"
    elif code is not None and code < 0:
        why = f"the reading process was ended by {signal.Signals(-code).name}"
    else:
        told = last_words.decode("utf-8", "replace").strip().rpartition("\n")[2]
        why = f"amptui failed to read it{': ' + told if told else ''}"
        kind, advice = "internal", "This is a mistake in amptui: please report it with the file, if you may share that."
    if structure is None:
        return unread(path, kind, why, advice)
    incomplete = unread(path, kind, f"tensor values were not read to the end: {why}", advice)
    return replace(structure, complete=False, findings=(*incomplete.findings, *structure.findings))
