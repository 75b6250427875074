"""A report as Markdown (CommonMark with GitHub's tables): readable as it is, and inert where it is rendered.

Foreign text can hold markup of its own: links, images, HTML, headings. Every character that means something to a
renderer is escaped, or the text is put in a code span that is longer than any run of backticks in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from amptui.report.document import (
    Block,
    Bullets,
    Code,
    Document,
    Facts,
    Figure,
    Listing,
    Mark,
    Paragraph,
    Piece,
    Section,
    Sign,
    Strong,
    Table,
    Words,
    pieces,
)
from amptui.report.plots import described
from amptui.text import safe_text

_LONGEST = 20_000
_SIGNS: dict[Sign, str] = {"ok": "✓", "warn": "!", "fail": "✗", "skipped": "↷", "withheld": "×", "told": "·"}
_SPECIAL = re.compile(r"([\\`*_\[\]<>&|~$#@])")
#: What some renderers make a link of without being asked.
_LINKS = re.compile(r"(?i)(://|\bwww\.)")
#: A list, a quotation, an underlined heading or a rule, at the start of a line.
_START = re.compile(r"^(?:([-+=])|(\d{1,9})([.)]))")


def markdown(document: Document) -> str:
    """The whole report. Every string in `document` is made visible and escaped."""
    banner = document.banner
    lines = [
        f"# {_heading(document.title)}",
        "",
        _paragraph(document.subtitle),
        "",
        f"> **{_SIGNS[banner.sign]} {_line(banner.word)}** {_line(banner.sentence)}",
        "",
        *(line for section in document.sections for line in _section(section)),
        "---",
        "",
        _paragraph(document.footer),
    ]
    return "\n".join(lines) + "\n"


def _section(section: Section) -> list[str]:
    return [f"## {_heading(section.title)}", "", *_blocks(section.blocks)]


def _blocks(blocks: Iterable[Block]) -> list[str]:
    return [line for block in blocks for line in (*_block(block), "")]


def _block(block: Block) -> list[str]:
    if isinstance(block, Paragraph):
        return [_paragraph(block.words)]
    if isinstance(block, Bullets):
        return [f"- {_item(item)}" for item in block.items]
    if isinstance(block, Facts):
        return [f"* **{_line(label)}**: {_item(words)}" for label, words in block.rows]  # not one list with bullets
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Listing):
        return _listing(block)
    if isinstance(block, Figure):
        return [f"**{_line(block.plot.title)}**: {_line(described(block.plot))}"]
    return [f"### {_heading(block.title)}", "", *_blocks(block.blocks)[:-1]]


def _table(table: Table) -> list[str]:
    lines = [f"**{_line(table.caption)}**", ""]
    lines.append(f"| {' | '.join(_cell(column.label) for column in table.columns)} |")
    lines.append(f"|{'|'.join(' ---: ' if column.number else ' --- ' for column in table.columns)}|")
    lines += [f"| {' | '.join(map(_cell, row))} |" for row in table.rows]
    return [*lines, "", _paragraph(table.note)] if table.note else lines


def _listing(block: Listing) -> list[str]:
    text = safe_text(block.text, 200_000, lines=True).rstrip("\n")
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [_paragraph(block.label), "", f"{fence}{block.language}", text, fence]


# Words.


def _paragraph(words: Words) -> str:
    """Each line of the text as a line."""
    return "\\\n".join(map(_started, _text(words).split("\n")))


def _item(words: Words) -> str:
    """The same inside of a list item."""
    return _paragraph(words).replace("\n", "\n  ")


def _line(words: Words) -> str:
    return _text(words).replace("\n", " ")


def _heading(words: Words) -> str:
    return _line(words)


def _cell(words: Words) -> str:
    # A code span in a table cannot hold every text with "|" in it; such a name is written as plain text.
    plain = tuple(p.text if isinstance(p, Code) and "|" in p.text else p for p in pieces(words))
    return _line(plain) or " "


def _started(line: str) -> str:
    """A line that is text, however it begins."""
    return _START.sub(lambda m: f"\\{m[1]}" if m[1] else f"{m[2]}\\{m[3]}", line)


def _text(words: Words) -> str:
    """The words in one string; lines in it are trimmed and not empty."""
    joined = "".join(map(_piece, pieces(words)))
    return "\n".join(line for line in map(str.strip, joined.split("\n")) if line)


def _piece(piece: Piece) -> str:
    if isinstance(piece, Mark):
        return f"{_SIGNS[piece.sign]} "
    if isinstance(piece, Code):
        return _code(piece.text)
    if isinstance(piece, Strong):
        inner = _escaped(piece.text).strip()
        return f"**{inner}**" if inner else ""
    return _escaped(piece)


def _code(text: str) -> str:
    text = safe_text(text, _LONGEST)
    if not text.strip():
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    space = " " if text[0] in " `" or text[-1] in " `" else ""
    return f"{fence}{space}{text}{space}{fence}"


def _escaped(text: str) -> str:
    text = _SPECIAL.sub(r"\\\1", safe_text(text, _LONGEST, lines=True))
    return _LINKS.sub(lambda m: f"\\{m[0]}" if m[0].startswith(":") else f"{m[0][:-1]}\\.", text)
