"""Dots finer than cells: braille (2 × 4 dots a cell), or three heights a cell in ASCII."""

from __future__ import annotations

from collections.abc import Iterator

from amptui.ui.raster.glyphs import UNICODE, Glyphs

#: Bits of the braille pattern, by column of dots and row of dots within a cell.
_BRAILLE = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
#: ASCII: the character for each set of heights (bit 0 the top one).
_ASCII = (" ", "'", "-", "|", ".", "|", "|", "|")


def dots_of(glyphs: Glyphs) -> tuple[int, int]:
    """How many dots a cell has, across and down."""
    return (1, 3) if glyphs.name == "ascii" else (2, 4)


class Canvas:
    """A grid of `width` × `height` cells of dots. Column 0 is left, dot row 0 is at the top."""

    def __init__(self, width: int, height: int, glyphs: Glyphs = UNICODE) -> None:
        self._ascii = glyphs.name == "ascii"
        self.dots_across, self.dots_down = dots_of(glyphs)
        self.width = width
        self.height = height
        self._rows = [bytearray(width) for _ in range(height)]

    def draw(self, column: int, top: int, bottom: int) -> None:
        """Set the dots of `column` from row `top` to row `bottom`, both included."""
        down = self.dots_down
        cell, side = divmod(column, self.dots_across)
        masks = _ASCII_MASKS if self._ascii else _BRAILLE_MASKS[side]
        for row in range(top // down, bottom // down + 1):
            start = max(top - row * down, 0)
            stop = min(bottom - row * down, down - 1)
            self._rows[row][cell] |= masks[start][stop]

    def drawn(self) -> Iterator[tuple[int, int, str]]:
        """(row, cell, character) for every cell with a dot."""
        for row, cells in enumerate(self._rows):
            for cell, bits in enumerate(cells):
                if bits:
                    yield row, cell, _ASCII[bits] if self._ascii else chr(0x2800 + bits)


def _masks(bits: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """masks[a][b]: the dots from row a to row b of one column of a cell."""
    rows = range(len(bits))
    return tuple(tuple(sum(bits[row] for row in rows if start <= row <= stop) for stop in rows) for start in rows)


_BRAILLE_MASKS = tuple(_masks(column) for column in _BRAILLE)
_ASCII_MASKS = _masks((1, 2, 4))
