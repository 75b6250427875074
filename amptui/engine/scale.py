"""A host mirror of `GradScaler.update()`, so that showing the scale costs no transfer."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from amptui.project import Scaler


def float32(value: float) -> float:
    """`value` rounded to float32; what leaves its range becomes infinite."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


@dataclass(frozen=True)
class ScaleMirror:
    """Scale and growth tracker as `_amp_update_scale_` keeps them (float32 scale, exact equality with the interval)."""

    scale: float
    growth_tracker: int
    settings: Scaler

    @classmethod
    def start(cls, settings: Scaler) -> ScaleMirror:
        return cls(float32(settings.init_scale), 0, settings)

    def updated(self, found_inf: bool) -> ScaleMirror:
        """After `update()`: back off on any found_inf; grow when the tracker reaches the interval exactly.

        Growth that would leave float32 is dropped, back-off has no floor (aten/src/ATen/native/cuda/AmpKernels.cu).
        """
        if found_inf:
            return ScaleMirror(float32(self.scale * self.settings.backoff_factor), 0, self.settings)
        tracker = self.growth_tracker + 1
        if tracker != self.settings.growth_interval:
            return ScaleMirror(self.scale, tracker, self.settings)
        grown = float32(self.scale * self.settings.growth_factor)
        return ScaleMirror(grown if math.isfinite(grown) else self.scale, 0, self.settings)
