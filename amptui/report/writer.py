"""What every format of a report has to say how to write: each kind of block, and each kind of piece of a sentence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from amptui.report.document import (
    Block,
    Bullets,
    Code,
    Facts,
    Figure,
    Listing,
    Mark,
    Paragraph,
    Part,
    Piece,
    Sign,
    Strong,
    Table,
    Words,
    pieces,
)

SIGNS: dict[Sign, str] = {"ok": "✓", "warn": "!", "fail": "✗", "skipped": "↷", "withheld": "×", "told": "·"}
#: So many characters of a text are written, and of source code.
LONGEST, LONGEST_LISTING = 20_000, 200_000


class Writer(ABC):
    """Writes blocks as lines, and words as one text; a format says how each kind is written, and makes it safe."""

    def blocks(self, blocks: Iterable[Block]) -> list[str]:
        return [line for block in blocks for line in self.block(block)]

    def block(self, block: Block) -> list[str]:
        match block:
            case Paragraph():
                return self.paragraph(block)
            case Bullets():
                return self.bullets(block)
            case Facts():
                return self.facts(block)
            case Table():
                return self.table(block)
            case Listing():
                return self.listing(block)
            case Figure():
                return self.figure(block)
            case Part():
                return self.part(block)

    def words(self, words: Words) -> str:
        return "".join(map(self._piece, pieces(words)))

    def _piece(self, piece: Piece) -> str:
        match piece:
            case Code():
                return self.code(piece.text)
            case Strong():
                return self.strong(piece.text)
            case Mark():
                return f"{self.mark(piece.sign)} "
            case str():
                return self.text(piece)

    @abstractmethod
    def paragraph(self, block: Paragraph) -> list[str]: ...

    @abstractmethod
    def bullets(self, block: Bullets) -> list[str]: ...

    @abstractmethod
    def facts(self, block: Facts) -> list[str]: ...

    @abstractmethod
    def table(self, block: Table) -> list[str]: ...

    @abstractmethod
    def listing(self, block: Listing) -> list[str]: ...

    @abstractmethod
    def figure(self, block: Figure) -> list[str]: ...

    @abstractmethod
    def part(self, block: Part) -> list[str]: ...

    @abstractmethod
    def text(self, text: str) -> str:
        """Foreign or own text, safe where words stand."""

    @abstractmethod
    def code(self, text: str) -> str: ...

    @abstractmethod
    def strong(self, text: str) -> str: ...

    @abstractmethod
    def mark(self, sign: Sign) -> str: ...
