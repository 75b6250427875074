"""What became of each update, one mark per iteration: applied ✓, skipped ↷, withheld ×."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.line import Line, Role, Span, blank, clipped, fit

#: From the least to the most worth seeing. `absent`: the update had no part in this iteration (a critic's step).
Outcome = Literal["absent", "applied", "skipped", "withheld"]
OUTCOMES: tuple[Outcome, ...] = ("absent", "applied", "skipped", "withheld")

_ROLES: dict[Outcome, Role] = {"absent": "dim", "applied": "good", "skipped": "warn", "withheld": "bad"}


@dataclass(frozen=True)
class Row:
    """One update: its name, and what became of it, oldest first. None leaves a blank."""

    label: str
    outcomes: Sequence[Outcome | None]


def mark(outcome: Outcome, glyphs: Glyphs = UNICODE) -> tuple[str, Role]:
    """The character and the role that stand for `outcome`."""
    shapes: dict[Outcome, str] = {
        "absent": glyphs.absent,
        "applied": glyphs.ok,
        "skipped": glyphs.skipped,
        "withheld": glyphs.withheld,
    }
    return shapes[outcome], _ROLES[outcome]


def label_width(labels: Sequence[str], width: int) -> int:
    """Cells for the names: as many as the longest needs, at most a third of `width`."""
    longest = max((len(label) for label in labels), default=0)
    return min(longest, max(0, width // 3))


def timeline(rows: Sequence[Row], width: int, height: int, *, glyphs: Glyphs = UNICODE) -> tuple[Line, ...]:
    """`rows` in exactly `height` lines of `width` cells: name, then the newest outcomes that fit, newest at the right.

    Where rows are more than lines, the last line says how many are not shown.
    """
    if width <= 0 or height <= 0:
        return ()
    names = label_width([row.label for row in rows], width)
    room = width - names - 1
    shown = rows if len(rows) <= height else rows[: height - 1]
    lines = [_row(row, names, room, width, glyphs) for row in shown]
    if len(shown) < len(rows):
        lines.append(clipped([(f"{glyphs.ellipsis} {len(rows) - len(shown)} more updates", "dim")], width, glyphs))
    lines.extend(blank(width) for _ in range(height - len(lines)))
    return tuple(lines)


def _row(row: Row, names: int, room: int, width: int, glyphs: Glyphs) -> Line:
    spans = [Span(fit(row.label, names, glyphs=glyphs) + " ", "text")]
    newest = row.outcomes[-room:] if room > 0 else []
    spans.extend(Span(*mark(outcome, glyphs)) if outcome else Span(" ", "dim") for outcome in newest)
    return clipped(spans, width, glyphs)


def room_for_marks(labels: Sequence[str], width: int) -> int:
    """How many outcomes `timeline` can show beside these names."""
    return max(0, width - label_width(labels, width) - 1)
