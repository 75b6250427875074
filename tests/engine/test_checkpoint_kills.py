"""Killed or failing at each single system call: what the store says exists is whole, and the next run goes on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from amptui.engine import checkpoint
from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock
from amptui.session.restore import verify
from amptui.session.store import Store
from tests.engine.training_scenarios import SCENARIOS

CALLS = [
    "openat",
    "write",
    "pwrite64",
    "fsync",
    "fdatasync",
    "ftruncate",
    "linkat",
    "link",
    "unlink",
    "rename",
    "close",
]


def can_trace() -> bool:
    strace = shutil.which("strace")
    return strace is not None and subprocess.run([strace, "-o", "/dev/null", "true"], check=False).returncode == 0


pytestmark = pytest.mark.skipif(not can_trace(), reason="strace is not installed or not allowed here")


@dataclass(frozen=True)
class Ended:
    acknowledged: list[str]
    error: str
    killed: bool


def session_of_work(folder: SessionFolder, say: Callable[[str], None]) -> None:
    """Opens a session, writes and records one checkpoint, records events; says what is acknowledged."""
    state, _ = SCENARIOS["adamw"]()
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        say("opened")
        store.add_checkpoint(checkpoint.write(folder, "fp32", state, {"name": "fp32"}))
        say("checkpoint")
        for seq in range(3):
            store.record(seq, 0.0, "event", "{}", durable=True)
            say(f"event {seq}")


def traced(folder: SessionFolder, inject: str) -> Ended:
    """Does the session of work in a forked child in which strace injects a fault."""
    go, said = os.pipe(), os.pipe()

    def say(line: str) -> None:
        os.writev(said[1], [f"{line}\n".encode()])  # no fault is injected into this call

    child = os.fork()
    if child == 0:
        os.close(go[1])
        os.read(go[0], 1)
        try:
            session_of_work(folder, say)
        except SessionError as error:
            say(f"error: {error}")
        except BaseException as error:  # a traceback that a user would see
            say(f"traceback: {error!r} {traceback.extract_tb(error.__traceback__)[-3:]}".replace("\n", " "))
        os._exit(0)
    for descriptor in (go[0], said[1]):
        os.close(descriptor)
    strace = subprocess.Popen(
        ["strace", "-f", "-p", str(child), "-o", "/dev/null", "-e", inject], stderr=subprocess.PIPE, text=True
    )
    assert strace.stderr is not None
    while "attached" not in (line := strace.stderr.readline()):
        assert line, "strace ended before it attached"
    os.write(go[1], b"x")
    _, status = os.waitpid(child, 0)
    strace.wait()
    strace.stderr.close()
    os.close(go[1])
    with os.fdopen(said[0]) as lines:
        told = lines.read().splitlines()
    errors = [line for line in told if line.startswith(("error", "traceback"))]
    return Ended([line for line in told if line not in errors], "\n".join(errors), os.WIFSIGNALED(status))


def check(folder: SessionFolder, ended: Ended) -> None:
    """Every promise about what was acknowledged, before and after the next writer has taken over."""
    assert "traceback" not in ended.error, ended.error
    for round_ in range(2):
        if "opened" in ended.acknowledged or round_:
            with Store.read(folder) as store:
                names = [record.name for record in store.checkpoints()]
                events = [event.seq for event in store.events()]
            assert events == list(range(len(events)))
            assert len(events) >= sum(line.startswith("event") for line in ended.acknowledged)
            assert names == ["fp32"] or "checkpoint" not in ended.acknowledged
            assert all(found.ok for found in verify(folder).checkpoints)
            if names:
                state, _ = SCENARIOS["adamw"]()
                with Store.read(folder) as store:
                    record = store.checkpoint("fp32")
                assert record is not None
                assert checkpoint.restore(record, state, folder=folder).position == {"name": "fp32"}
        with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
            if store.checkpoint("fp32") is None:
                store.add_checkpoint(checkpoint.write(folder, "fp32", SCENARIOS["adamw"]()[0], {"name": "fp32"}))
            store.record(store.last_seq + 1, 0.0, "reopened", "{}", durable=True)
        assert not [path for path in folder.checkpoints.iterdir() if re.search(r"\.tmp$", path.name)]


def sweep(tmp_path: Path, call: str, fault: str, points: Iterable[int]) -> int:
    """Injects `fault` at the n-th `call` for each n of `points`, until the work gets through; how many were hit."""
    hit = 0
    for point in points:
        folder = SessionFolder.create(tmp_path / f"{call}-{point}")
        ended = traced(folder, f"inject={call}:{fault}:when={point}")
        check(folder, ended)
        if not ended.killed and not ended.error and len(ended.acknowledged) == 5 and point > 40:
            break
        hit += ended.killed or bool(ended.error)
    return hit


@pytest.fixture(scope="module", autouse=True)
def _warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Does the work once, so that the forked children find torch's lazy imports done."""
    session_of_work(SessionFolder.create(tmp_path_factory.mktemp("warm") / "session"), lambda line: None)


@pytest.mark.parametrize(
    ("call", "points"), [("fsync", [1, 2]), ("fdatasync", [2, 9]), ("unlink", [2, 5]), ("write", [40])]
)
def test_killed_at_a_few_calls_that_matter(tmp_path: Path, call: str, points: list[int]) -> None:
    assert sweep(tmp_path, call, "signal=SIGKILL", points) == len(points)


@pytest.mark.parametrize(
    ("call", "point", "code"), [("fdatasync", 9, "EIO"), ("pwrite64", 12, "ENOSPC"), ("write", 30, "ENOSPC")]
)
def test_a_disk_that_fails_is_told_without_a_traceback(tmp_path: Path, call: str, point: int, code: str) -> None:
    assert sweep(tmp_path, call, f"error={code}", [point]) == 1


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("call", CALLS)
def test_killed_at_every_call(tmp_path: Path, call: str) -> None:
    sweep(tmp_path, call, "signal=SIGKILL", range(1, 80))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("code", ["ENOSPC", "EIO", "EDQUOT", "EROFS", "EACCES"])
@pytest.mark.parametrize("call", ["openat", "write", "pwrite64", "fsync", "linkat"])
def test_an_error_at_every_call(tmp_path: Path, call: str, code: str) -> None:
    sweep(tmp_path, call, f"error={code}", range(1, 40))
