"""Engines for tests: the real process, line, store and capture, with a conductor that runs the code it is sent."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from amptui.protocol.commands import OpenProject
from amptui.protocol.events import StageStarted
from amptui.session.folder import SessionFolder
from amptui.session.process import EngineDeath, EngineProcess

PROGRAM = Path(__file__)


class Stub:
    """Runs each `OpenProject.spec` as Python code, as user code would run; then tells that it is done."""

    def __init__(self, inbox: object, outbox: object, folder: SessionFolder) -> None:
        self.inbox, self.outbox, self.folder = inbox, outbox, folder

    def run(self) -> None:
        self.outbox.send(StageStarted(stage="project"))
        while self.inbox.closing is None:
            command = self.inbox.next()
            if isinstance(command, OpenProject):
                names = {"inbox": self.inbox, "outbox": self.outbox, "folder": self.folder}
                exec(compile(command.spec, "/project/train.py", "exec"), names)
                self.outbox.send(StageStarted(stage="report"))


def start(folder: SessionFolder | Path, **options: object) -> EngineProcess:
    """A started engine that has told its first event."""
    if isinstance(folder, Path):
        folder = SessionFolder.create(folder / "session")
    engine = EngineProcess.start(sys.executable, folder, program=PROGRAM, **options)
    first = receive(engine, StageStarted)
    assert first.stage == "project"
    return engine


def run(engine: EngineProcess, code: str) -> None:
    """Lets the engine run `code`."""
    engine.send(OpenProject(spec=code, folder="/project"))


def receive(engine: EngineProcess, kind: Any, timeout: float = 20.0) -> Any:
    """The next event of `kind`, or the death; what comes before is passed over."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        event = engine.receive(timeout=0.2)
        if isinstance(event, kind):
            return event
        assert not isinstance(event, EngineDeath), event
        assert engine.goodbye is None or kind is not EngineDeath, "said goodbye"
    raise AssertionError(f"no {kind} came")


def eventually(holds: Callable[[], bool], timeout: float = 10.0) -> bool:
    """Whether `holds()` becomes true in time."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.02)
    return holds()


def exists(pid: int) -> bool:
    """Whether process `pid` runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


if __name__ == "__main__":
    from amptui.engine.main import main

    sys.exit(main(sys.argv[1:], conducting=Stub, needs_torch=bool(os.environ.get("STUB_NEEDS_TORCH"))))
