"""A report as data: sections of blocks, with words still as they were recorded.

Nothing here is escaped. Each writer (Markdown, HTML) makes every string safe for its own format; there is no block that
takes ready-made markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from amptui.report.plots import Plot

Sign = Literal["ok", "warn", "fail", "skipped", "withheld", "told"]


@dataclass(frozen=True)
class Code:
    """A name, a path or a command: set in a fixed-width face."""

    text: str


@dataclass(frozen=True)
class Strong:
    text: str


@dataclass(frozen=True)
class Mark:
    """A sign for the eye. What it says is said in the words after it, too."""

    sign: Sign


Piece = str | Code | Strong | Mark
#: Words on one line; a text may hold newlines where its writer allows them.
Words = Piece | tuple[Piece, ...]


def pieces(words: Words) -> tuple[Piece, ...]:
    return words if isinstance(words, tuple) else (words,)


@dataclass(frozen=True)
class Paragraph:
    words: Words


@dataclass(frozen=True)
class Bullets:
    items: Sequence[Words]


@dataclass(frozen=True)
class Facts:
    """Label and value, line by line."""

    rows: Sequence[tuple[str, Words]]


@dataclass(frozen=True)
class Column:
    label: str
    number: bool = False


@dataclass(frozen=True)
class Table:
    """`rows` have one entry for each column; the first column names the row."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Words]]
    #: What was left out, or how to read it.
    note: str = ""


@dataclass(frozen=True)
class Listing:
    """Source code, as it is to be copied."""

    text: str
    language: str
    label: str


@dataclass(frozen=True)
class Figure:
    plot: Plot


@dataclass(frozen=True)
class Part:
    """A subsection."""

    title: Words
    blocks: Sequence[Block]


Block = Paragraph | Bullets | Facts | Table | Listing | Figure | Part


@dataclass(frozen=True)
class Section:
    #: For links within the page: ASCII letters and hyphens.
    key: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Banner:
    """The one thing to know: a sign, a word, a sentence."""

    sign: Sign
    word: str
    sentence: str


@dataclass(frozen=True)
class Document:
    title: str
    #: What it is about, when, and from where.
    subtitle: Words
    banner: Banner
    sections: Sequence[Section]
    #: The last line.
    footer: str
