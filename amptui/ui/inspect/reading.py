"""Reading a checkpoint beside the screen: the child process is listened to in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from amptui.inspection.process import inspect_in_child
from amptui.inspection.result import Inspection, unread
from amptui.ui.inspect.contents import Contents


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is known of a checkpoint by now: nothing, its structure, or all; `done` of `total` bytes are read."""

    path: str
    inspection: Inspection | None = None
    contents: Contents = field(default_factory=Contents)
    busy: bool = False
    done: int = 0
    total: int = 0

    @property
    def can_read_values(self) -> bool:
        """Whether there are values that were not read, and could be."""
        found = self.inspection
        return not self.busy and found is not None and found.complete and not found.values_read and bool(found.tensors)


class _StoppedError(Exception):
    """Nobody listens any more."""


class CheckpointReader:
    """Reads one checkpoint. `reading` is what is known by now; it is replaced as a whole, by the thread alone.

    The thread never holds up the end of the program; the child ends with it.
    """

    def __init__(self, path: str) -> None:
        self.reading = Reading(path=path)
        self._changed: Callable[[], object] = lambda: None
        self._stopped = False

    def listen(self, changed: Callable[[], object]) -> None:
        """`changed` is called, in the reading thread, whenever `reading` was replaced."""
        self._changed = changed

    def start(self, *, values: bool = False) -> None:
        """Reads the structure, and the values too where asked for or where the checkpoint is small."""
        self._become(busy=True, done=0, total=0)
        threading.Thread(target=self._read, args=(values,), name="inspect", daemon=True).start()

    def stop(self) -> None:
        """Ends the reading at its next word."""
        self._stopped = True

    def _read(self, values: bool) -> None:
        path = self.reading.path
        try:
            found = inspect_in_child(path, values=values, structure_done=self._structure, progress=self._progress)
        except _StoppedError:
            return
        except Exception as error:  # nobody above this thread would tell the user
            problem = f"amptui failed to read it: {type(error).__name__}: {error}"
            found = unread(path, "internal", problem, "This is a mistake in amptui: please report it.")
        self._found(found, busy=False)

    def _structure(self, found: Inspection) -> None:
        self._found(found, busy=True)

    def _found(self, found: Inspection, *, busy: bool) -> None:
        self._become(inspection=found, contents=Contents.of(found), busy=busy)

    def _progress(self, done: int, total: int) -> None:
        if self._stopped:
            raise _StoppedError
        self._become(done=done, total=total)

    def _become(self, **known: object) -> None:
        self.reading = replace(self.reading, **known)  # type: ignore[arg-type]
        self._changed()
