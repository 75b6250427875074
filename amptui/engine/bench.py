"""What every stage works on: the live project, the way back, where to write, whom to tell, and when to stop."""

from __future__ import annotations

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

    def restart(self) -> None:
        """Everything as it was when the FP32 checkpoint was written: each run starts from here."""
        self.switches.restore()
        self.start.restore()

    def progress(self, stage: StageName, what: str, done: int, total: int) -> None:
        self.emit(Progressed(stage=stage, what=what, done=done, total=total))
