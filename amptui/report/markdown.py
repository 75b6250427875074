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
    Paragraph,
    Part,
    Sign,
    Table,
    Words,
    pieces,
)
from amptui.report.plots import described
from amptui.report.writer import LONGEST, LONGEST_LISTING, SIGNS, Writer
from amptui.text import safe_text

_SPECIAL = re.compile(r"([\\`*_\[\]<>&|~$#@])")
#: What some renderers make a link of without being asked.
_LINKS = re.compile(r"(?i)(://|\bwww\.)")
#: A list, a quotation, an underlined heading or a rule, at the start of a line.
_START = re.compile(r"^(?:([-+=])|(\d{1,9})([.)]))")


def markdown(document: Document) -> str:
    """The whole report. Every string in `document` is made visible and escaped."""
    banner, write = document.banner, _Markdown()
    lines = [
        f"# {write.line(document.title)}",
        "",
        write.lines(document.subtitle),
        "",
        f"> **{SIGNS[banner.sign]} {write.line(banner.word)}** {write.line(banner.sentence)}",
        "",
    ]
    for section in document.sections:
        lines += [f"## {write.line(section.title)}", "", *write.blocks(section.blocks)]
    return "\n".join([*lines, "---", "", write.lines(document.footer)]) + "\n"


class _Markdown(Writer):
    # Blocks.

    def blocks(self, blocks: Iterable[Block]) -> list[str]:
        """Each with an empty line after it."""
        return [line for block in blocks for line in (*self.block(block), "")]

    def paragraph(self, block: Paragraph) -> list[str]:
        return [self.lines(block.words)]

    def bullets(self, block: Bullets) -> list[str]:
        return [f"- {self._item(item)}" for item in block.items]

    def facts(self, block: Facts) -> list[str]:
        # another sign than that of bullets, so that the two never become one list
        return [f"* **{self.line(label)}**: {self._item(words)}" for label, words in block.rows]

    def table(self, block: Table) -> list[str]:
        lines = [f"**{self.line(block.caption)}**", ""]
        lines.append(f"| {' | '.join(self._cell(column.label) for column in block.columns)} |")
        lines.append(f"|{'|'.join(' ---: ' if column.number else ' --- ' for column in block.columns)}|")
        lines += [f"| {' | '.join(map(self._cell, row))} |" for row in block.rows]
        return [*lines, "", self.lines(block.note)] if block.note else lines

    def listing(self, block: Listing) -> list[str]:
        text = safe_text(block.text, LONGEST_LISTING, lines=True).rstrip("\n")
        fence = "`" * max(3, _longest_run(text) + 1)
        return [self.lines(block.label), "", f"{fence}{block.language}", text, fence]

    def figure(self, block: Figure) -> list[str]:
        return [f"**{self.line(block.plot.title)}**: {self.line(described(block.plot))}"]

    def part(self, block: Part) -> list[str]:
        return [f"### {self.line(block.title)}", "", *self.blocks(block.blocks)[:-1]]

    # Words.

    def words(self, words: Words) -> str:
        """Lines in them are trimmed and not empty."""
        return "\n".join(line for line in map(str.strip, super().words(words).split("\n")) if line)

    def lines(self, words: Words) -> str:
        """Each line of the text as a line."""
        return "\\\n".join(map(_started, self.words(words).split("\n")))

    def line(self, words: Words) -> str:
        return self.words(words).replace("\n", " ")

    def _item(self, words: Words) -> str:
        """As `lines`, inside of a list item."""
        return self.lines(words).replace("\n", "\n  ")

    def _cell(self, words: Words) -> str:
        # A code span in a table cannot hold every text with "|" in it; such a name is written as plain text.
        plain = tuple(p.text if isinstance(p, Code) and "|" in p.text else p for p in pieces(words))
        return self.line(plain) or " "

    def text(self, text: str) -> str:
        text = _SPECIAL.sub(r"\\\1", safe_text(text, LONGEST, lines=True))
        return _LINKS.sub(lambda m: f"\\{m[0]}" if m[0].startswith(":") else f"{m[0][:-1]}\\.", text)

    def code(self, text: str) -> str:
        text = safe_text(text, LONGEST)
        if not text.strip():
            return ""
        fence = "`" * (_longest_run(text) + 1)
        space = " " if text[0] in " `" or text[-1] in " `" else ""
        return f"{fence}{space}{text}{space}{fence}"

    def strong(self, text: str) -> str:
        inner = self.text(text).strip()
        return f"**{inner}**" if inner else ""

    def mark(self, sign: Sign) -> str:
        return SIGNS[sign]


def _longest_run(text: str) -> int:
    """How many backticks stand together at most."""
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _started(line: str) -> str:
    """A line that is text, however it begins."""
    return _START.sub(lambda m: f"\\{m[1]}" if m[1] else f"{m[2]}\\{m[3]}", line)
