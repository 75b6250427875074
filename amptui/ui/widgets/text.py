"""Sentences: what happened, why, what to press; and the help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from amptui.ui.raster.line import Line, Role
from amptui.ui.raster.prose import Paragraph, prose
from amptui.ui.theme import Look
from amptui.ui.widgets.scrolling import ScrollingPage


@dataclass(frozen=True, kw_only=True)
class TextValue:
    title: str = ""
    notes: Sequence[tuple[str, Role]] = ()
    paragraphs: Sequence[Paragraph | None] = field(default_factory=tuple)


class TextPane(ScrollingPage):
    """Wrapped text that scrolls. Another title scrolls back to the top; the same one keeps the place."""

    def __init__(self, look: Look, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id, classes=classes)
        self._value = TextValue()

    def show(self, value: TextValue) -> None:
        """Show `value`."""
        if value == self._value:
            return
        if value.title != self._value.title:
            self._top = 0
        self._value = value
        self.redraw()

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        value = self._value
        lines = prose(value.paragraphs, width, glyphs=self.look.glyphs)
        return self.in_view(lines, width, height, value.title, value.notes)

    def copy_text(self) -> str:
        """The whole text, unwrapped."""
        return "\n".join(
            "" if item is None else item.lead + "".join(text for text, _ in item.spans)
            for item in self._value.paragraphs
        )
