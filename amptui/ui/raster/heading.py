"""The one line above a pane: its name, what its lines mean, and whether it has the focus."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.line import Line, Role, Span, clipped, joined, width_of


def heading(
    title: str,
    width: int,
    *,
    notes: Sequence[tuple[str, Role]] = (),
    right: str = "",
    focused: bool = False,
    glyphs: Glyphs = UNICODE,
) -> Line:
    """``─ title   notes ───────── right ─`` in exactly `width` cells; heavy and accented where focused.

    `right` goes first where room is short, then the end of the notes.
    """
    return _heading(title, width, tuple(notes), right, focused, glyphs)


@lru_cache(64)  # most headings are the same from one paint to the next
def _heading(
    title: str, width: int, notes: tuple[tuple[str, Role], ...], right: str, focused: bool, glyphs: Glyphs
) -> Line:
    if width <= 0:
        return ()
    role: Role = "accent" if focused else "rule"
    dash = glyphs.rule_focused if focused else glyphs.rule
    left: list[Span] = [Span(f"{dash} ", role), Span(title, "accent" if focused else "strong")]
    if notes:
        left.append(Span("   "))
        left.extend(Span(text, note_role) for text, note_role in notes)
    left.append(Span(" ", role))
    used = width_of(joined(left))
    tail = [Span(f" {right} ", "dim"), Span(dash, role)] if right else []
    room = width - used - width_of(joined(tail))
    if room < 1:
        tail = []
        room = max(0, width - used)
    return clipped([*left, Span(dash * room, role), *tail], width, glyphs)


def legend(entries: Sequence[tuple[str, Role, bool]], glyphs: Glyphs = UNICODE) -> list[tuple[str, Role]]:
    """Notes that say which line is which: (name, role, dashed) → ``trial ━ baseline ┄``."""
    notes: list[tuple[str, Role]] = []
    for position, (name, role, dashed) in enumerate(entries):
        notes.append((f"{'  ' if position else ''}{name} ", "dim"))
        notes.append((glyphs.dashed_key if dashed else glyphs.solid_key, role))
    return notes
