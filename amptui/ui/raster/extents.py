"""Which dots a line covers in each column: its values, joined to its neighbours, but never across a break."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from amptui.ui.raster.axis import Axis
from amptui.ui.raster.columns import Column


class Extent(NamedTuple):
    """The dots of one column that a trace covers: rows from `top` to `bottom`, both included."""

    top: int
    bottom: int


def extents(trace_columns: Sequence[Column], used: Axis, dot_rows: int, *, held: bool) -> list[Extent | None]:
    """The dots of every column: its own values, joined to its neighbours, over columns between values too.

    Nothing is joined across a value that is not finite or a gap: a line that broke off must look broken.
    """
    own = _own_extents(trace_columns, used, dot_rows)
    result = list(own)
    before: int | None = None
    for index, (extent, (_, _, lost)) in enumerate(zip(own, trace_columns, strict=True)):
        if lost:
            before = None
        elif extent is not None:
            if before is not None:
                _join(result, before, index, held=held)
            before = index
    return result


def _own_extents(trace_columns: Sequence[Column], used: Axis, dot_rows: int) -> list[Extent | None]:
    dot = used.dots(dot_rows)
    result: list[Extent | None] = []
    for low, high, _ in trace_columns:
        if low > high:
            result.append(None)
            continue
        top = dot(high)
        result.append(Extent(top, top if low == high else dot(low)))
    return result


def _join(all_extents: list[Extent | None], left: int, right: int, *, held: bool) -> None:
    """Join column `left` to column `right` where both have values and none lies between."""
    start, goal = all_extents[left], all_extents[right]
    assert start is not None
    assert goal is not None
    # From the edge of one to the nearest edge of the other; where they overlap, straight on.
    leave = min(max(goal.bottom, start.top), start.bottom) if goal.bottom <= start.bottom else start.bottom
    enter = min(max(leave, goal.top), goal.bottom)
    distance = right - left
    place = leave
    for column in range(left + 1, right):
        following = leave if held else leave + round((enter - leave) * (column - left) / distance)
        all_extents[column] = _bridge(following, place)
        place = following
    if held:
        all_extents[right] = Extent(min(goal.top, place), max(goal.bottom, place))
    elif place < goal.top - 1:
        all_extents[right] = Extent(place + 1, goal.bottom)
    elif place > goal.bottom + 1:
        all_extents[right] = Extent(goal.top, place - 1)


def _bridge(place: int, before: int) -> Extent:
    """One dot at `place`, lengthened towards the dot `before` in the column to the left so that they touch."""
    if place > before + 1:
        return Extent(before + 1, place)
    if place < before - 1:
        return Extent(place, before - 1)
    return Extent(place, place)


def left_out(column: int, all_extents: Sequence[Extent | None], dots_across: int) -> bool:
    """The gaps of a dashed line: every other cell, but never where it goes beyond what is drawn on either side."""
    offset = column % (2 * dots_across)
    extent = all_extents[column]
    if offset < dots_across or extent is None:
        return False
    before = all_extents[column - offset + dots_across - 1]
    after = column - offset + 2 * dots_across
    sides = [side for side in (before, all_extents[after] if after < len(all_extents) else None) if side]
    if before is None:
        return False
    return min(side.top for side in sides) <= extent.top and extent.bottom <= max(side.bottom for side in sides)
