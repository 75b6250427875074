"""One series as a plot draws it: summarised by column, placed on the axis, with marks where a line cannot say it.

A screen draws the same curves many times a second, and most of them have not changed: what was traced before is handed
back in, and taken over where source, steps and axis are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from amptui.ui.raster.axis import Axis
from amptui.ui.raster.columns import MINUS_INF, NAN, NON_FINITE, PLUS_INF, Column, Source, columns
from amptui.ui.raster.extents import Extent, extents


class Mark(NamedTuple):
    """A mark in one cell of a row: a value that is not finite (`lost`), or one below a logarithmic axis."""

    cell: int
    #: Where in the height, 0 at the top and 1 at the bottom.
    down: float
    lost: bool


@dataclass(frozen=True)
class Window:
    """The steps `first` to `last` inclusive, in `dots` columns."""

    first: int
    last: int
    dots: int


@dataclass(frozen=True)
class Summary:
    """A source's columns over a window, and how often the source had changed until then."""

    source: Source
    changes: int
    window: Window
    columns: Sequence[Column]


@dataclass(frozen=True)
class Traced:
    """A summary placed on `axis`: the dots of each column, and the marks."""

    summary: Summary
    axis: Axis
    dot_rows: int
    dots_across: int
    held: bool
    extents: Sequence[Extent | None]
    marks: Sequence[Mark]


def summary(source: Source, window: Window, before: Traced | None = None) -> Summary:
    """What `source` holds over `window`; that of `before` where nothing has changed since."""
    changes = source.changes
    known = before.summary if before is not None else None
    if known is not None and known.source is source and known.changes == changes and known.window == window:
        return known
    return Summary(source, changes, window, columns(source, window.first, window.last, window.dots))


def traced(
    summed: Summary, used: Axis, dot_rows: int, dots_across: int, *, held: bool, before: Traced | None = None
) -> Traced:
    """`summed` on the axis `used`, `dots_across` columns of dots to a cell."""
    placed = (used, dot_rows, dots_across, held)
    if before is not None and before.summary is summed and _placed(before) == placed:
        return before
    covered = extents(summed.columns, used, dot_rows, held=held)
    return Traced(summed, *placed, covered, _marks(summed.columns, used, dots_across))


def _placed(known: Traced) -> tuple[Axis, int, int, bool]:
    return known.axis, known.dot_rows, known.dots_across, known.held


def _marks(trace_columns: Sequence[Column], used: Axis, dots_across: int) -> list[Mark]:
    """Crosses: inf at the top, -inf at the bottom, NaN where the line broke off."""
    found: list[Mark] = []
    newest: float | None = None
    for index, (low, high, lost) in enumerate(trace_columns):
        if low <= high:
            newest = high
            if not used.shows(low):
                found.append(Mark(index // dots_across, 1.0, lost=False))
        if lost & NON_FINITE:
            broke_off = 0.5 if newest is None else 1.0 - used.fraction(newest)
            places = ((NAN, broke_off), (MINUS_INF, 1.0), (PLUS_INF, 0.0))
            found.extend(Mark(index // dots_across, down, lost=True) for bit, down in places if lost & bit)
    return found
