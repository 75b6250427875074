"""Where a living engine is found: `engine.json` in its session's folder, and the mark that all its processes carry."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from amptui.session.durable import open_regular, published
from amptui.session.folder import SessionFolder
from amptui.session.lock import process_start

NAME = "engine.json"

#: Where the engine's `faulthandler` writes: a file, because a pipe's reader would die with the process.
FAULTS = "fault.log"

#: Environment variable with a random value per engine. Whatever the project's code starts inherits it, also what leaves
#: the process group, so that nothing is left behind on the device.
MARK_VARIABLE = "AMPTUI_ENGINE"


_DEAD = ("Z", "X")  # a zombie waits for its parent only


@dataclass(frozen=True, kw_only=True)
class EngineFile:
    """`start_ticks`: when the process started, in clock ticks since boot, to tell it from a later one of its number.

    `pipes`: its descriptors for reading what it prints. A client that holds them too (see `open_pipes`) can read, after
    a sudden death, what the engine no longer could.
    """

    pid: int
    start_ticks: int
    socket: str | None
    mark: str
    amptui: str
    pipes: tuple[int, ...] = ()

    @property
    def is_alive(self) -> bool:
        if self.start_ticks == 0 or process_start(self.pid) != self.start_ticks:
            return False
        with suppress(OSError):
            return _state(Path(f"/proc/{self.pid}"))[0] not in _DEAD
        return False

    def open_pipes(self) -> tuple[int, ...]:
        """Own descriptors of the engine's `pipes`; those that the system does not give are left out."""
        opened = []
        for descriptor in self.pipes:
            with suppress(OSError):
                place = f"/proc/{self.pid}/fd/{descriptor}"
                opened.append(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        return tuple(opened)

    def write(self, folder: SessionFolder) -> None:
        with published(folder.path / NAME, overwrite=True) as file:
            file.write(json.dumps(asdict(self)).encode())

    @staticmethod
    def remove(folder: SessionFolder) -> None:
        with suppress(OSError):
            (folder.path / NAME).unlink()


def read_engine_file(folder: SessionFolder) -> EngineFile | None:
    """Who drives `folder`, alive or not; None if nobody does or the file cannot be read."""
    try:
        descriptor = open_regular(folder.path / NAME)
        with os.fdopen(descriptor, "rb") as file:
            said = json.loads(file.read(65536))
        place = said["socket"]
        return EngineFile(
            pid=int(said["pid"]),
            start_ticks=int(said["start_ticks"]),
            socket=None if place is None else str(place),
            mark=str(said["mark"]),
            amptui=str(said["amptui"]),
            pipes=tuple(int(descriptor) for descriptor in said["pipes"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def processes_of(mark: str, group: int | None = None) -> list[int]:
    """Living processes of this user that carry `mark`, or belong to the session `group`, without this one."""
    wanted = f"{MARK_VARIABLE}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            state, session = _state(entry)
            if state not in _DEAD and (
                (group is not None and session == group) or wanted in (entry / "environ").read_bytes().split(b"\0")
            ):
                found.append(int(entry.name))
    return found


def end_processes(mark: str, group: int | None = None, patience: float = 1.0) -> int:
    """Ends what `processes_of` finds: SIGTERM, and SIGKILL after `patience` seconds. Gives how many there were."""
    first = processes_of(mark, group)
    remaining = first
    for number, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 1.0)):
        for pid in remaining:
            with suppress(OSError):
                os.kill(pid, number)
        deadline = time.monotonic() + wait
        while remaining and time.monotonic() < deadline:
            time.sleep(0.01)
            remaining = processes_of(mark, group)
    return len(first)


def _state(entry: Path) -> tuple[str, int]:
    """State letter and session number of a process, from its `stat`."""
    rest = (entry / "stat").read_bytes().rpartition(b")")[2].split()
    return rest[0].decode("ascii"), int(rest[3])
