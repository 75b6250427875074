"""A history of values that stays small: recent steps exactly, older ones as the extremes of ever wider buckets.

A run of a million updates with ten series must not cost the screen more than a few megabytes, and one loss of inf among
them must still be seen. Each level keeps the last `CAPACITY` buckets of 4 to the power of k steps: the nearest are
exact, everything is covered, and a picture of any part reads at most a few thousand buckets.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from typing import Any

from amptui.ui.raster.columns import Bucket, Column, column_of, columns
from amptui.ui.raster.timeline import OUTCOMES, Outcome

#: Buckets kept on each level: 4 for each of 512 columns of dots, more than a screen of 250 cells has.
CAPACITY = 2048
FACTOR = 4


class Series:
    """Values by step, as a `Source` for plots. Memory: at most 68 kB for each factor of four in the number of steps."""

    def __init__(self) -> None:
        self._levels = [_Level(1)]
        self.first: int | None = None
        self.last: int | None = None
        #: The newest value as it was given, non-finite included.
        self.value: float | None = None
        self.changes = 0

    def append(self, step: int, value: float | None) -> None:
        """Add `value` at `step`; None is a gap (nothing was measured). Amortised O(1).

        The same step again (a retry) widens what is there. An earlier step drops what followed it, as the run did.
        """
        if self.last is not None and step < self.last:
            self.rewind(step)
        if self.first is None:
            self.first = step
        self.changes += 1
        self.last = step
        self.value = value
        column = column_of(value)
        closed: Bucket | None = Bucket(step, step, column.low, column.high, column.lost)
        depth = 0
        while closed is not None:
            if depth == len(self._levels):
                self._levels.append(_Level(FACTOR**depth))
            closed = self._levels[depth].add(closed)
            depth += 1

    def rewind(self, step: int) -> None:
        """Forget every value at `step` and later; a coarse bucket that began before keeps its extremes."""
        self.changes += 1
        for level in self._levels:
            level.drop_from(step)
        newest = next(filter(None, (level.newest for level in self._levels)), None)
        self.last = newest.last if newest else None
        self.first = self.first if newest else None
        self.value = None

    def buckets(self, first: int, last: int, count: int) -> Iterator[Bucket]:
        """Summaries of the steps `first` to `last`, in order, from the coarsest level that has `count` columns.

        What the coarse level has not closed yet, or never held, comes from finer ones.
        """
        per_column = (last - first + 1) / max(1, count)
        depth = 0
        while depth + 1 < len(self._levels) and (
            self._levels[depth + 1].span <= per_column or self._levels[depth].misses(first)
        ):
            depth += 1
        begin = first
        for level in reversed(self._levels[: depth + 1]):
            for bucket in level.between(begin, last):
                yield bucket
                begin = bucket.last + 1

    def extremes(self) -> Column:
        """Smallest and largest finite value of all and whether any was not finite."""
        low, high, lost = math.inf, -math.inf, 0
        if self.first is not None and self.last is not None:
            for bucket in self.buckets(self.first, self.last, 1):
                low, high, lost = min(low, bucket.low), max(high, bucket.high), lost | bucket.lost
        return Column(low, high, lost)


class _Level:
    """A ring of buckets, each of `span` steps aligned to multiples of `span`; the newest may still be open."""

    def __init__(self, span: int) -> None:
        self.span = span
        self._first: array[int] = array("q")
        self._last: array[int] = array("q")
        #: The fields of `Bucket`, one array each: 33 bytes a bucket, where tuples would take 200.
        self._columns: tuple[array[Any], ...] = (self._first, self._last, array("d"), array("d"), array("B"))
        self._head = 0  # where the oldest lies once the ring is full, and the newest right before it
        self.newest: Bucket | None = None
        self._evicted = False

    def add(self, bucket: Bucket) -> Bucket | None:
        """Merge `bucket` into the newest or open another; the one that this closes is returned."""
        newest = self.newest
        if newest is None or newest.first // self.span != bucket.first // self.span:
            self._push(bucket)
            return newest
        low, high = min(newest.low, bucket.low), max(newest.high, bucket.high)
        self.newest = Bucket(newest.first, bucket.last, low, high, newest.lost | bucket.lost)
        self._set(self._head - 1, self.newest)
        return None

    def _push(self, bucket: Bucket) -> None:
        self.newest = bucket
        if len(self._first) == CAPACITY:
            self._set(self._head, bucket)
            self._head = (self._head + 1) % CAPACITY
            self._evicted = True
            return
        for column, value in zip(self._columns, bucket, strict=True):
            column.append(value)

    def misses(self, step: int) -> bool:
        """Whether a bucket at or after `step` has been pushed out of the ring."""
        return self._evicted and (not self._first or step < self._first[self._head])

    def between(self, first: int, last: int) -> Iterator[Bucket]:
        """The buckets that begin within `first` to `last` or reach into it, in order."""
        begin = self._search(self._last, first)
        end = self._search(self._first, last + 1)
        size = len(self._first)
        # In the ring these are at most two slices of each array.
        start, stop = begin + self._head, max(begin, end) + self._head
        for low, high in ((start, min(stop, size)), (max(start, size) - size, max(stop, size) - size)):
            yield from map(Bucket._make, zip(*(column[low:high] for column in self._columns), strict=True))

    def _search(self, column: array[int], step: int) -> int:
        """How many buckets, from the oldest, have less than `step` in `column`."""
        size = len(column)
        low, high = 0, size
        while low < high:
            middle = (low + high) // 2
            if column[(self._head + middle) % size] < step:
                low = middle + 1
            else:
                high = middle
        return low

    def drop_from(self, step: int) -> None:
        """Forget buckets that begin at `step` or later."""
        kept = [bucket for bucket in self.between(-(2**62), step - 1) if bucket.first < step]
        if kept and kept[-1].last >= step:
            kept[-1] = kept[-1]._replace(last=step - 1)
        for column in self._columns:
            del column[:]
        self._head = 0
        self.newest = None
        for bucket in kept:
            self._push(bucket)

    def _set(self, position: int, bucket: Bucket) -> None:
        first, last, low, high, lost = self._columns
        first[position], last[position], low[position], high[position], lost[position] = bucket


class Outcomes:
    """What became of one update's steps, in bounded memory; of several that share a place the worst is kept."""

    def __init__(self) -> None:
        self._ranks = Series()

    @property
    def last(self) -> int | None:
        return self._ranks.last

    def append(self, step: int, outcome: Outcome) -> None:
        """`outcome` at `step`; an earlier step drops what followed it, the same step keeps the worse of both."""
        self._ranks.append(step, OUTCOMES.index(outcome))

    def recent(self, count: int) -> list[Outcome | None]:
        """The outcomes of the last `count` steps, oldest first; fewer where there have been fewer."""
        first, last = self._ranks.first, self._ranks.last
        if first is None or last is None or count <= 0:
            return []
        begin = max(first, last - count + 1)
        return self.over(begin, last, last - begin + 1)

    def over(self, first: int, last: int, count: int) -> list[Outcome | None]:
        """The steps `first` to `last` in `count` places, the worst of each; None where nothing is known."""
        return [
            OUTCOMES[int(column.high)] if column.has_value else None
            for column in columns(self._ranks, first, last, count)
        ]
