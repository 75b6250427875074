"""A line of the screen as data: runs of text, each with a role. Colour comes later, from the theme.

Everything that draws returns lines of this kind, so that a screen's content can be tested, printed and copied without
a terminal. Widths are in terminal cells. All text passes `safe_text` here, which leaves amptui's own glyphs alone: a
raster can be handed a foreign label without further thought.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from amptui.text import display_width, safe_text
from amptui.ui.raster.glyphs import UNICODE, Glyphs

Role = Literal[
    "text",
    "dim",  # second in importance: units, axes, words that never change
    "strong",
    "accent",  # where the user is: the focused pane, the current stage
    "good",
    "warn",
    "bad",
    "trial",
    "baseline",
    "rule",
    "key",
]
Align = Literal["left", "right"]
#: Which end of an overlong text goes: of a module path the beginning tells least.
Cut = Literal["end", "start"]


class Span(NamedTuple):
    text: str
    role: Role = "text"


Line = tuple[Span, ...]


def plain(line: Line) -> str:
    """The characters of `line`, without roles."""
    return "".join(text for text, _ in line)


def width_of(line: Line) -> int:
    """How many cells `line` takes."""
    return sum(display_width(text) for text, _ in line)


def fit(text: object, width: int, *, align: Align = "left", cut: Cut = "end", glyphs: Glyphs = UNICODE) -> str:
    """`text`, safe, in exactly `width` cells: padded, or cut with an ellipsis at one end."""
    if width <= 0:
        return ""
    safe = safe_text(text, limit=2000)
    used = display_width(safe)
    if used > width:
        safe = glyphs.ellipsis if width == 1 else _cut(safe, width - 1, cut, glyphs)
        used = display_width(safe)
    padding = " " * (width - used)
    return padding + safe if align == "right" else safe + padding


def _cut(text: str, room: int, cut: Cut, glyphs: Glyphs) -> str:
    if cut == "end":
        return _prefix(text, room) + glyphs.ellipsis
    kept = _prefix(text[::-1], room)[::-1]
    # A combining mark would sit on the ellipsis.
    while kept and display_width(kept[0]) == 0:
        kept = kept[1:]
    return glyphs.ellipsis + kept


def _prefix(text: str, room: int) -> str:
    """The longest beginning of `text` that takes at most `room` cells."""
    if text.isascii():
        return text[:room]
    used = 0
    for position, character in enumerate(text):
        used += display_width(character)
        if used > room:
            return text[:position]
    return text


def joined(spans: Iterable[Span | tuple[str, Role]]) -> Line:
    """`spans` made safe, without empty ones, neighbours of one role made one; blanks take a neighbour's role.

    Each run costs a colour sequence of 20 bytes on its way to the terminal, and a blank shows no colour.
    """
    result: list[Span] = []
    for text, role in spans:
        if not text:
            continue
        safe = safe_text(text, limit=2000)
        before = result[-1] if result else None
        if before and (before.role == role or not safe.strip(" ")):
            result[-1] = Span(before.text + safe, before.role)
        elif before and not before.text.strip(" "):
            result[-1] = Span(before.text + safe, role)
        else:
            result.append(Span(safe, role))
    return tuple(result)


def clipped(spans: Iterable[Span | tuple[str, Role]], width: int, glyphs: Glyphs = UNICODE) -> Line:
    """`spans` as a line of exactly `width` cells: padded with blanks, or cut with an ellipsis."""
    if width <= 0:
        return ()
    line = joined(spans)
    used = width_of(line)
    if used <= width:
        return joined((*line, Span(" " * (width - used), line[-1].role if line else "text")))
    kept: list[Span] = []
    room = width
    for text, role in line:
        needed = display_width(text)
        if needed >= room:
            # The ellipsis is due even where this span alone would fit: more follows.
            cut = fit(text + glyphs.ellipsis, room, glyphs=glyphs) if needed > room else _ended(text, room, glyphs)
            kept.append(Span(cut, role))
            break
        kept.append(Span(text, role))
        room -= needed
    return joined(kept)


def _ended(text: str, width: int, glyphs: Glyphs) -> str:
    return fit(_prefix(text, width - 1) + glyphs.ellipsis, width, glyphs=glyphs)


def runs(characters: Sequence[str], roles: Sequence[Role]) -> Line:
    """A row of single-cell characters, already safe, with a role each, as a line."""
    result: list[Span] = []
    start = 0
    role: Role | None = None
    for position, character in enumerate(characters):
        if character == " " or roles[position] == role:
            continue
        if role is not None:
            result.append(Span("".join(characters[start:position]), role))
            start = position
        role = roles[position]
    if characters:
        result.append(Span("".join(characters[start:]), role or "text"))
    return tuple(result)


def blank(width: int) -> Line:
    """A line of `width` blanks."""
    return (Span(" " * width),) if width > 0 else ()


def centred(text: str, width: int, height: int, role: Role = "dim") -> tuple[Line, ...]:
    """`height` lines of `width` cells with `text` in the middle."""
    if width <= 0 or height <= 0:
        return ()
    shown = fit(text, min(width, display_width(safe_text(text))))
    left = (width - display_width(shown)) // 2
    middle = clipped([(" " * left, role), (shown, role)], width)
    return tuple(middle if row == (height - 1) // 2 else blank(width) for row in range(height))
