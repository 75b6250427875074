"""A live table as lines of text: fixed columns, sorted with the broken on top, filtered, scrolled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from amptui.text import display_width, safe_text
from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.line import Align, Cut, Line, Role, Span, blank, clipped, fit
from amptui.ui.raster.numbers import number

Value = str | int | float | bool | None
#: Cells between two columns.
GAP = 2
#: Cells of a filter that its heading shows.
_FILTER = 20


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """One column. Exactly one column of a table may leave `width` None: it takes what is left."""

    title: str
    width: int | None = None
    align: Align = "left"
    cut: Cut = "end"
    #: Shown after a number: " %".
    unit: str = ""
    digits: int = 3


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One row: a stable id, a value for each column, and what it says as a whole (`bad` also shows a mark)."""

    id: str
    values: Sequence[Value]
    role: Role = "text"


@dataclass(frozen=True)
class TableView:
    """How rows are looked at. `sort` is a column index or None for the order given."""

    sort: int | None = None
    descending: bool = True
    filter: str = ""
    cursor: str | None = None
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Table:
    columns: Sequence[TableColumn]
    rows: Sequence[TableRow] = field(default_factory=tuple)
    empty: str = "nothing here yet"


def select(table: Table, view: TableView) -> list[TableRow]:
    """The rows that `view` shows, in its order. NaN and then inf come first when descending: what is broken leads.

    The filter is words that must all occur in the row's texts, in any case.
    """
    words = view.filter.lower().split()
    rows = [row for row in table.rows if not words or _matches(row, words)]
    index = view.sort
    if index is not None and 0 <= index < len(table.columns):
        # Python's sort leaves equals in their order in both directions: rows that are alike do not jump about.
        rows.sort(
            key=lambda row: _order(row.values[index] if index < len(row.values) else None), reverse=view.descending
        )
    return rows


def _matches(row: TableRow, words: Sequence[str]) -> bool:
    text = " ".join(value for value in row.values if isinstance(value, str)).lower()
    return all(word in text for word in words)


def _order(value: Value) -> tuple[int, float, str]:
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, str):
        return (1, 0.0, value)
    if isinstance(value, float) and math.isnan(value):
        return (3, 0.0, "")
    return (2, float(value), "")


def scrolled(view: TableView, rows: Sequence[TableRow], height: int) -> int:
    """The offset nearest to the view's own at which the cursor is seen and no line is wasted."""
    offset = view.offset
    place = next((index for index, row in enumerate(rows) if row.id == view.cursor), None)
    if place is not None:
        offset = min(max(offset, place - height + 1), place)
    return max(0, min(offset, len(rows) - height))


def table_lines(
    table: Table,
    view: TableView,
    width: int,
    height: int,
    *,
    focused: bool = False,
    title: str = "",
    glyphs: Glyphs = UNICODE,
) -> tuple[Line, ...]:
    """A heading with the column titles, then rows, in exactly `height` lines of `width` cells."""
    if width <= 0 or height <= 0:
        return ()
    widths = column_widths(table.columns, width)
    rows = select(table, view)
    body = height - 1
    offset = scrolled(view, rows, body)
    lines = [_header(table, view, widths, width, title, listed=len(rows), focused=focused, glyphs=glyphs)]
    shown = rows[offset : offset + body]
    lines.extend(
        _row(row, table.columns, widths, width, cursor=focused and row.id == view.cursor, glyphs=glyphs)
        for row in shown
    )
    if not rows and body > 0:
        words = f"no row matches “{view.filter}”" if view.filter and table.rows else table.empty
        lines.append(clipped([("  ", "dim"), (words, "dim")], width, glyphs))
    lines.extend(blank(width) for _ in range(height - len(lines)))
    return tuple(lines)


def column_widths(columns: Sequence[TableColumn], width: int) -> list[int]:
    """Cells for each column in a table of `width`; where they do not fit, the last columns get none.

    The flexible column keeps at least 12 cells, as a name that cannot be read tells nothing.
    """
    least = 12
    room = width - 3  # a margin for marks on the left, one cell on the right
    widths = [least if column.width is None else column.width for column in columns]
    shown = len(widths)
    while shown > 1 and sum(widths[:shown]) + GAP * (shown - 1) > room:
        shown -= 1
    widths[shown:] = [0] * (len(widths) - shown)
    spare = room - sum(widths[:shown]) - GAP * (shown - 1)
    for index in range(shown):
        if columns[index].width is None or shown == 1:
            widths[index] = max(0, widths[index] + spare)
            break
    return widths


def _header(
    table: Table,
    view: TableView,
    widths: Sequence[int],
    width: int,
    title: str,
    *,
    listed: int,
    focused: bool,
    glyphs: Glyphs,
) -> Line:
    """Column titles set into the rule above the rows: ``─ layers ────── norm ── max ─``.

    A filter is named behind the first title, with the key that lifts it; it takes the place of titles in its way.
    """
    dash = glyphs.rule_focused if focused else glyphs.rule
    rule: Role = "accent" if focused else "rule"
    spans: list[Span] = []
    used = 0
    left = 2
    for index, (column, cells) in enumerate(zip(table.columns, widths, strict=True)):
        if cells == 0:
            continue
        text = (title or column.title) if index == 0 else column.title
        if view.sort == index:
            text += f" {glyphs.descending if view.descending else glyphs.ascending}"
        room = cells
        if view.filter and index == 0:
            short = fit(view.filter, min(display_width(safe_text(view.filter)), _FILTER), glyphs=glyphs)
            text = f"{text} /{short}: {listed} of {len(table.rows)}, esc shows all"
            room = width - 4
        name = fit(text, min(display_width(safe_text(text)), room), glyphs=glyphs)
        start = left + cells - display_width(name) if column.align == "right" and room == cells else left
        if start < used + 1:
            left += cells + GAP
            continue
        spans.append(Span(dash * (start - 1 - used), rule))
        spans.append(Span(f" {name} ", ("accent" if focused else "strong") if index == 0 else "dim"))
        used = start + display_width(name) + 1
        left += cells + GAP
    return clipped([*spans, Span(dash * max(0, width - used), rule)], width, glyphs)


def _row(
    row: TableRow, columns: Sequence[TableColumn], widths: Sequence[int], width: int, *, cursor: bool, glyphs: Glyphs
) -> Line:
    margin = glyphs.cursor if cursor else (glyphs.fail if row.role == "bad" else " ")
    spans: list[Span] = [Span(f"{margin} ", "accent" if cursor else row.role)]
    for index, (column, cells) in enumerate(zip(columns, widths, strict=True)):
        if cells == 0:
            continue
        value = row.values[index] if index < len(row.values) else None
        text, broken = shown_value(value, column)
        role: Role = "bad" if broken else ("strong" if cursor and index == 0 else row.role if index == 0 else "text")
        spans.append(Span(fit(text, cells, align=column.align, cut=column.cut, glyphs=glyphs), role))
        spans.append(Span(" " * GAP, role))
    return clipped(spans[:-1] if len(spans) > 1 else spans, width, glyphs)


def shown_value(value: Value, column: TableColumn) -> tuple[str, bool]:
    """The text of one cell, and whether it is a number that is not finite."""
    if isinstance(value, bool):
        return ("yes" if value else "no"), False
    if isinstance(value, (int, float)):
        broken = isinstance(value, float) and not math.isfinite(value)
        return number(value, column.digits) + ("" if broken else column.unit), broken
    return ("" if value is None else value), False
