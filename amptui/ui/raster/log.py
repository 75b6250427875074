"""Events and the project's own output as lines: when, a mark, what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.line import Line, Role, Span, blank, clipped, fit


@dataclass(frozen=True)
class Entry:
    """One line of a log. `when` is a step or a time, already text; `role` good, warn or bad also shows a mark."""

    text: str
    role: Role = "text"
    when: str = ""


def mark_of(role: Role, glyphs: Glyphs = UNICODE) -> str:
    """The shape that says what the colour says; a blank for entries that only tell."""
    marks: dict[Role, str] = {"good": glyphs.ok, "warn": glyphs.warn, "bad": glyphs.fail}
    return marks.get(role, " ")


def log_lines(
    entries: Sequence[Entry], width: int, height: int, *, back: int = 0, glyphs: Glyphs = UNICODE
) -> tuple[Line, ...]:
    """The newest entries at the bottom, `back` lines scrolled up, in exactly `height` lines of `width` cells.

    A long entry is cut, not wrapped: the pane would jump. The text pane shows it whole.
    """
    if width <= 0 or height <= 0:
        return ()
    end = max(min(height, len(entries)), len(entries) - max(0, back))
    shown = entries[max(0, end - height) : end]
    times = min(max((len(entry.when) for entry in shown), default=0), 8)
    marked = any(mark_of(entry.role, glyphs) != " " for entry in shown)
    lines = [_entry(entry, times, width, marked=marked, glyphs=glyphs) for entry in shown]
    lines.extend(blank(width) for _ in range(height - len(lines)))
    return tuple(lines)


def _entry(entry: Entry, times: int, width: int, *, marked: bool, glyphs: Glyphs) -> Line:
    spans: list[Span] = []
    if times:
        spans.append(Span(fit(entry.when, times, align="right", glyphs=glyphs) + " ", "dim"))
    if marked:
        spans.append(Span(mark_of(entry.role, glyphs) + " ", entry.role))
    text_role: Role = "text" if entry.role in ("good", "warn") else entry.role
    spans.append(Span(entry.text, text_role))
    return clipped(spans, width, glyphs)
