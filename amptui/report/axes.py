"""Axes of a plot: where a value lies between 0 and 1, and which values are written beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amptui.report.figures import figure
from amptui.report.plots import Scale

_MOST_TICKS = 6
_PAD = 0.05
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """A scale from `low` to `high`, which are finite, and positive where it is logarithmic."""

    scale: Scale
    low: float
    high: float

    def place(self, value: float) -> float:
        """0 at the bottom, 1 at the top; what lies beyond the ends, and 0 on a logarithmic axis, is at an end."""
        if self.scale != "linear" and value <= 0.0:
            return 0.0
        to = _to(self.scale)
        low, high = to(self.low), to(self.high)
        return min(1.0, max(0.0, (to(value) - low) / (high - low)))

    def ticks(self) -> list[tuple[float, str]]:
        """Values with their labels, from the bottom up."""
        if self.scale == "log2":
            return _powers(2, self.low, self.high)
        if self.scale == "log10":
            decades = _powers(10, self.low, self.high)
            if len(decades) > 2:
                return decades
        return [(value, figure(value)) for value in _round_values(self.low, self.high)]


def axis_for(values: Sequence[float], scale: Scale) -> Axis:
    """An axis around the finite values among `values`, with some room at both ends."""
    usable = [value for value in values if math.isfinite(value) and (scale == "linear" or value > 0.0)]
    low, high = (min(usable), max(usable)) if usable else (1.0, 1.0)
    if scale == "log2":
        return Axis(scale, 2.0 ** (math.floor(math.log2(low)) - 0.5), 2.0 ** (math.ceil(math.log2(high)) + 0.5))
    bottom, top = _to(scale)(low), _to(scale)(high)
    pad = max((top - bottom) * _PAD or abs(top) * _PAD or 1.0, 1e-9 * abs(top))
    if scale == "log10":
        return Axis(scale, 10.0 ** (bottom - pad), 10.0 ** (top + pad))
    return Axis(scale, bottom - pad, top + pad)


def _to(scale: Scale) -> Callable[[float], float]:
    return {"linear": float, "log10": math.log10, "log2": math.log2}[scale]


def _powers(base: int, low: float, high: float) -> list[tuple[float, str]]:
    log = math.log2 if base == 2 else math.log10
    first, last = math.ceil(log(low)), math.floor(log(high))
    stride = max(1, -(-(last - first + 1) // _MOST_TICKS))
    return [(float(base) ** n, f"{base}{str(n).translate(_RAISED)}") for n in range(first, last + 1, stride)]


def _round_values(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, at most six of them."""
    span = high - low
    step = 10.0 ** math.floor(math.log10(span))
    step = next(s for s in (step / 10, step / 5, step / 2, step, step * 2, step * 5) if span / s <= _MOST_TICKS)
    first = math.ceil(low / step)
    return [round(n * step, 12 - math.floor(math.log10(step))) for n in range(first, math.floor(high / step) + 1)]


def step_ticks(first: int, last: int) -> list[int]:
    """Whole iterations to write below a plot."""
    if first == last:
        return [first]
    return [int(value) for value in _round_values(first, last) if value == int(value)]
