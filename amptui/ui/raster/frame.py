"""The cells of a plot beside its axis, while they are being drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amptui.text import display_width, safe_text
from amptui.ui.raster.axis import Axis
from amptui.ui.raster.canvas import Canvas
from amptui.ui.raster.extents import left_out
from amptui.ui.raster.glyphs import Glyphs
from amptui.ui.raster.line import Line, Role, fit, runs
from amptui.ui.raster.traced import Traced


@dataclass(frozen=True)
class Limit:
    """A horizontal line at `value`, with a word at its right end: a clipping norm, a tolerance."""

    value: float
    label: str = ""


class Frame:
    """`width` × `height` cells; what is drawn later covers what was drawn before."""

    def __init__(self, width: int, height: int, glyphs: Glyphs) -> None:
        self.width = width
        self.height = height
        self.glyphs = glyphs
        self.characters = [[" "] * width for _ in range(height)]
        self.roles: list[list[Role]] = [["text"] * width for _ in range(height)]

    def lines(self) -> list[Line]:
        return [runs(row, roles) for row, roles in zip(self.characters, self.roles, strict=True)]

    def put(self, row: int, cell: int, character: str, role: Role) -> None:
        self.characters[row][cell] = character
        self.roles[row][cell] = role

    def write(self, text: str, row: int, cell: int, role: Role) -> None:
        """`text` from `cell` on, as far as it is made of single-cell characters and fits."""
        for character in fit(text, max(0, self.width - cell), glyphs=self.glyphs):
            if display_width(character) != 1 or cell >= self.width:
                return
            self.put(row, cell, character, role)
            cell += 1

    def limit(self, limit: Limit, used: Axis) -> None:
        row = self._limit_row(limit, used)
        if row is None:
            return
        for cell in range(self.width):
            self.put(row, cell, self.glyphs.limit, "dim")

    def limit_label(self, limit: Limit, used: Axis) -> None:
        """The word of `limit` at the right end of its line, or the left one, where no curve is in the way."""
        row = self._limit_row(limit, used)
        text = fit(limit.label, min(display_width(safe_text(limit.label)), self.width // 2), glyphs=self.glyphs)
        room = display_width(text) + 1
        if row is None or not text:
            return
        for start, padded in ((self.width - room, f" {text}"), (0, f"{text} ")):
            under = self.characters[row][start : start + room]
            if all(character in (" ", self.glyphs.limit) for character in under):
                self.write(padded, row, start, "dim")
                return

    def _limit_row(self, limit: Limit, used: Axis) -> int | None:
        seen = math.isfinite(limit.value) and used.shows(limit.value) and _inside(limit.value, used)
        return self._row(1.0 - used.fraction(limit.value)) if seen and self.height else None

    def trace(self, traced: Traced, role: Role, *, dashed: bool) -> None:
        canvas = Canvas(self.width, self.height, self.glyphs)
        for column, extent in enumerate(traced.extents):
            if extent and not (dashed and left_out(column, traced.extents, canvas.dots_across)):
                canvas.draw(column, extent.top, extent.bottom)
        for row, cell, character in canvas.drawn():
            self.put(row, cell, character, role)

    def marks(self, traced: Traced, role: Role) -> None:
        """Crosses for values that are not finite, arrows for those below a logarithmic axis."""
        for mark in traced.marks:
            shape = self.glyphs.lost if mark.lost else self.glyphs.below
            self.put(self._row(mark.down), mark.cell, shape, "bad" if mark.lost else role)

    def _row(self, down: float) -> int:
        """The row of a place in the height, 0 at the top and 1 at the bottom."""
        return min(self.height - 1, int(down * self.height))


def _inside(value: float, used: Axis) -> bool:
    exact = 1e-9
    place = used.fraction(value)
    if exact < place < 1 - exact:
        return True
    # At an end `fraction` may have clamped: compare with the end itself.
    end = used.low if place <= exact else used.high
    own = value if used.scale == "linear" else (math.log2(value) if used.scale == "log2" else math.log10(value))
    return math.isclose(own, end, rel_tol=1e-9, abs_tol=1e-300)
