"""How an engine ended, in words."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_SIGNAL_WORDS = {
    "SIGSEGV": "a segmentation fault",
    "SIGABRT": "an abort: native code gave up, as after a C++ exception or a fatal CUDA error",
    "SIGBUS": "a bus error: a mapped file became shorter, or shared memory is full",
    "SIGFPE": "an arithmetic fault in native code",
    "SIGILL": "an instruction that this processor does not have",
    "SIGTERM": "asked by another process to end",
    "SIGINT": "interrupted",
    "SIGHUP": "its session hung up",
    "SIGXCPU": "the limit on processor time",
}
_LAST_LINES = 20
_FAULT_LINES = 8
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class EngineDeath:
    """The end of an engine that said no goodbye.

    `how` is a signal's name, ``exit code N``, ``exit 0 without goodbye``, ``replaced``, ``silent`` or ``gone``; `words`
    say it to a person; `last_output` are the last lines that the process printed, as they came (not made safe).
    """

    how: str
    words: str
    last_output: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What an engine left behind. `status`: exit status, negative for a signal; None if it is not known."""

    status: int | None
    fault: str = ""
    failure: str | None = None
    oom_kills: int = 0
    own_code: Sequence[str] = ()


def explain(trace: Trace) -> tuple[str, str]:
    """`how` and `words` of an `EngineDeath`."""
    at = _place(trace.fault, trace.own_code)
    if trace.status is None:
        crashed = next(iter(crash_lines(trace.fault)), "").partition(": ")[2]
        if crashed:
            return "gone", f"The engine crashed ({crashed}){at}."
        return "gone", "The engine is gone. How it ended is not known, because another process had started it."
    if trace.status < 0:
        return _by_signal(-trace.status, at, trace.oom_kills)
    if trace.failure is not None:
        return f"exit code {trace.status}", f"The engine met an error and ended: {trace.failure}"
    if trace.status == 0:
        return "exit 0 without goodbye", f"{_ended_by_itself(0)} This is counted as a crash."
    return f"exit code {trace.status}", _ended_by_itself(trace.status)


def _ended_by_itself(status: int) -> str:
    return (
        f"The engine's process ended with exit code {status} in the middle of its work: the project's code, or a "
        f"library it uses, ended the process (as os._exit({status}) does)."
    )


def _by_signal(number: int, at: str, oom_kills: int) -> tuple[str, str]:
    name = signal_name(number)
    if name == "SIGKILL":
        if oom_kills:
            return name, "The engine was killed (SIGKILL), probably by the kernel because memory ran out."
        return name, "The engine was killed (SIGKILL): by someone, or by the kernel because memory ran out."
    said = _SIGNAL_WORDS.get(name)
    return name, f"The engine ended by {name}{f' ({said})' if said else ''}{at}."


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _place(fault: str, own_code: Sequence[str]) -> str:
    """Where in Python the process was, from faulthandler's text: the innermost frame that is no library's."""
    frames = list(_FRAME.finditer("\n".join(crash_lines(fault))))
    outside = [frame for frame in frames if not _is_library(frame["file"], own_code)]
    if not frames:
        return ""
    frame = (outside or frames)[0]
    return f", at {frame['file']}:{frame['line']} in {frame['function']}"


def crash_lines(fault: str) -> tuple[str, ...]:
    """What crashed and the stack of the thread that did, from faulthandler's text on all threads."""
    lines = fault.splitlines()
    said = [line for line in lines if line.startswith("Fatal Python error")][:1]
    for start, line in enumerate(lines):
        if line.startswith("Current thread"):
            end = next((n for n in range(start, len(lines)) if not lines[n].strip()), len(lines))
            return (*said, *lines[start:end])
    return tuple(said)


def last_lines(printed: str, fault: str) -> tuple[str, ...]:
    """The last lines that a process printed, and after them where it crashed by the log of its `faulthandler`."""
    lines = [line for line in printed.replace("\r", "\n").split("\n") if line.strip()]
    crash = crash_lines(fault)[:_FAULT_LINES]
    return (*lines[len(crash) - _LAST_LINES :], *crash)


def _is_library(file: str, own_code: Sequence[str]) -> bool:
    return "site-packages" in file or "/lib/python" in file or file.startswith(("<", *own_code))


def oom_kills(membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int:
    """How many processes the kernel has killed for memory in this process's control group; 0 if it does not say."""
    with suppress(OSError, ValueError):
        for line in membership.read_text().splitlines():
            _number, controllers, path = line.split(":", 2)
            if controllers == "":
                found = _counter(root / path.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                found = _counter(root / "memory" / path.lstrip("/") / "memory.oom_control")
            else:
                continue
            if found is not None:
                return found
    return 0


def _counter(file: Path) -> int | None:
    with suppress(OSError):
        for line in file.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return None


def size_of(path: Path) -> int:
    """Size of a file in bytes, 0 if there is none."""
    with suppress(OSError):
        return path.stat().st_size
    return 0


def tail_of(path: Path, start: int = 0, limit: int = 16_384) -> str:
    """The end of a file, at most `limit` bytes and nothing before `start` (unless it was begun anew since)."""
    with suppress(OSError), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(start if start <= size else 0, size - limit))
        return file.read(limit).decode("utf-8", "backslashreplace")
    return ""


def drained(pipe: int) -> str:
    """What nobody has read from a pipe whose reader is gone."""
    data = b""
    with suppress(OSError):
        os.set_blocking(pipe, False)
        while len(data) < 2**20 and (chunk := os.read(pipe, 2**16)):
            data += chunk
    return data.decode("utf-8", "backslashreplace")


def command_line_of(pid: int) -> str:
    """The command line of a process, "" if it is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "backslashreplace")
    return ""
