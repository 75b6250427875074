"""A line plot as lines of text: every spike kept, every non-finite value marked, labels that never collide.

The libraries for this were measured: they join a line across NaN, so that a blown-up loss looks smooth, or fail on inf,
and cost four to five times the time and the bytes. A column of dots here is drawn from the smallest to the largest of
all values that fall into it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from amptui.ui.raster.axis import Axis, Scale, axis, ticks
from amptui.ui.raster.canvas import dots_of
from amptui.ui.raster.columns import Column, Source
from amptui.ui.raster.frame import Frame, Limit
from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.line import Line, Role, Span, blank, fit
from amptui.ui.raster.traced import Traced, Window, summary, traced

#: Cells for labels and the axis; the wide one only where a label needs it, as every change moves the picture.
GUTTER, WIDE_GUTTER = 6, 8
#: The plot needs this many cells beside the axis; below, the axis is left out.
NARROW = 6
#: A row of steps below the plot is worth its place from this height on.
TALL = 6


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One series of a plot. `held` values stay until the next one (a scale factor), others are joined by lines."""

    source: Source
    role: Role = "trial"
    dashed: bool = False
    held: bool = False


@dataclass(frozen=True)
class Picture:
    """What `raster` returns, to be handed back next time: the axis holds still, and what did not change is kept."""

    lines: tuple[Line, ...]
    axis: Axis | None
    traced: tuple[Traced, ...] = field(default=(), repr=False, compare=False)
    #: All that the lines depend on.
    drawn_from: object = field(default=None, repr=False, compare=False)


def raster(
    series: Sequence[Trace],
    width: int,
    height: int,
    *,
    scale: Scale = "linear",
    first: int = 0,
    last: int = 0,
    previous: Picture | None = None,
    limits: Sequence[Limit] = (),
    steps: bool | None = None,
    empty: str = "no values yet",
    glyphs: Glyphs = UNICODE,
) -> Picture:
    """`series` over the steps `first` to `last` inclusive, in exactly `height` lines of `width` cells.

    The first trace lies on top: a cell that it touches shows nothing of the others. A column that holds a value which
    is not finite shows a cross: inf at the top, -inf at the bottom, NaN where the line broke off. On a logarithmic
    scale, zero and negative values show as arrows at the bottom. `limits` widen the axis only if they are near.
    `steps` draws a last line with step numbers; by default from six lines on. `empty` is shown without any value.
    """
    held_axis = previous.axis if previous is not None else None
    if width <= 0 or height <= 0:
        return Picture((), held_axis)
    with_steps = height >= TALL if steps is None else steps and height > 1
    rows = height - with_steps
    before = _before(series, previous)
    dots_across, dots_down = dots_of(glyphs)
    for gutter in _gutters(held_axis, rows):
        canvas_width = width - gutter if width >= gutter + NARROW else width
        window = Window(first, last, canvas_width * dots_across)
        data = [summary(trace.source, window, known) for trace, known in zip(series, before, strict=True)]
        y_axis = _axis([summed.columns for summed in data], scale, held_axis, limits)
        labels = dict(ticks(y_axis, rows)) if y_axis and canvas_width < width else {}
        if all(len(label) < gutter for label in labels.values()):
            break
    used = y_axis or axis(0.0, 1.0, scale)
    placed = tuple(
        traced(summed, used, rows * dots_down, dots_across, held=trace.held, before=known)
        for trace, summed, known in zip(series, data, before, strict=True)
    )
    looks = [(trace.role, trace.dashed, one.extents, one.marks) for trace, one in zip(series, placed, strict=True)]
    drawn_from = (width, height, with_steps, first, last, y_axis, used, labels, tuple(limits), empty, glyphs, looks)
    if previous is not None and previous.drawn_from == drawn_from:
        return replace(previous, traced=placed)
    frame = Frame(canvas_width, rows, glyphs)
    if y_axis is None and not any(mark.lost for one in placed for mark in one.marks):
        frame.write(empty, (rows - 1) // 2, max(0, (canvas_width - len(empty)) // 2), "dim")
    for limit in limits:
        frame.limit(limit, used)
    for trace, one in zip(reversed(series), reversed(placed), strict=True):
        frame.trace(one, trace.role, dashed=trace.dashed)
    for trace, one in zip(reversed(series), reversed(placed), strict=True):
        frame.marks(one, trace.role if trace.dashed else "warn")
    for limit in limits:
        frame.limit_label(limit, used)
    lines = _with_axis(frame.lines(), labels, width - canvas_width, glyphs)
    if with_steps:
        lines.append(_step_line(first, last, width - canvas_width, canvas_width))
    return Picture(tuple(lines), y_axis, placed, drawn_from)


def _before(series: Sequence[Trace], previous: Picture | None) -> Sequence[Traced | None]:
    """What each of `series` was traced as in the picture before."""
    known: Sequence[Traced] = previous.traced if previous is not None else ()
    return [known[place] if place < len(known) else None for place in range(len(series))]


def _gutters(previous: Axis | None, rows: int) -> tuple[int, ...]:
    """The gutters to try: the wide one at once where the last picture needed it."""
    wide = previous is not None and any(len(label) >= GUTTER for _, label in ticks(previous, rows))
    return (WIDE_GUTTER,) if wide else (GUTTER, WIDE_GUTTER)


def _axis(
    data: Sequence[Sequence[Column]], scale: Scale, previous: Axis | None, limits: Sequence[Limit]
) -> Axis | None:
    lows = [column.low for trace in data for column in trace if column.has_value]
    if not lows:
        return previous
    low, high = min(lows), max(column.high for trace in data for column in trace)
    if scale != "linear":
        # The smallest positive value; a column's low may be zero while its high is not.
        positive = [edge for trace in data for column in trace for edge in column[:2] if 0 < edge < math.inf]
        low = min(positive, default=0.0)
    for limit in limits:
        if math.isfinite(limit.value) and _near(limit.value, low, high, scale):
            low, high = min(low, limit.value), max(high, limit.value)
    return axis(low, high, scale, previous)


def _near(value: float, low: float, high: float, scale: Scale) -> bool:
    """Whether showing `value` too leaves the data at least half of the picture."""
    if scale != "linear":
        return value > 0 and low > 0 and low / 10 <= value <= high * 10
    span = high - low
    return low - span <= value <= high + span


def _with_axis(lines: list[Line], labels: Mapping[int, str], gutter: int, glyphs: Glyphs) -> list[Line]:
    if gutter == 0:
        return lines
    return [
        (Span(fit(labels.get(row, ""), gutter - 1, align="right") + _axis_mark(row in labels, glyphs), "dim"), *line)
        for row, line in enumerate(lines)
    ]


def _axis_mark(labelled: bool, glyphs: Glyphs) -> str:
    return glyphs.tick if labelled else glyphs.vertical


def _step_line(first: int, last: int, gutter: int, width: int) -> Line:
    """The steps at both ends and, with room, in the middle; a label that would touch another is left out."""
    cells = [" "] * (gutter + width)
    taken = -2
    middle = (first + last) // 2
    start, end = f"{first:,}", f"{last:,}"
    candidates = [(start, gutter), (f"{middle:,}", gutter + (width - len(f"{middle:,}")) // 2)]
    final = gutter + width - len(end)
    for text, at in candidates:
        before_end = last == first or at + len(text) + 2 <= final
        if at >= taken + 2 and at + len(text) <= gutter + width and before_end:
            cells[at : at + len(text)] = text
            taken = at + len(text)
        if last - first < 4:
            break
    if last != first and final >= taken + 2 and final >= gutter:
        cells[final : final + len(end)] = end
    return (Span("".join(cells), "dim"),) if cells else blank(0)
