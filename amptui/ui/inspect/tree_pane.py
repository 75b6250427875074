"""The tree of contents: folds, searches, follows the cursor."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from amptui.ui.inspect.contents import Contents, Entry, Shown, TreeView, scrolled, shown
from amptui.ui.inspect.keys import INSPECT_KEYS
from amptui.ui.inspect.tree_lines import tree_lines
from amptui.ui.keys import textual_bindings
from amptui.ui.raster.line import Line
from amptui.ui.theme import Look
from amptui.ui.widgets.scrolling import Scrolling


class TreePane(Scrolling):
    """Cursor, open branches and search are ways of looking, kept here; values that arrive later leave them alone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *textual_bindings([key for key in INSPECT_KEYS if key.group == "Contents"])
    ]

    class Moved(Message):
        """Another entry is under the cursor."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id)
        self._contents = Contents()
        self._view = TreeView()
        self._shown = Shown()
        self._values_read = True
        self._empty = "reading"

    @property
    def contents(self) -> Contents:
        return self._contents

    @property
    def view(self) -> TreeView:
        return self._view

    @property
    def entry(self) -> Entry | None:
        """The entry under the cursor, if it is shown."""
        return self._contents.entries[self._shown.rows[self._place]] if self._shown.rows else None

    def show(self, contents: Contents, *, values_read: bool, empty: str, room: int) -> None:
        """Show `contents`, at first about `room` rows of it; the same tree with more known keeps the place."""
        if contents is self._contents and (values_read, empty) == (self._values_read, self._empty):
            return
        same = len(contents.entries) == len(self._contents.entries) > 0
        self._contents, self._values_read, self._empty = contents, values_read, empty
        if not same:
            self._view = TreeView(contents.first_opened(room))
        self._shown = shown(contents, self._view)
        self._moved()

    def look_through(self, view: TreeView) -> None:
        """Another cursor, fold or search."""
        if (view.opened, view.search) != (self._view.opened, self._view.search):
            self._shown = shown(self._contents, view)
        self._view = view
        self._moved()

    def search(self, text: str) -> None:
        """Only what has these words in its path, the cursor on the first; without words, everything again."""
        if not text.strip():
            if self._view.search:
                self.look_through(self._view.reveal(self._contents, self._view.cursor))
            return
        self.look_through(replace(self._view, search=text, offset=0))
        if self._shown.first is not None:
            self.look_through(replace(self._view, cursor=self._shown.first))

    def go_to(self, index: int) -> None:
        """The cursor on this entry, wherever it is."""
        self.look_through(self._view.reveal(self._contents, index))

    def next_bad(self) -> None:
        """The next tensor that is not finite, from the top again after the last."""
        bad = self._contents.bad
        if bad:
            self.go_to(next((index for index in bad if index > self._view.cursor), bad[0]))

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        rows = self._shown.rows
        offset = scrolled(self._view.offset, self._place, len(rows), height - 1)
        self._view = replace(self._view, offset=offset)
        return tree_lines(
            self._contents,
            self._view,
            self._shown,
            width,
            height,
            values_read=self._values_read,
            focused=self.has_focus,
            empty=self._empty,
            glyphs=self.look.glyphs,
        )

    def highlighted_row(self) -> int | None:
        if not self.has_focus or not self._shown.rows or self.size.height < 2:
            return None
        return self._place - self._view.offset + 1

    def copy_text(self) -> str:
        """The path of the entry under the cursor, with what is told of it."""
        entry = self.entry
        return f"{entry.path}  {entry.text}" if entry is not None else ""

    @property
    def _place(self) -> int:
        """The row that the cursor is on; the nearest one before it where its own is folded away."""
        return max(0, bisect_right(self._shown.rows, self._view.cursor) - 1)

    def _moved(self) -> None:
        self.redraw()
        self.post_message(self.Moved())

    def _move(self, lines: int) -> None:
        rows = self._shown.rows
        if rows:
            self.look_through(replace(self._view, cursor=rows[max(0, min(self._place + lines, len(rows) - 1))]))

    def action_turn(self) -> None:
        self._fold(self._view.cursor in self._view.opened)

    def action_open(self) -> None:
        """Opens the branch; one that is open already is gone into."""
        if self._view.cursor in self._view.opened or self._view.search:
            self._move(1)
        else:
            self._fold(False)

    def action_close(self) -> None:
        """Closes the branch; from one that is closed, or no branch, up to the one it is in."""
        if not self._contents.entries:
            return
        parent = self._contents.entries[self._view.cursor].parent
        if self._view.cursor in self._view.opened and not self._view.search:
            self._fold(True)
        elif parent >= 0:
            self.look_through(replace(self._view, cursor=parent))

    def action_open_all(self) -> None:
        branches = (index for index in range(len(self._contents.entries)) if self._contents.is_branch(index))
        self.look_through(replace(self._view, opened=frozenset(branches)))

    def action_close_all(self) -> None:
        top = self._view.cursor
        for parent in self._contents.ancestors(top) if self._contents.entries else ():
            top = parent
        self.look_through(replace(self._view, opened=frozenset(), cursor=top))

    def _fold(self, close: bool) -> None:
        cursor = self._view.cursor
        if cursor >= len(self._contents.entries) or not self._contents.is_branch(cursor):
            return
        if self._view.search:
            self.go_to(cursor)
        opened = self._view.opened - {cursor} if close else self._view.opened | {cursor}
        self.look_through(replace(self._view, opened=opened))

    def on_click(self, event: events.Click) -> None:
        place = event.y - 1 + self._view.offset
        if event.y >= 1 and place < len(self._shown.rows):
            index = self._shown.rows[place]
            if index == self._view.cursor:
                self.action_turn()
            else:
                self.look_through(replace(self._view, cursor=index))
