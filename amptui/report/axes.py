"""Axes of a plot: where a value lies between 0 and 1, and which values are written beside it."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from amptui.report.figures import figure
from amptui.report.plots import Scale

_MOST_TICKS = 6
_PAD = 0.05
#: The last power of ten that is a float64.
_LAST = 308
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Axis:
    """From `bottom` to `top`: values on a linear axis, exponents (of 2 or 10) on a logarithmic one."""

    scale: Scale
    bottom: float
    top: float

    def place(self, value: float) -> float:
        """0 at the bottom, 1 at the top; what lies beyond the ends, and 0 on a logarithmic axis, is at an end."""
        if self.scale != "linear" and value <= 0.0:
            return 0.0
        return self._place(_coordinate(value, self.scale))

    def holds(self, value: float) -> bool:
        return (self.scale == "linear" or value > 0.0) and self.bottom <= _coordinate(value, self.scale) <= self.top

    def ticks(self) -> list[tuple[float, str]]:
        """Places from the bottom up, with what is written there."""
        if self.scale != "linear":
            base = 2 if self.scale == "log2" else 10
            powers = [
                (self._place(n), f"{base}{str(n).translate(_RAISED)}") for n in _whole_numbers(self.bottom, self.top)
            ]
            if base == 2 or len(powers) > 3:
                return powers
            return [(self.place(value), figure(value)) for value in self._between_decades()]
        return [(self.place(value), figure(value)) for value in round_values(self.bottom, self.top)]

    def _between_decades(self) -> list[float]:
        """1, 2 and 5 times each power of ten; where even these are few, round values."""
        low, high = 10.0 ** min(self.bottom, _LAST), 10.0 ** min(self.top, _LAST)
        decades = range(math.floor(self.bottom), min(math.ceil(self.top), _LAST - 1) + 1)
        found = [value for n in decades for value in (10.0**n, 2 * 10.0**n, 5 * 10.0**n) if self.holds(value)]
        return found if len(found) > 2 else round_values(low, high)

    def _place(self, coordinate: float) -> float:
        # halved, because the span of two float64 may not be one
        share = (coordinate / 2 - self.bottom / 2) / (self.top / 2 - self.bottom / 2)
        return min(1.0, max(0.0, share))


def axis_for(values: Sequence[float], scale: Scale) -> Axis:
    """An axis around the finite values among `values`, with some room at both ends."""
    usable = [value for value in values if math.isfinite(value) and (scale == "linear" or value > 0.0)] or [1.0]
    low, high = _coordinate(min(usable), scale), _coordinate(max(usable), scale)
    if scale == "log2":
        return Axis(scale, math.floor(low) - 0.5, math.ceil(high) + 0.5)
    pad = max((high / 2 - low / 2) * 2 * _PAD or abs(high) * _PAD or 1.0, 1e-9 * abs(high))
    largest = sys.float_info.max
    return Axis(scale, max(low - pad, -largest), min(high + pad, largest))


def _coordinate(value: float, scale: Scale) -> float:
    if scale == "linear":
        return value
    return math.log2(value) if scale == "log2" else math.log10(value)


def _whole_numbers(low: float, high: float) -> range:
    """At most six of them, evenly spaced."""
    first, last = math.ceil(low), math.floor(high)
    return range(first, last + 1, max(1, -(-(last - first + 1) // _MOST_TICKS)))


def round_values(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from `low` to `high`: about six of them."""
    span = high - low
    if not math.isfinite(span) or span < 1e-300:
        return [0.0] if low <= 0.0 <= high else [low]
    power = 10.0 ** math.floor(math.log10(span))
    step = next(s for s in (power / 10, power / 5, power / 2, power, 2 * power, 5 * power) if span / s <= _MOST_TICKS)
    digits = 12 - math.floor(math.log10(step))
    return [round(n * step, digits) for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def step_ticks(first: int, last: int) -> list[int]:
    """Whole iterations to write below a plot."""
    if first == last:
        return [first]
    return [int(value) for value in round_values(first, last) if value == int(value)]
