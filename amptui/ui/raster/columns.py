"""From many values to one summary per picture column, so that no spike and no non-finite value is lost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

#: Bits of `lost`: what a column holds besides finite values. BREAK is a gap without a mark: no value was taken.
NAN, PLUS_INF, MINUS_INF, BREAK = 1, 2, 4, 8
NON_FINITE = NAN | PLUS_INF | MINUS_INF


class Bucket(NamedTuple):
    """Steps `first` to `last` inclusive, summarised. Without a finite value, low is inf and high is -inf."""

    first: int
    last: int
    low: float
    high: float
    lost: int


class Column(NamedTuple):
    """What falls into one column of a picture. Without a finite value, low is inf and high is -inf."""

    low: float
    high: float
    lost: int

    @property
    def has_value(self) -> bool:
        return self.low <= self.high


EMPTY = Column(math.inf, -math.inf, 0)


class Source(Protocol):
    """Where a plot takes its values from: a list through `Values`, a long history through `amptui.ui.series`."""

    @property
    def changes(self) -> int:
        """How often the values have changed so far."""
        ...

    def buckets(self, first: int, last: int, count: int) -> Iterable[Bucket]:
        """Summaries in order of step that cover `first` to `last` inclusive, fine enough for `count` columns."""
        ...


class Values(Sequence[float | None]):
    """A plain list of values at steps `start`, `start + 1`, … as a `Source`. None is a gap."""

    #: The list is not expected to change.
    changes = 0

    def __init__(self, values: Sequence[float | None], start: int = 0) -> None:
        self._values = values
        self._start = start

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # both overloads are the list's own
        return self._values[index]

    def buckets(self, first: int, last: int, count: int) -> Iterable[Bucket]:  # noqa: ARG002
        begin = max(first - self._start, 0)
        end = max(last - self._start + 1, 0)
        for step, value in enumerate(self._values[begin:end], self._start + begin):
            low, high, lost = column_of(value)
            yield Bucket(step, step, low, high, lost)


def column_of(value: float | None) -> Column:
    """One value as a column."""
    if value is None:
        return Column(math.inf, -math.inf, BREAK)
    if math.isfinite(value):
        return Column(value, value, 0)
    if math.isnan(value):
        return Column(math.inf, -math.inf, NAN)
    return Column(math.inf, -math.inf, PLUS_INF if value > 0 else MINUS_INF)


def columns(source: Source, first: int, last: int, count: int) -> list[Column]:
    """`count` columns over the steps `first` to `last` inclusive; the outer ones hold the outer steps.

    A bucket that is wider than a column fills all that it covers. O(buckets + count).
    """
    if count <= 0 or last < first:
        return [EMPTY] * max(0, count)
    lows, highs, lost = [math.inf] * count, [-math.inf] * count, [0] * count
    scale = (count - 1) / (last - first) if last > first else 0.0
    for bucket_first, bucket_last, low, high, bits in source.buckets(first, last, count):
        begin = int((bucket_first - first) * scale) if bucket_first > first else 0
        end = int((bucket_last - first) * scale) if bucket_last < last else count - 1
        for index in range(begin, end + 1):
            # No min and max here: calling them takes longer than all the rest.
            if low < lows[index]:  # noqa: PLR1730
                lows[index] = low
            if high > highs[index]:  # noqa: PLR1730
                highs[index] = high
            lost[index] |= bits
    return list(map(Column._make, zip(lows, highs, lost, strict=True)))


def extremes(all_columns: Iterable[Column]) -> tuple[float, float] | None:
    """The smallest and the largest finite value, or None where there is none."""
    low, high = math.inf, -math.inf
    for column in all_columns:
        low = min(low, column.low)
        high = max(high, column.high)
    return (low, high) if low <= high else None
