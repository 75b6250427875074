"""A pane that shows a part of the account, wrapped to its own width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from amptui.ui.keys import KEYS, textual_bindings
from amptui.ui.raster.heading import heading
from amptui.ui.raster.line import Line, blank, plain
from amptui.ui.theme import Look
from amptui.ui.told_page import Tell, told_lines
from amptui.ui.widgets.lines import LineWidget


class ToldPane(LineWidget):
    """Scrolls what `tell` writes. It is told again only when `version` or the width has changed."""

    BINDINGS: ClassVar[list[BindingType]] = [*textual_bindings([key for key in KEYS if key.group == "Move"])]

    def __init__(self, look: Look, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id, classes=classes)
        self._title = ""
        self._tell: Tell = lambda _page: None
        self._version: Sequence[object] | None = None
        self._told: tuple[Line, ...] = ()
        #: The width that `_told` was told for; None where it is out of date.
        self._told_width: int | None = None
        self._top = 0

    def show(self, title: str, version: Sequence[object], tell: Tell) -> None:
        """Show what `tell` writes under `title`; `version` holds what it is told from, compared by identity."""
        if title != self._title:
            self._top = 0
        elif self._version is not None and _same(version, self._version):
            return
        self._title, self._version, self._tell = title, version, tell
        self._told_width = None
        self.redraw()

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        if self._told_width != width:
            self._told = told_lines(self._tell, width)
            self._told_width = width
        with_heading = bool(self._title) and height > 1
        body = height - with_heading
        self._top = max(0, min(self._top, len(self._told) - body))
        seen = self._told[self._top : self._top + body]
        lines = (*seen, *(blank(width) for _ in range(body - len(seen))))
        if not with_heading:
            return lines
        more = len(self._told) - body - self._top
        right = f"{more} more below" if more > 0 else ""
        return (heading(self._title, width, right=right, focused=self.has_focus, glyphs=self.look.glyphs), *lines)

    def copy_text(self) -> str:
        """All of it, not only what is in view."""
        return "\n".join(plain(line).rstrip() for line in self._told)

    def action_down(self) -> None:
        self._scroll(1)

    def action_up(self) -> None:
        self._scroll(-1)

    def action_page_down(self) -> None:
        self._scroll(max(1, self.size.height - 2))

    def action_page_up(self) -> None:
        self._scroll(-max(1, self.size.height - 2))

    def action_top(self) -> None:
        self._scroll(-self._top)

    def action_bottom(self) -> None:
        self._scroll(10**6)

    def _scroll(self, lines: int) -> None:
        self._top = max(0, self._top + lines)
        self.redraw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._scroll(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._scroll(-3)


def _same(one: Sequence[object], other: Sequence[object]) -> bool:
    """Large values are compared by identity: events never change, and comparing them would cost more than drawing."""
    return len(one) == len(other) and all(
        a is b or (isinstance(a, str | int) and a == b) for a, b in zip(one, other, strict=True)
    )
