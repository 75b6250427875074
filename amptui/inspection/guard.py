"""Confines the process that reads: memory, processor time, and what Python may do at all.

Reading never imports, executes, opens for writing or talks to anyone, so the interpreter is told to refuse all of it
(audit hooks, PEP 578): should a reader ever have a hole, nothing can come through it. Linux limits, see setrlimit(2).
"""

from __future__ import annotations

import os
import resource
import signal
import sys

from amptui.inspection.opening import LimitError

MEMORY = 512 << 20
STRUCTURE_SECONDS = 5
_GRACE_SECONDS = 3
#: Reading values goes at hundreds of megabytes a second; a tenth of that is allowed for.
_BYTES_A_SECOND = 20 << 20

_FORBIDDEN = frozenset(
    [
        "import",
        "exec",
        "compile",
        "marshal.loads",
        "code.__new__",
        "function.__new__",
        "pickle.find_class",
        "cpython.run_command",
        "cpython.run_file",
        "cpython.run_module",
        "cpython.run_stdin",
        "os.system",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.startfile",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.mkdir",
        "os.link",
        "os.symlink",
        "os.truncate",
        "os.chmod",
        "os.chown",
        "os.putenv",
        "os.kill",
        "os.killpg",
        "subprocess.Popen",
        "pty.spawn",
        "socket.__new__",
        "socket.connect",
        "socket.bind",
        "socket.getaddrinfo",
        "shutil.rmtree",
        "shutil.move",
        "ctypes.dlopen",
        "ctypes.dlsym",
        "mmap.__new__",
        "sys.settrace",
        "sys.setprofile",
        "gc.get_objects",
        "webbrowser.open",
        "urllib.Request",
        "sqlite3.connect",
        "tempfile.mkstemp",
        "tempfile.mkdtemp",
    ]
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class ForbiddenError(BaseException):
    """The reading process was about to do something that reading never does."""


def confine(*, values: bool) -> None:
    """Limit this process for good. Everything that it needs must be imported before."""
    _warm_codecs()
    _limit(resource.RLIMIT_DATA, MEMORY, MEMORY)
    hard = resource.RLIM_INFINITY if values else STRUCTURE_SECONDS + _GRACE_SECONDS
    signal.signal(signal.SIGXCPU, _time_spent)
    _limit(resource.RLIMIT_CPU, STRUCTURE_SECONDS, hard)
    _limit(resource.RLIMIT_FSIZE, 0, 0)
    _limit(resource.RLIMIT_CORE, 0, 0)
    sys.addaudithook(refuse)


def allow_time_for(size: int) -> None:
    """Extend the processor time once the structure is read and `size` bytes of values follow."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 60 + size // _BYTES_A_SECOND
    _limit(resource.RLIMIT_CPU, seconds, resource.RLIM_INFINITY)


def _limit(kind: int, soft: int, hard: int) -> None:
    """Set a limit, or as much of it as an existing harder one leaves."""
    _, ceiling = resource.getrlimit(kind)
    if ceiling != resource.RLIM_INFINITY:
        hard = ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)
        soft = min(soft, hard)
    resource.setrlimit(kind, (soft, hard))


def _time_spent(_signal: int, _frame: object) -> None:
    raise LimitError(f"its structure takes more than {STRUCTURE_SECONDS} s of processor time")


def refuse(event: str, args: tuple[object, ...]) -> None:
    """The audit hook: raises ForbiddenError for every event that reading a checkpoint never causes."""
    if event == "open":
        flags = args[2] if len(args) > 2 else 0
        if not isinstance(flags, int) or flags & _WRITING:
            raise ForbiddenError(f"open for writing: {args[0]!r}")
    elif event in _FORBIDDEN:
        raise ForbiddenError(f"{event} {args[0]!r:.80}" if args else event)


def _warm_codecs() -> None:
    """Look up the codecs that the readers use, as the first look-up of each imports a module."""
    for name in ("utf-8", "ascii", "latin-1", "raw_unicode_escape", "unicode_escape"):
        "".encode(name)
        b"".decode(name)
