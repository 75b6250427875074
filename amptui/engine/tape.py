"""One RNG state per (iteration, update, micro-batch): recorded when first met, given back ever after.

So dropout masks, augmentation and noise drawn inside a loss are the same in baseline and trial (on the CPU also across
dtypes), and a retry or a replay of one iteration starts where that iteration started.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from amptui.engine import rng

Moment = tuple[int, str, int]


@dataclass(eq=False)
class RngTape:
    states: dict[Moment, rng.RngState] = field(default_factory=dict)
    _latest: rng.RngState | None = None

    def enter(self, step: int, update: str, micro_batch: int) -> None:
        """Called right before the forward of a micro-batch."""
        moment = (step, update, micro_batch)
        recorded = self.states.get(moment)
        if recorded is not None:
            rng.restore(recorded)
        else:
            self._latest = self.states[moment] = rng.capture(self._latest)
