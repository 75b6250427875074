"""A line plot as lines of text: every spike kept, every non-finite value marked, labels that never collide.

The libraries for this were measured: they join a line across NaN, so that a blown-up loss looks smooth, or fail on inf,
and cost four to five times the time and the bytes. A column of dots here is drawn from the smallest to the largest of
all values that fall into it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amptui.text import display_width, safe_text
from amptui.ui.raster.axis import Axis, Scale, axis, ticks
from amptui.ui.raster.canvas import Canvas
from amptui.ui.raster.columns import MINUS_INF, NAN, NON_FINITE, PLUS_INF, Column, Source, columns
from amptui.ui.raster.extents import extents, left_out
from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.line import Line, Role, Span, blank, fit, runs

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
class Limit:
    """A horizontal line at `value`, with a word at its right end: a clipping norm, a tolerance."""

    value: float
    label: str = ""


@dataclass(frozen=True)
class Picture:
    """What `raster` returns: the lines, and the axis to hand back next time so that it holds still."""

    lines: tuple[Line, ...]
    axis: Axis | None


def raster(
    series: Sequence[Trace],
    width: int,
    height: int,
    *,
    scale: Scale = "linear",
    first: int = 0,
    last: int = 0,
    previous: Axis | None = None,
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
    if width <= 0 or height <= 0:
        return Picture((), previous)
    with_steps = height >= TALL if steps is None else steps and height > 1
    rows = height - with_steps
    for gutter in _gutters(previous, rows):
        canvas_width = width - gutter if width >= gutter + NARROW else width
        dots = canvas_width if glyphs.name == "ascii" else 2 * canvas_width
        data = [columns(trace.source, first, last, dots) for trace in series]
        y_axis = _axis(data, scale, previous, limits)
        labels = dict(ticks(y_axis, rows)) if y_axis and canvas_width < width else {}
        if all(len(label) < gutter for label in labels.values()):
            break
    frame = _Frame(canvas_width, rows, glyphs)
    if y_axis is None and not any(column.lost & NON_FINITE for trace in data for column in trace):
        frame.write(empty, (rows - 1) // 2, max(0, (canvas_width - len(empty)) // 2), "dim")
    used = y_axis or axis(0.0, 1.0, scale)
    for limit in limits:
        frame.limit(limit, used)
    for trace, trace_columns in zip(reversed(series), reversed(data), strict=True):
        frame.trace(trace, trace_columns, used)
    for trace, trace_columns in zip(reversed(series), reversed(data), strict=True):
        frame.marks(trace_columns, used, trace)
    for limit in limits:
        frame.limit_label(limit, used)
    lines = _with_axis(frame.lines(), labels, width - canvas_width, glyphs)
    if with_steps:
        lines.append(_step_line(first, last, width - canvas_width, canvas_width))
    return Picture(tuple(lines), y_axis)


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


class _Frame:
    """The cells beside the axis while they are being drawn."""

    def __init__(self, width: int, height: int, glyphs: Glyphs) -> None:
        self.width = width
        self.height = height
        self.glyphs = glyphs
        self.characters = [[" "] * width for _ in range(height)]
        self.roles: list[list[Role]] = [["text"] * width for _ in range(height)]

    def lines(self) -> list[Line]:
        return [runs(row, roles) for row, roles in zip(self.characters, self.roles, strict=True)]

    def put(self, row: int, cell: int, character: str, role: Role) -> None:
        self.characters[row][cell] = character
        self.roles[row][cell] = role

    def write(self, text: str, row: int, cell: int, role: Role) -> None:
        """`text` from `cell` on, as far as it is made of single-cell characters and fits."""
        for character in fit(text, max(0, self.width - cell), glyphs=self.glyphs):
            if display_width(character) != 1 or cell >= self.width:
                return
            self.put(row, cell, character, role)
            cell += 1

    def limit(self, limit: Limit, used: Axis) -> None:
        row = self._limit_row(limit, used)
        if row is None:
            return
        for cell in range(self.width):
            self.put(row, cell, self.glyphs.limit, "dim")

    def limit_label(self, limit: Limit, used: Axis) -> None:
        """The word of `limit` at the right end of its line, or the left one, where no curve is in the way."""
        row = self._limit_row(limit, used)
        text = fit(limit.label, min(display_width(safe_text(limit.label)), self.width // 2), glyphs=self.glyphs)
        room = display_width(text) + 1
        if row is None or not text:
            return
        for start, padded in ((self.width - room, f" {text}"), (0, f"{text} ")):
            under = self.characters[row][start : start + room]
            if all(character in (" ", self.glyphs.limit) for character in under):
                self.write(padded, row, start, "dim")
                return

    def _limit_row(self, limit: Limit, used: Axis) -> int | None:
        seen = math.isfinite(limit.value) and used.shows(limit.value) and _inside(limit.value, used)
        return self._row(limit.value, used) if seen and self.height else None

    def trace(self, trace: Trace, trace_columns: Sequence[Column], used: Axis) -> None:
        canvas = Canvas(self.width, self.height, self.glyphs)
        covered = extents(trace_columns, used, canvas.rows, held=trace.held)
        for column, extent in enumerate(covered):
            if extent and not (trace.dashed and left_out(column, covered, canvas.dots_across)):
                canvas.draw(column, extent.top, extent.bottom)
        for row, cell, character in canvas.drawn():
            self.put(row, cell, character, trace.role)

    def marks(self, trace_columns: Sequence[Column], used: Axis, trace: Trace) -> None:
        """Crosses for values that are not finite, arrows for those below a logarithmic axis."""
        if self.height == 0:
            return
        across = 1 if self.glyphs.name == "ascii" else 2
        newest: float | None = None
        for index, column in enumerate(trace_columns):
            cell = index // across
            if column.has_value:
                newest = column.high
                if not used.shows(column.low):
                    self.put(self.height - 1, cell, self.glyphs.below, trace.role if trace.dashed else "warn")
            if column.lost & NON_FINITE:
                rows = ((NAN, self._row(newest, used)), (MINUS_INF, self.height - 1), (PLUS_INF, 0))
                for row in (row for bit, row in rows if column.lost & bit):
                    self.put(row, cell, self.glyphs.lost, "bad")

    def _row(self, value: float | None, used: Axis) -> int:
        """The row of `value`; the middle one where there is none."""
        share = 0.5 if value is None else used.fraction(value)
        return min(self.height - 1, int((1 - share) * self.height))


def _inside(value: float, used: Axis) -> bool:
    exact = 1e-9
    place = used.fraction(value)
    if exact < place < 1 - exact:
        return True
    # At an end `fraction` may have clamped: compare with the end itself.
    end = used.low if place <= exact else used.high
    own = value if used.scale == "linear" else (math.log2(value) if used.scale == "log2" else math.log10(value))
    return math.isclose(own, end, rel_tol=1e-9, abs_tol=1e-300)


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
