"""The value axis: round limits that hold still, and labels that never collide."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from amptui.ui.raster.numbers import number, short

Scale = Literal["linear", "log", "log2"]

#: A label is at most this many characters long.
LABEL = 7
#: The new limits are taken when the data fills less than this share of the old ones.
LOOSE = 0.4


@dataclass(frozen=True)
class Axis:
    """A value axis. `low` and `high` are values on a linear scale, exponents on a logarithmic one."""

    scale: Scale
    low: float
    high: float

    def fraction(self, value: float) -> float:
        """Where a finite `value` lies: 0 at the low end, 1 at the high end, clamped.

        On a logarithmic axis a value that is zero or negative lies at the low end.
        """
        place = self._place(value)
        span = self.high - self.low
        if math.isinf(span):
            share = (place / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        else:
            share = (place - self.low) / span if span > 0 else 0.5
        return min(1.0, max(0.0, share))

    def dots(self, rows: int) -> Callable[[float], int]:
        """What gives for a finite value the row of dots at which it lies, of `rows`, 0 at the top."""
        low, span = self.low, self.high - self.low
        if self.scale != "linear" or not 0 < span < math.inf:
            return lambda value: round((1.0 - self.fraction(value)) * (rows - 1))

        def row(value: float) -> int:  # `fraction`, without a call for every part of it
            share = (value - low) / span
            return round((1.0 - (0.0 if share < 0.0 else 1.0 if share > 1.0 else share)) * (rows - 1))

        return row

    def _place(self, value: float) -> float:
        if self.scale == "linear":
            return value
        if value <= 0:
            return self.low
        return math.log2(value) if self.scale == "log2" else math.log10(value)

    def shows(self, value: float) -> bool:
        """Whether the scale has a place for `value`: a logarithm has none for zero and below."""
        return self.scale == "linear" or value > 0

    def label(self, place: float, digits: int = 3) -> str:
        """The text at `place` (a value, or an exponent on a logarithmic scale)."""
        if self.scale == "linear":
            return short(place, LABEL) if digits == 3 else number(place, digits)
        if self.scale == "log2":
            return f"2^{place:.0f}" if place == int(place) else number(_power(2.0, place), digits)
        if place == int(place) and not -3 <= place <= 3:
            return f"1e{place:.0f}"
        return short(_power(10.0, place), LABEL) if digits == 3 else number(_power(10.0, place), digits)


def _power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:  # log2(1.8e308) rounds up to 1024
        return math.inf


def axis(low: float, high: float, scale: Scale, previous: Axis | None = None) -> Axis:
    """The axis for finite values from `low` to `high`, with round ends; `previous` is kept while it fits.

    On a logarithmic scale, give the smallest positive value; without one the axis is 1 to 10 (or 1 to 2).
    Holding still keeps the eye on the curve, and costs a few changed cells where new limits redraw the pane.
    """
    if scale == "linear":
        fresh = Axis(scale, *_round_linear(low, high))
    elif high <= 0:
        fresh = Axis(scale, 0.0, 1.0)
    else:
        place = math.log2 if scale == "log2" else math.log10
        fresh = Axis(scale, *_round_exponents(place(low if low > 0 else high), place(high)))
    if previous is None or previous.scale != scale:
        return fresh
    holds = previous.low <= fresh.low and fresh.high <= previous.high
    span = previous.high - previous.low
    tight = math.isinf(span) or fresh.high - fresh.low >= LOOSE * span
    return previous if holds and tight else fresh


def _round_linear(low: float, high: float) -> tuple[float, float]:
    if low == high:
        pad = abs(low) * 0.1 or 1.0
        low, high = (0.0, 1.0) if low == 0 else (low - pad, high + pad)
    step = nice_step(high - low, 5)
    if step is None:
        return _apart(low, high)
    rounded_low = min(low, _multiple(math.floor(low / step), step))
    rounded_high = max(high, _multiple(math.ceil(high / step), step))
    if not math.isfinite(rounded_low) or not math.isfinite(rounded_high):
        return _apart(low, high)
    return _apart(rounded_low, rounded_high)


def _round_exponents(low: float, high: float) -> tuple[float, float]:
    rounded_low, rounded_high = math.floor(low), math.ceil(high)
    if rounded_low == rounded_high:
        # A constant power: leave room on both sides, as a step in either direction comes next.
        return rounded_low - 1.0, rounded_high + 1.0
    return float(rounded_low), float(rounded_high)


def _apart(low: float, high: float) -> tuple[float, float]:
    """Finite limits that differ, whatever rounding has done."""
    largest = math.nextafter(math.inf, 0.0)
    low, high = max(-largest, min(low, largest)), max(-largest, min(high, largest))
    return (low, high) if low < high else (math.nextafter(low, -math.inf), math.nextafter(high, math.inf))


def _multiple(count: int, step: float) -> float:
    """`count` steps, without the dust of binary fractions where `step` is a power of ten or near one."""
    exact = count * step
    rounded = float(f"{exact:.12g}")
    return rounded if math.isfinite(rounded) else exact


def nice_step(span: float, parts: int) -> float | None:
    """1, 2 or 5 times a power of ten that divides `span` into about `parts`; None where floats end."""
    if not (0 < span < math.inf):
        return None
    raw = span / parts
    if raw < 1e-300 or raw > 1e300:
        return None
    power = 10.0 ** math.floor(math.log10(raw))
    for factor in (1.0, 2.0, 5.0, 10.0):
        if raw <= factor * power * 1.0000001:
            return factor * power
    return 10.0 * power


def ticks(scale_axis: Axis, rows: int) -> list[tuple[int, str]]:
    """(row, label) from top to bottom for `rows` rows: the ends and round values between, at least two rows apart.

    Labels differ from each other: more digits where needed, and where seven characters do not tell two values apart,
    the distance from the lowest with a plus sign.
    """
    if rows <= 0:
        return []
    if rows == 1:
        return [(0, scale_axis.label(scale_axis.high))]
    places: list[tuple[int, float]] = [(0, scale_axis.high)]
    for place in _between(scale_axis, rows):
        row = _row(scale_axis, place, rows)
        if row - places[-1][0] >= 2 and rows - 1 - row >= 2:
            places.append((row, place))
    places.append((rows - 1, scale_axis.low))
    labels = _labels(scale_axis, [place for _, place in places])
    if len(set(labels)) < len(labels):
        places = [places[0], places[-1]]
        labels = _labels(scale_axis, [place for _, place in places])
    return list(zip((row for row, _ in places), labels, strict=True))


def _between(scale_axis: Axis, rows: int) -> list[float]:
    """Round places strictly inside the axis, from high to low, few enough for `rows`."""
    span = scale_axis.high - scale_axis.low
    step = nice_step(span, max(1, (rows - 1) // 2))
    if step is None:
        return []
    if scale_axis.scale != "linear":
        step = max(1.0, math.ceil(step))
    if abs(scale_axis.low / step) > 1e12:
        return []  # the step drowns in the value's own rounding
    count = math.ceil(scale_axis.high / step) - 1
    result: list[float] = []
    while (place := _multiple(count, step)) > scale_axis.low and len(result) < rows:
        if place < scale_axis.high:
            result.append(place)
        count -= 1
    return result


def _row(scale_axis: Axis, place: float, rows: int) -> int:
    span = scale_axis.high - scale_axis.low
    return round((scale_axis.high - place) / span * (rows - 1))


def _labels(scale_axis: Axis, places: Sequence[float]) -> list[str]:
    for digits in (3, 4, 5, 6):
        labels = [scale_axis.label(place, digits) for place in places]
        if len(set(labels)) == len(labels) and max(map(len, labels)) <= LABEL:
            return labels
    lowest = places[-1]
    if scale_axis.scale == "linear":
        return [*(f"+{short(place - lowest, LABEL - 1)}" for place in places[:-1]), short(lowest, LABEL)]
    return [short(place, LABEL) for place in places]
