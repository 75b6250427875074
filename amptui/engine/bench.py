"""What every stage works on: the live project, the way back, where to write, whom to tell, and when to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from amptui.engine import rng
from amptui.engine.live import LiveProject
from amptui.engine.precision import PrecisionSettings
from amptui.engine.snapshot import Snapshot
from amptui.engine.switches import Switches
from amptui.project import Policy
from amptui.protocol.events import Event, Progressed, StageName
from amptui.session.folder import SessionFolder

#: Seconds between two tellings of progress.
PROGRESS_S = 0.1


class Pace:
    """Lets through what is told of progress ten times a second: quick iterations are not worth an event each."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last = -1e9

    def due(self, done: int, total: int) -> bool:
        """Always at the beginning and at the end."""
        now = self._now()
        if 1 < done < total and now - self._last < PROGRESS_S:
            return False
        self._last = now
        return True


@dataclass(frozen=True, eq=False)
class Bench:
    live: LiveProject
    #: Everything as it was when the FP32 checkpoint was written.
    start: Snapshot
    #: The RNG state of that moment.
    rng: rng.RngState
    #: The project's own arithmetic switches; on for the trial, off for the baseline.
    precision: PrecisionSettings
    policy: Policy
    folder: SessionFolder
    emit: Callable[[Event], object]
    #: Called between phases and cases; raises `Stopped` where the user ended the stage.
    between: Callable[[], None]
    #: Process-wide switches of torch as the project left them.
    switches: Switches = field(default_factory=Switches.current)
    pace: Pace = field(default_factory=Pace)

    def restart(self) -> None:
        """Everything as it was when the FP32 checkpoint was written: each run starts from here."""
        self.switches.restore()
        self.start.restore()

    def progress(self, stage: StageName, what: str, done: int, total: int) -> None:
        if self.pace.due(done, total):
            self.emit(Progressed(stage=stage, what=what, done=done, total=total))
