"""One RNG state per (iteration, update, micro-batch): recorded by the baseline, given to every later run.

So dropout masks, augmentation and noise drawn inside a loss are the same in baseline and trial (on the CPU also across
dtypes), and a replay of one iteration starts where that iteration started.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from amptui.engine import rng

Moment = tuple[int, str, int]


@dataclass(eq=False)
class RngTape:
    """`replaying` gives recorded states back; a moment that was never recorded is recorded when it is met."""

    replaying: bool = False
    states: dict[Moment, rng.RngState] = field(default_factory=dict)

    def enter(self, step: int, update: str, micro_batch: int) -> None:
        """Called right before the forward of a micro-batch."""
        moment = (step, update, micro_batch)
        recorded = self.states.get(moment)
        if self.replaying and recorded is not None:
            rng.restore(recorded)
        else:
            self.states[moment] = rng.capture()

    def for_replay(self) -> RngTape:
        """The same states, to be given back."""
        return RngTape(True, self.states)
