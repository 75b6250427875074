"""One writer per session; whoever dies lets go, whatever its children do."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from amptui.session.errors import SessionBusy, SessionError
from amptui.session.folder import SessionFolder
from amptui.session.lock import LockHolder, SessionLock, lock_holder, process_start

HOLD = """
import sys, time
from pathlib import Path
from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock
lock = SessionLock.acquire(SessionFolder(Path(sys.argv[1])), role="engine")
{more}
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    return SessionFolder.create(tmp_path / "session")


def holder_process(folder: SessionFolder, more: str = "") -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(more=more), str(folder.path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_writer_is_told_who_holds_the_session(folder: SessionFolder) -> None:
    process = holder_process(folder)
    try:
        holder = lock_holder(folder)
        assert holder is not None
        assert (holder.pid, holder.role, holder.is_alive) == (process.pid, "engine", True)
        assert abs(holder.since - time.time()) < 60
        with pytest.raises(SessionBusy, match=rf"in use by engine with process id {process.pid}, since 20\d\d-"):
            SessionLock.acquire(folder)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("fatal", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_dead_holder_needs_no_cleaning_up(folder: SessionFolder, fatal: signal.Signals) -> None:
    process = holder_process(folder)
    process.send_signal(fatal)
    process.communicate()
    assert lock_holder(folder) is None
    with SessionLock.acquire(folder) as lock:
        assert lock.held
        holder = lock_holder(folder)
        assert holder is not None
        assert holder.pid == os.getpid()
    assert not lock.held
    assert lock_holder(folder) is None


def test_children_of_a_dead_holder_do_not_keep_the_session(folder: SessionFolder) -> None:
    forked = "import os, subprocess\nif os.fork() == 0:\n    time.sleep(3)\n    os._exit(0)\n"
    process = holder_process(folder, forked + "subprocess.Popen(['sleep', '3'])\n")
    process.kill()
    process.wait()
    with SessionLock.acquire(folder):
        pass
    if process.stdout is not None:
        process.stdout.close()


def test_a_forked_child_does_not_hold_the_lock_and_does_not_release_it(folder: SessionFolder) -> None:
    with SessionLock.acquire(folder) as lock:
        child = os.fork()
        if child == 0:
            held = lock.held
            lock.release()
            os._exit(1 if held else 0)
        assert os.waitpid(child, 0)[1] == 0
        assert lock.held
        with pytest.raises(SessionBusy):
            SessionLock.acquire(folder)


def test_of_many_simultaneous_writers_exactly_one_gets_the_session(folder: SessionFolder) -> None:
    ready, go = os.pipe(), os.pipe()
    children = []
    for _ in range(30):
        child = os.fork()
        if child == 0:
            os.close(go[1])
            os.read(go[0], 1)
            try:
                SessionLock.acquire(folder)
            except SessionBusy:
                os.write(ready[1], b"n")
                os._exit(0)
            os.write(ready[1], b"y")
            time.sleep(1.5)  # longer than the others are patient
            os._exit(0)
        children.append(child)
    os.close(go[1])
    for child in children:
        os.waitpid(child, 0)
    os.close(ready[1])
    said = os.read(ready[0], 100)
    assert (said.count(b"y"), said.count(b"n")) == (1, 29)


def test_asking_for_the_holder_does_not_turn_a_writer_away(folder: SessionFolder) -> None:
    descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    child = os.fork()
    if child == 0:
        time.sleep(0.1)
        os._exit(0)
    os.close(descriptor)  # the child holds it for a moment more, as a reader does
    with SessionLock.acquire(folder) as lock:
        assert lock.held
    os.waitpid(child, 0)


def test_the_lock_file_may_be_deleted_at_any_time(folder: SessionFolder) -> None:
    with SessionLock.acquire(folder):
        folder.lock.unlink()
        assert lock_holder(folder) is None
    with SessionLock.acquire(folder) as lock:
        assert lock.held


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"{}", b"[1]", b'{"pid": 1, "start_ticks": 5, "since": 0, "role": "x"}']
)
def test_what_stands_in_the_file_does_not_matter(folder: SessionFolder, text: bytes) -> None:
    folder.lock.write_bytes(text)
    assert lock_holder(folder) is None
    with SessionLock.acquire(folder):
        folder.lock.write_bytes(text)
        holder = lock_holder(folder)
        assert holder is not None
        assert holder.pid == 0
        with pytest.raises(SessionBusy, match="in use by another process"):
            SessionLock.acquire(folder)


@pytest.mark.parametrize("plant", ["link", "hard link", "pipe"])
def test_a_planted_lock_file_is_refused(folder: SessionFolder, tmp_path: Path, plant: str) -> None:
    canary = tmp_path / "canary"
    canary.write_text("untouched")
    if plant == "link":
        folder.lock.symlink_to(canary)
    elif plant == "hard link":
        folder.lock.hardlink_to(canary)
    else:
        os.mkfifo(folder.lock)
    with pytest.raises(SessionError, match=r"cannot be opened|not a plain file"):
        SessionLock.acquire(folder)
    assert canary.read_text() == "untouched"


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named(
    folder: SessionFolder, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refused(descriptor: int, kind: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(SessionError, match=r"refuses locks .* Set AMPTUI_HOME to a folder on a local disk"):
        SessionLock.acquire(folder)


def test_a_process_number_used_again_is_not_the_holder() -> None:
    mine = LockHolder(os.getpid(), process_start(os.getpid()), 0.0, "engine")
    assert mine.is_alive
    assert not LockHolder(os.getpid(), mine.start_ticks + 1, 0.0, "engine").is_alive
    assert process_start(2**30) == 0


def test_no_descriptor_is_left_open(folder: SessionFolder) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        with SessionLock.acquire(folder), pytest.raises(SessionBusy):
            raise_busy(folder)
        lock_holder(folder)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def raise_busy(folder: SessionFolder) -> None:
    from amptui.session import lock

    patience, lock._PATIENCE_S = lock._PATIENCE_S, 0.0
    try:
        SessionLock.acquire(folder)
    finally:
        lock._PATIENCE_S = patience
