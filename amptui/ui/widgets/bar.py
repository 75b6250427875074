"""One line of text: the title, the stages, the footer, a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from amptui.ui.raster.line import Line, Role, Span, clipped
from amptui.ui.theme import Look
from amptui.ui.widgets.lines import LineWidget


class Bar(LineWidget, can_focus=False):
    """A single line, with a left part and a right part; the right one goes first where room is short."""

    DEFAULT_CSS: ClassVar[str] = """
    Bar { height: 1; width: 1fr; }
    """

    def __init__(self, look: Look, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id, classes=classes)
        self._left: Sequence[tuple[str, Role]] = ()
        self._right: Sequence[tuple[str, Role]] = ()

    def show(self, left: Sequence[tuple[str, Role]], right: Sequence[tuple[str, Role]] = ()) -> None:
        """Show these runs of text."""
        self._left, self._right = left, right
        self.redraw()

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        return tuple(bar_line(self._left, self._right, width) for _ in range(min(1, height)))


def bar_line(left: Sequence[tuple[str, Role]], right: Sequence[tuple[str, Role]], width: int) -> Line:
    """`left` and `right` at the two ends of a line of `width` cells."""
    room = width - sum(len(text) for text, _ in right)
    if room < sum(len(text) for text, _ in left) + 2:
        return clipped(left, width)
    return clipped([*clipped(left, room), *(Span(text, role) for text, role in right)], width)
