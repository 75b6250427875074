"""What widgets that scroll have in common: keys, wheel, and lines of which a part is in view below a heading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from amptui.ui.keys import KEYS, shown, textual_bindings
from amptui.ui.raster.heading import heading
from amptui.ui.raster.line import Line, Role, blank
from amptui.ui.widgets.lines import LineWidget

#: More lines than anything has.
ALL = 10**9
_WHEEL = 3


class Scrolling(LineWidget):
    """Keys and wheel scroll; `_move` says what that moves."""

    BINDINGS: ClassVar[list[BindingType]] = [*textual_bindings([key for key in KEYS if key.group == "Move"])]

    def _move(self, lines: int) -> None:
        """Show what lies `lines` further down, or further up where it is negative; called with more than there is."""
        raise NotImplementedError

    def action_down(self) -> None:
        self._move(1)

    def action_up(self) -> None:
        self._move(-1)

    def action_page_down(self) -> None:
        self._move(self._page)

    def action_page_up(self) -> None:
        self._move(-self._page)

    def action_top(self) -> None:
        self._move(-ALL)

    def action_bottom(self) -> None:
        self._move(ALL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._move(_WHEEL)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._move(-_WHEEL)

    @property
    def _page(self) -> int:
        return max(1, self.size.height - 2)


class ScrollingPage(Scrolling):
    """Lines that are read from the top."""

    #: The first line in view.
    _top = 0

    def _move(self, lines: int) -> None:
        self._top = max(0, self._top + lines)
        self.redraw()

    def in_view(
        self, lines: Sequence[Line], width: int, height: int, title: str, notes: Sequence[tuple[str, Role]] = ()
    ) -> tuple[Line, ...]:
        """The part of `lines` that is in view, below a heading where there is a title and room for one."""
        with_heading = bool(title) and height > 1
        body = height - with_heading
        self._top = max(0, min(self._top, len(lines) - body))
        seen = lines[self._top : self._top + body]
        filled = (*seen, *(blank(width) for _ in range(body - len(seen))))
        if not with_heading:
            return filled
        more = len(lines) - body - self._top
        keys = f" {shown('down', self.look.glyphs)}" if self.has_focus else ""
        right = f"{more} more below{keys}" if more > 0 else ""
        return (
            heading(title, width, notes=notes, right=right, focused=self.has_focus, glyphs=self.look.glyphs),
            *filled,
        )
