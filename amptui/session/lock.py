"""One writer per session.

The lock is the kernel's (`flock`), so it ends with its holder however that dies and never has to be removed by hand.
What the file says about the holder is for people to read only. The descriptor is closed on exec and in forked
children: a data loader's worker that outlives a killed engine does not keep the session locked.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from amptui.session.durable import PRIVATE_FILE
from amptui.session.errors import SessionBusy, SessionError
from amptui.session.folder import SessionFolder
from amptui.text import safe_text

# Asking who holds the lock takes it shared for an instant; a writer that comes then tries again for this long.
_PATIENCE_S = 0.5


@dataclass(frozen=True)
class LockHolder:
    """Who holds a session: process id, its start in clock ticks since boot (0 unknown), and since when (Unix time)."""

    pid: int
    start_ticks: int
    since: float
    role: str

    @property
    def is_alive(self) -> bool:
        """Whether that very process still runs, not another one that got its number."""
        return process_start(self.pid) == self.start_ticks

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"{safe_text(self.role, 40)} with process id {self.pid}, since {since}"


class SessionLock:
    """The right to write one session, from `acquire` to `release` or to the end of the process."""

    def __init__(self, folder: SessionFolder, descriptor: int) -> None:
        self.folder = folder
        self._descriptor: int | None = descriptor
        self._owner = os.getpid()
        this = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _close_in_child(this()))

    @classmethod
    def acquire(cls, folder: SessionFolder, role: str = "amptui") -> SessionLock:
        """Takes the lock of `folder`; `role` is shown to others ("engine", "check").

        Raises SessionBusy, naming the holder, if a living process has it; SessionError if the file system has no locks.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            descriptor = _open(folder.lock)
            try:
                locked = _try_lock(descriptor, fcntl.LOCK_EX, folder.lock)
                # Somebody may have removed the file between open and lock: then the new one counts.
                if locked and _still_named(descriptor, folder.lock):
                    _write_holder(descriptor, role)
                    descriptor, taken = -1, descriptor
                    return cls(folder, taken)
                holder = _read_holder(descriptor)
            finally:
                if descriptor >= 0:
                    os.close(descriptor)
            if not locked and time.monotonic() >= deadline:
                raise SessionBusy(f"session {safe_text(folder.session_id)} is in use by {holder or 'another process'}")
            time.sleep(0.01)

    @property
    def held(self) -> bool:
        return self._descriptor is not None and self._owner == os.getpid()

    def release(self) -> None:
        """Gives the lock up; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None and self._owner == os.getpid():
            with suppress(OSError):  # the descriptor is closed and the lock gone in any case
                os.close(descriptor)

    def __enter__(self) -> SessionLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lock_holder(folder: SessionFolder) -> LockHolder | None:
    """Who writes `folder` now; None if nobody does. A holder that cannot be read is given with pid 0."""
    try:
        descriptor = os.open(folder.lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if _try_lock(descriptor, fcntl.LOCK_SH, folder.lock):
            return None
        return _read_holder(descriptor) or LockHolder(0, 0, 0.0, "unknown")
    finally:
        os.close(descriptor)


def process_start(pid: int) -> int:
    """When process `pid` started, in clock ticks since boot; 0 if there is none or the system does not say."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(status.rpartition(b")")[2].split()[19])  # field 22; the name before it may hold blanks and brackets


def _open(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        raise SessionError(f"the lock {safe_text(path, 4096)} cannot be opened: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise SessionError(f"{safe_text(path, 4096)} is not a plain file of its own; amptui does not write through it")
    return descriptor


def _try_lock(descriptor: int, kind: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            raise SessionError(
                f"the file system of {safe_text(path, 4096)} refuses locks ({error.strerror}), so two runs could write "
                "one session. Set AMPTUI_HOME to a folder on a local disk."
            ) from error
        raise
    return True


def _still_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int, role: str) -> None:
    pid = os.getpid()
    holder = LockHolder(pid=pid, start_ticks=process_start(pid), since=time.time(), role=role)
    with suppress(OSError):  # a full disk must not deny the lock; the text is for people only
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(holder)).encode(), 0)


def _read_holder(descriptor: int) -> LockHolder | None:
    try:
        said = json.loads(os.pread(descriptor, 4096, 0))
        holder = LockHolder(int(said["pid"]), int(said["start_ticks"]), float(said["since"]), str(said["role"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return holder if holder.is_alive else None


def _close_in_child(lock: SessionLock | None) -> None:
    if lock is not None and lock._descriptor is not None:
        os.close(lock._descriptor)
        lock._descriptor = None
