"""The lines that lead on: what to press is always whole, what is true now gives way."""

from __future__ import annotations

from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.line import Line, Role, Span, blank, clipped, plain
from amptui.ui.raster.prose import Paragraph, prose
from amptui.ui.theme import Look
from amptui.ui.widgets.lines import LineWidget


def guidance_lines(
    now: Paragraph, press: Paragraph, width: int, height: int, glyphs: Glyphs = UNICODE
) -> tuple[Line, ...]:
    """`now` and below it `press`, in exactly `height` lines of `width` cells."""
    below = prose([press], width, glyphs=glyphs)[:height] if any(text for text, _ in press.spans) else ()
    above = prose([now], width, glyphs=glyphs)
    room = height - len(below)
    if len(above) > room:
        kept = list(above[:room])
        if kept:
            # Longer than the line, so that it ends in the sign of a cut.
            rest = f" {plain(above[room]).strip()} {'.' * width}"
            role: Role = next((span.role for span in reversed(kept[-1]) if span.text.strip()), "text")
            kept[-1] = clipped([*_stripped(kept[-1]), Span(rest, role)], width, glyphs)
        above = tuple(kept)
    filled = (*above, *below)
    return (*filled, *(blank(width) for _ in range(height - len(filled))))


def _stripped(line: Line) -> list[Span]:
    """Without the blanks that fill a line up."""
    spans = list(line)
    while spans and not spans[-1].text.strip():
        spans.pop()
    if spans:
        spans[-1] = Span(spans[-1].text.rstrip(), spans[-1].role)
    return spans


class GuidancePane(LineWidget, can_focus=False):
    """What is true now, and what to press."""

    def __init__(self, look: Look, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id)
        self._now = self._press = Paragraph(())

    def show(self, now: Paragraph, press: Paragraph) -> None:
        """Show both."""
        self._now, self._press = now, press
        self.redraw()

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        return guidance_lines(self._now, self._press, width, height, self.look.glyphs)
