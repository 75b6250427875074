"""A live plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from textual.binding import BindingType

from amptui.ui.keys import KEYS, textual_bindings
from amptui.ui.raster.axis import Scale
from amptui.ui.raster.frame import Limit
from amptui.ui.raster.heading import heading
from amptui.ui.raster.line import Line, Role
from amptui.ui.raster.plot import Picture, Trace, raster
from amptui.ui.theme import Look
from amptui.ui.widgets.lines import LineWidget

#: Zoomed in as far as this many steps.
FINEST = 8


@dataclass(frozen=True, kw_only=True)
class PlotValue:
    """What a plot shows. The steps `first` to `last` are the planned ones, so that a run only adds cells."""

    title: str
    traces: Sequence[Trace] = field(default_factory=tuple)
    notes: Sequence[tuple[str, Role]] = ()
    right: str = ""
    scale: Scale = "linear"
    first: int = 0
    last: int = 0
    limits: Sequence[Limit] = ()
    empty: str = "no values yet"


class PlotPane(LineWidget):
    """A heading and a plot. Zooming and the logarithmic axis are ways of looking, kept here."""

    BINDINGS: ClassVar[list[BindingType]] = [*textual_bindings([key for key in KEYS if key.group == "Plot"])]

    def __init__(self, look: Look, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id, classes=classes)
        self._value = PlotValue(title="")
        #: What was drawn last; None where its axis is not to be held.
        self._picture: Picture | None = None
        self._scale: Scale | None = None
        #: The steps looked at; None for all.
        self._window: tuple[int, int] | None = None

    def show(self, value: PlotValue) -> None:
        """Show `value`; its series may have grown in place since the last call."""
        if value.scale != self._value.scale:
            self._scale = None
        self._value = value
        self.redraw()

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        value, glyphs = self._value, self.look.glyphs
        first, last = self._window or (value.first, value.last)
        right = f"steps {first:,} to {last:,}" if self._window else value.right
        if self._scale and self._scale != value.scale:
            right = f"{self._scale}, {right}" if right else self._scale
        top = heading(value.title, width, notes=value.notes, right=right, focused=self.has_focus, glyphs=glyphs)
        self._picture = raster(
            value.traces,
            width,
            height - 1,
            scale=self._scale or value.scale,
            first=first,
            last=last,
            previous=self._picture,
            limits=value.limits,
            empty=value.empty,
            glyphs=glyphs,
        )
        return (top, *self._picture.lines)[:height]

    def action_log_axis(self) -> None:
        """A logarithmic axis, and back."""
        plain: Scale = self._value.scale
        logarithmic: Scale = "log" if plain == "linear" else "linear"
        self._scale = logarithmic if self._scale in (None, plain) else plain
        self._picture = None
        self.redraw()

    def action_zoom_in(self) -> None:
        """Half as many steps, up to the newest seen."""
        first, last = self._range()
        self._look_at(first + (last - first + 1) // 2, last)

    def action_zoom_out(self) -> None:
        """Twice as many steps."""
        first, last = self._range()
        self._look_at(first - (last - first + 1), last)

    def action_pan_left(self) -> None:
        """Earlier by half of what is seen."""
        first, last = self._range()
        self._shift(-max(1, (last - first + 1) // 2))

    def action_pan_right(self) -> None:
        """Later by half of what is seen."""
        first, last = self._range()
        self._shift(max(1, (last - first + 1) // 2))

    def action_whole(self) -> None:
        """All steps again."""
        self._window = None
        self._picture = None
        self.redraw()

    def _range(self) -> tuple[int, int]:
        return self._window or (self._value.first, self._value.last)

    def _shift(self, steps: int) -> None:
        first, last = self._range()
        steps = max(self._value.first - first, min(steps, self._value.last - last))
        self._look_at(first + steps, last + steps)

    def _look_at(self, first: int, last: int) -> None:
        first = max(self._value.first, min(first, last - FINEST + 1))
        last = min(self._value.last, last)
        self._window = None if (first, last) == (self._value.first, self._value.last) else (first, last)
        self._picture = None
        self.redraw()
