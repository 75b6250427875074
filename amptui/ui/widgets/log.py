"""A live log: events, or the project's own output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from amptui.ui.raster.heading import heading
from amptui.ui.raster.line import Line
from amptui.ui.raster.log import Entry, log_lines
from amptui.ui.theme import Look
from amptui.ui.widgets.scrolling import Scrolling


@dataclass(frozen=True, kw_only=True)
class LogValue:
    """The entries still held, oldest first, and how many there have been in all (older ones may be gone)."""

    title: str = ""
    entries: Sequence[Entry] = field(default_factory=tuple)
    total: int = 0


class LogPane(Scrolling):
    """Follows the newest entry, unless scrolled back: then the entries looked at stay where they are."""

    def __init__(self, look: Look, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id, classes=classes)
        self._value = LogValue()
        self._back = 0

    def show(self, value: LogValue) -> None:
        """Show `value`; call it a few times a second at most, as every new entry moves all lines."""
        if value == self._value:
            return
        if self._back:
            self._back += max(0, value.total - self._value.total)
        self._value = value
        self.redraw()

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        value, glyphs = self._value, self.look.glyphs
        with_heading = bool(value.title) and height > 1
        body = height - with_heading
        self._back = max(0, min(self._back, len(value.entries) - body))
        lines = log_lines(value.entries, width, body, back=self._back, glyphs=glyphs)
        if not with_heading:
            return lines
        right = f"{self._back:,} newer" if self._back else ""
        return (heading(value.title, width, right=right, focused=self.has_focus, glyphs=glyphs), *lines)

    def copy_text(self) -> str:
        """All entries still held, not only those in view."""
        return "\n".join(f"{entry.when} {entry.text}" if entry.when else entry.text for entry in self._value.entries)

    def _move(self, lines: int) -> None:
        self._back = max(0, self._back - lines)
        self.redraw()
