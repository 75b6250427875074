"""The widget that all panes are: lines drawn by a pure function, and only changed cells sent to the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.segment import Segment
from textual.dom import NoScreen
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from amptui.text import display_width
from amptui.ui.raster.glyphs import to_ascii
from amptui.ui.raster.line import Line, Span, plain
from amptui.ui.theme import Look


class LineWidget(Widget, can_focus=True):
    """Draws itself from lines. Subclasses say in `draw` what to show, and call `redraw` when that has changed."""

    DEFAULT_CSS: ClassVar[str] = """
    LineWidget { height: 1fr; width: 1fr; }
    """

    def __init__(self, look: Look, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self.look = look
        self._lines: tuple[Line, ...] = ()
        self._highlighted: int | None = None
        #: The size that `_lines` were drawn for; None where they are out of date.
        self._drawn_for: Size | None = None
        #: Rows that have been asked for, ready for the terminal.
        self._strips: dict[int, Strip] = {}

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        """`height` lines of `width` cells."""
        raise NotImplementedError

    def highlighted_row(self) -> int | None:
        """The row that stands out as a whole, asked for after `draw`."""
        return None

    def copy_text(self) -> str:
        """What copying this pane takes: by default what it shows."""
        return "\n".join(plain(line).rstrip() for line in self._lines)

    def redraw(self) -> None:
        """Draw again and repaint what differs. Out of sight, nothing is drawn until the widget is seen again."""
        if not self._seen():
            self._drawn_for = None
            self.refresh()
            return
        before, highlighted, size = self._lines, self._highlighted, self.size
        if self._drawn_for != size:
            self._draw_now(size)
            self.refresh()
            return
        self._draw_now(size)
        regions = [
            region
            for row, (old, new) in enumerate(zip(before, self._lines, strict=True))
            if (region := _changed(row, old, new, size.width, {highlighted, self._highlighted}))
        ]
        if highlighted != self._highlighted:
            rows = {row for row in (highlighted, self._highlighted) if row is not None}
            regions.extend(Region(0, row, size.width, 1) for row in rows)
        if regions:
            self.refresh(*regions)

    def watch_has_focus(self, _has_focus: bool) -> None:
        """Panes show the focus in what they draw; no style depends on it, which the framework would look up."""
        self.redraw()

    def render_line(self, y: int) -> Strip:
        """One line as the framework wants it."""
        return self.render_lines(Region(0, y, self.size.width, 1))[0]

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of `crop`, drawn now if the size has changed since.

        Panes have no border, padding or opacity, which is most of what the framework's own way to here is about; it
        would also look up size and styles for every single line.
        """
        size = self.size
        if self._drawn_for != size:
            self._draw_now(size)
        strips = [self._strip(y, size.width) for y in crop.line_range]
        return strips if crop.column_span == (0, size.width) else [strip.crop(*crop.column_span) for strip in strips]

    def _strip(self, y: int, width: int) -> Strip:
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._coloured(y, width)
        return strip

    def _coloured(self, y: int, width: int) -> Strip:
        if not 0 <= y < len(self._lines):
            strip = Strip.blank(width)
        else:
            styles = self.look.styles
            drawn = to_ascii if self.look.ascii else str
            strip = Strip([Segment(drawn(text), styles[role]) for text, role in self._lines[y]])
            strip = strip.adjust_cell_length(width)
            if y == self._highlighted:
                strip = strip.apply_style(self.look.selected)
        filters = self.get_line_filters()
        if filters:
            _, background = self.background_colors
            for line_filter in filters:
                strip = strip.apply_filter(line_filter, background)
        return strip

    def _draw_now(self, size: Size) -> None:
        before, highlighted, same_size = self._lines, self._highlighted, self._drawn_for == size
        self._lines = self.draw(size.width, size.height)
        self._highlighted = self.highlighted_row()
        self._drawn_for = size
        if not same_size or highlighted != self._highlighted or len(before) != len(self._lines):
            self._strips.clear()
            return
        for row, (old, new) in enumerate(zip(before, self._lines, strict=True)):
            if old != new:
                self._strips.pop(row, None)

    def _seen(self) -> bool:
        try:
            return self.is_mounted and self.size.area > 0 and self.is_on_screen
        except NoScreen:
            return False


def _changed(row: int, old: Line, new: Line, width: int, whole: set[int | None]) -> Region | None:
    """The cells of one row that differ, as a region; None where none do."""
    if old == new or row in whole:
        return Region(0, row, width, 1) if old != new else None
    start, left = _common(zip(old, new, strict=False))
    end, right = _common(zip(reversed(old[start:]), reversed(new[start:]), strict=False))
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    before, after = plain(old), plain(new)
    middle = width - left - right
    if {len(before), len(after), display_width(before), display_width(after)} != {middle}:
        return Region(0, row, width, 1)  # wide characters: cells are not characters
    roles_before = [role for text, role in old for _ in text]
    roles_after = [role for text, role in new for _ in text]
    differing = [
        cell
        for cell in range(middle)
        if before[cell] != after[cell] or (roles_before[cell] != roles_after[cell] and after[cell] != " ")
    ]
    return Region(left + differing[0], row, differing[-1] - differing[0] + 1, 1) if differing else None


def _common(pairs: Iterable[tuple[Span, Span]]) -> tuple[int, int]:
    """How many pairs from the first on are equal, and how many cells they take."""
    count = width = 0
    for one, other in pairs:
        if one != other:
            break
        count += 1
        width += display_width(one.text)
    return count, width
