"""A live table."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from amptui.ui.keys import KEYS, textual_bindings
from amptui.ui.raster.line import Line
from amptui.ui.raster.table import Table, TableRow, TableView, scrolled, select, shown_value, table_lines
from amptui.ui.theme import Look
from amptui.ui.widgets.scrolling import ALL, Scrolling


class TablePane(Scrolling):
    """Rows under a heading of column titles. Cursor, order and filter are ways of looking, kept here.

    The cursor stays on its row's id while values and order change under it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*textual_bindings([key for key in KEYS if key.group == "Table"])]

    class Moved(Message):
        """Another row is under the cursor: panes that tell about it have to be painted."""

    def __init__(
        self,
        look: Look,
        *,
        title: str = "",
        view: TableView | None = None,
        id: str | None = None,  # noqa: A002
        classes: str | None = None,
    ) -> None:
        super().__init__(look, id=id, classes=classes)
        self._title = title
        self._table = Table(columns=())
        self._view = view or TableView()

    @property
    def view(self) -> TableView:
        return self._view

    @property
    def selected(self) -> TableRow | None:
        """The row under the cursor."""
        return next((row for row in self._table.rows if row.id == self._view.cursor), None)

    def show(self, value: Table) -> None:
        """Show `value`."""
        height, more = self.styles.height, len(value.rows) != len(self._table.rows)
        self._table = value
        if more and height is not None and height.is_auto:
            self.refresh(layout=True)
        if self._view.filter and self._view.cursor != self._cursor_for(self._view):
            self.look_through(self._view)
        else:
            self.redraw()

    def look_through(self, view: TableView) -> None:
        """Another order, filter or cursor."""
        view = replace(view, cursor=self._cursor_for(view))
        moved = view.cursor != self._view.cursor
        self._view = view
        self.redraw()
        if moved:
            self.post_message(self.Moved())

    def filter_by(self, text: str) -> None:
        """Only rows that contain these words."""
        self.look_through(replace(self._view, filter=text, offset=0))

    def _cursor_for(self, view: TableView) -> str | None:
        """The cursor of `view`, on a row that its filter leaves: what is told beside the table is about that row."""
        if not view.filter:
            return view.cursor
        rows = select(self._table, view)
        if any(row.id == view.cursor for row in rows):
            return view.cursor
        return rows[0].id if rows else None

    def get_content_height(self, container: object, viewport: object, width: int) -> int:  # noqa: ARG002
        """Where the height is as large as need be: the heading, and every row that there is."""
        return 1 + max(1, len(self._table.rows))

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        rows = select(self._table, self._view)
        self._view = replace(self._view, offset=scrolled(self._view, rows, height - 1))
        return table_lines(
            self._table,
            self._view,
            width,
            height,
            focused=self.has_focus,
            title=self._title,
            glyphs=self.look.glyphs,
        )

    def highlighted_row(self) -> int | None:
        if not self.has_focus or self._view.cursor is None:
            return None
        rows = select(self._table, self._view)
        place = next((index for index, row in enumerate(rows) if row.id == self._view.cursor), None)
        return None if place is None or self.size.height < 2 else place - self._view.offset + 1

    def copy_text(self) -> str:
        """All rows that the filter leaves, tab-separated, with the titles."""
        lines = ["\t".join(column.title for column in self._table.columns)]
        for row in select(self._table, self._view):
            cells = zip(row.values, self._table.columns, strict=False)
            lines.append("\t".join(shown_value(value, column)[0] for value, column in cells))
        return "\n".join(lines)

    def action_sort(self) -> None:
        """The next column, largest first; after the last, the order given."""
        columns = len(self._table.columns)
        sort = 0 if self._view.sort is None else self._view.sort + 1
        self.look_through(replace(self._view, sort=sort if sort < columns else None))

    def action_reverse(self) -> None:
        """The other way round."""
        self.look_through(replace(self._view, descending=not self._view.descending))

    def _move(self, lines: int) -> None:
        rows = select(self._table, self._view)
        if not rows:
            return
        place = next((index for index, row in enumerate(rows) if row.id == self._view.cursor), None)
        target = 0 if place is None and lines < ALL else (place or 0) + lines
        self.look_through(replace(self._view, cursor=rows[max(0, min(target, len(rows) - 1))].id))

    def on_click(self, event: events.Click) -> None:
        rows = select(self._table, self._view)
        index = event.y - 1 + self._view.offset
        if event.y >= 1 and index < len(rows):
            self.look_through(replace(self._view, cursor=rows[index].id))
