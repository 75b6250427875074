"""A pane that shows a part of the account, wrapped to its own width."""

from __future__ import annotations

from collections.abc import Sequence

from amptui.ui.raster.line import Line, plain
from amptui.ui.theme import Look
from amptui.ui.told_page import Tell, told_lines
from amptui.ui.widgets.scrolling import ScrollingPage


class ToldPane(ScrollingPage):
    """Scrolls what `tell` writes. It is told again only when `version` or the width has changed."""

    def __init__(self, look: Look, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id, classes=classes)
        self._title = ""
        self._tell: Tell = lambda _page: None
        self._version: Sequence[object] | None = None
        self._told: tuple[Line, ...] = ()
        #: The width that `_told` was told for; None where it is out of date.
        self._told_width: int | None = None

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
        return self.in_view(self._told, width, height, self._title)

    def copy_text(self) -> str:
        """All of it, not only what is in view."""
        return "\n".join(plain(line).rstrip() for line in self._told)


def _same(one: Sequence[object], other: Sequence[object]) -> bool:
    """Large values are compared by identity: events never change, and comparing them would cost more than drawing."""
    return len(one) == len(other) and all(
        a is b or (isinstance(a, str | int) and a == b) for a, b in zip(one, other, strict=True)
    )
