"""Sentences: what happened, why, what to press; and the help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from textual import events
from textual.binding import BindingType

from amptui.ui.keys import KEYS, textual_bindings
from amptui.ui.raster.heading import heading
from amptui.ui.raster.line import Line, Role, blank
from amptui.ui.raster.prose import Paragraph, prose
from amptui.ui.theme import Look
from amptui.ui.widgets.lines import LineWidget


@dataclass(frozen=True, kw_only=True)
class TextValue:
    title: str = ""
    notes: Sequence[tuple[str, Role]] = ()
    paragraphs: Sequence[Paragraph | None] = field(default_factory=tuple)


class TextPane(LineWidget):
    """Wrapped text that scrolls. Another title scrolls back to the top; the same one keeps the place."""

    BINDINGS: ClassVar[list[BindingType]] = [*textual_bindings([key for key in KEYS if key.group == "Move"])]

    def __init__(self, look: Look, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id, classes=classes)
        self._value = TextValue()
        self._top = 0

    def show(self, value: TextValue) -> None:
        """Show `value`."""
        if value.title != self._value.title:
            self._top = 0
        self._value = value
        self.redraw()

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        value, glyphs = self._value, self.look.glyphs
        with_heading = bool(value.title) and height > 1
        body = height - with_heading
        lines = prose(value.paragraphs, width, glyphs=glyphs)
        self._top = max(0, min(self._top, len(lines) - body))
        more = len(lines) - body - self._top
        seen = (*lines[self._top : self._top + body], *(blank(width) for _ in range(body - len(lines))))
        if not with_heading:
            return seen[:height]
        right = f"{more} more below" if more > 0 else ""
        top = heading(value.title, width, notes=value.notes, right=right, focused=self.has_focus, glyphs=glyphs)
        return (top, *seen)[:height]

    def copy_text(self) -> str:
        """The whole text, unwrapped."""
        return "\n".join(
            "" if item is None else item.lead + "".join(text for text, _ in item.spans)
            for item in self._value.paragraphs
        )

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
