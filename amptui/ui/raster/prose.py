"""Sentences on the screen: wrapped at words, with an indent that hangs, foreign text safe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amptui.text import display_width, safe_text
from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.line import Line, Role, Span, blank, clipped


@dataclass(frozen=True)
class Paragraph:
    """Runs of text wrapped together. The first line begins with `lead` (a mark); the others are set in as far."""

    spans: Sequence[tuple[str, Role]]
    lead: str = ""
    lead_role: Role = "text"
    #: Code and paths: a line is cut at cells, not at words, and its blanks are kept.
    literal: bool = False


def paragraph(text: str, role: Role = "text", *, lead: str = "", lead_role: Role = "text") -> Paragraph:
    """One run of text as a paragraph."""
    return Paragraph(((text, role),), lead, lead_role)


def prose(paragraphs: Sequence[Paragraph | None], width: int, *, glyphs: Glyphs = UNICODE) -> tuple[Line, ...]:
    """`paragraphs` wrapped into lines of exactly `width` cells; None is an empty line."""
    if width <= 0:
        return ()
    lines: list[Line] = []
    for item in paragraphs:
        if item is None:
            lines.append(blank(width))
        else:
            lines.extend(_wrapped(item, width, glyphs))
    return tuple(lines)


def _wrapped(item: Paragraph, width: int, glyphs: Glyphs) -> list[Line]:
    lead = safe_text(item.lead)
    indent = display_width(lead)
    if indent > width // 2:
        lead, indent = "", 0
    room = width - indent
    rows: list[list[Span]] = [[]]
    used = 0
    for word, role in _words(item):
        for piece in _pieces(word, room):
            cells = display_width(piece)
            if used + cells > room and used:
                if piece.isspace() and not item.literal:
                    continue
                rows.append([])
                used = 0
            if not used and piece.isspace() and len(rows) > 1 and not item.literal:
                continue
            rows[-1].append(Span(piece, role))
            used += cells
    margin = Span(" " * indent)
    return [
        clipped([Span(lead, item.lead_role) if number == 0 else margin, *row], width, glyphs)
        for number, row in enumerate(rows)
    ]


def _words(item: Paragraph) -> list[tuple[str, Role]]:
    """Words and the blanks between them, with roles. Every newline in the text is a blank."""
    result: list[tuple[str, Role]] = []
    for text, role in item.spans:
        safe = safe_text(text.replace("\n", " "), limit=4000)
        word = ""
        for character in safe:
            if character == " ":
                if word:
                    result.append((word, role))
                    word = ""
                result.append((" ", role))
            else:
                word += character
        if word:
            result.append((word, role))
    return result


def _pieces(word: str, room: int) -> list[str]:
    """`word` cut into pieces of at most `room` cells."""
    if display_width(word) <= room:
        return [word]
    pieces: list[str] = []
    piece, used = "", 0
    for character in word:
        cells = display_width(character)
        if used + cells > room and piece:
            pieces.append(piece)
            piece, used = "", 0
        piece += character
        used += cells
    return [*pieces, piece]
