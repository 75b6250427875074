"""What became of each update, live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from amptui.ui.raster.heading import heading
from amptui.ui.raster.line import Line, Role
from amptui.ui.raster.prose import Paragraph, prose
from amptui.ui.raster.timeline import Row, room_for_marks, timeline
from amptui.ui.series import Outcomes
from amptui.ui.theme import Look
from amptui.ui.widgets.lines import LineWidget


@dataclass(frozen=True, kw_only=True)
class TimelineValue:
    """The updates by name in the order to show them, and what stands below them."""

    title: str = "updates"
    notes: Sequence[tuple[str, Role]] = ()
    outcomes: Mapping[str, Outcomes] = field(default_factory=dict)
    below: Sequence[Paragraph | None] = ()


class TimelinePane(LineWidget):
    """A heading, a row of marks for each update, and sentences below."""

    def __init__(self, look: Look, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id, classes=classes)
        self._value = TimelineValue()

    def show(self, value: TimelineValue) -> None:
        """Show `value`; its outcomes may have grown in place since the last call."""
        self._value = value
        self.redraw()

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        value, glyphs = self._value, self.look.glyphs
        below = prose(value.below, width, glyphs=glyphs)
        room = room_for_marks(list(value.outcomes), width)
        rows = [Row(name, outcomes.recent(room)) for name, outcomes in value.outcomes.items()]
        body = max(1, min(len(rows), height - 1 - len(below)))
        top = heading(value.title, width, notes=value.notes, focused=self.has_focus, glyphs=glyphs)
        return _filled((top, *timeline(rows, width, body, glyphs=glyphs), *below), width, height)


def _filled(lines: Sequence[Line], width: int, height: int) -> tuple[Line, ...]:
    missing = prose([None] * max(0, height - len(lines)), width)
    return (*lines, *missing)[:height]
