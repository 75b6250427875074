"""A report as one HTML file: no scripts, nothing loaded from anywhere, for the screen, for print, for reading aloud."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

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
from amptui.report.style import STYLE
from amptui.report.svg import svg
from amptui.text import safe_text

_LONGEST = 20_000
_SIGNS: dict[Sign, str] = {"ok": "✓", "warn": "!", "fail": "✗", "skipped": "↷", "withheld": "×", "told": "·"}
# Should an escape ever be forgotten, the browser still runs and loads nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def html(document: Document) -> str:
    """The whole page. Every string in `document` is made visible and escaped."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(document.title)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            *_header(document),
            *_contents(document),
            "<main>",
            *(line for section in document.sections for line in _Writer(section).written()),
            "</main>",
            f"<footer><p>{_text(document.footer)}</p></footer>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _header(document: Document) -> list[str]:
    banner = document.banner
    word, sentence = f"{_mark(banner.sign)} {_text(banner.word)}", _text(banner.sentence)
    return [
        "<header>",
        f"<h1>{_text(document.title)}</h1>",
        f'<p class="subtitle">{_words(document.subtitle)}</p>',
        f'<p class="banner {banner.sign}"><strong>{word}</strong> <span>{sentence}</span></p>',
        "</header>",
    ]


def _contents(document: Document) -> list[str]:
    links = [f'<li><a href="#{section.key}">{_text(section.title)}</a></li>' for section in document.sections]
    return ['<nav aria-label="Sections">', "<ul>", *links, "</ul>", "</nav>"]


class _Writer:
    """Writes one section; counts its figures, whose ids must be unique."""

    def __init__(self, section: Section) -> None:
        self._section = section
        self._figures = 0

    def written(self) -> list[str]:
        key = self._section.key
        return [
            f'<section id="{key}" aria-labelledby="{key}-heading">',
            f'<h2 id="{key}-heading">{_text(self._section.title)}</h2>',
            *self._blocks(self._section.blocks),
            "</section>",
        ]

    def _blocks(self, blocks: Iterable[Block]) -> list[str]:
        return [line for block in blocks for line in self._block(block)]

    def _block(self, block: Block) -> list[str]:
        if isinstance(block, Paragraph):
            return [f"<p>{_words(block.words)}</p>"]
        if isinstance(block, Bullets):
            return ["<ul>", *(f"<li>{_words(item)}</li>" for item in block.items), "</ul>"]
        if isinstance(block, Facts):
            rows = (f"<div><dt>{_text(label)}</dt><dd>{_words(words)}</dd></div>" for label, words in block.rows)
            return ["<dl>", *rows, "</dl>"]
        if isinstance(block, Table):
            return _table(block)
        if isinstance(block, Listing):
            return [
                f"<figure><figcaption>{_text(block.label)}</figcaption>",
                # focusable, so that a long line can be scrolled to without a mouse
                f'<pre tabindex="0"><code>{escape(safe_text(block.text, 200_000, lines=True))}</code></pre></figure>',
            ]
        if isinstance(block, Figure):
            return self._figure(block)
        return [
            '<section class="part">',
            f"<h3>{_words(block.title)}</h3>",
            *self._blocks(block.blocks),
            "</section>",
        ]

    def _figure(self, block: Figure) -> list[str]:
        self._figures += 1
        key = f"{self._section.key}-{self._figures}"
        return [
            '<figure class="plot">',
            f"<figcaption>{_text(block.plot.title)}</figcaption>",
            svg(block.plot, key),
            f'<p class="described" aria-hidden="true">{_text(described(block.plot))}</p>',  # it is the picture's desc
            "</figure>",
        ]


def _table(table: Table) -> list[str]:
    kinds = [' class="number"' if column.number else "" for column in table.columns]
    heads = (
        f'<th scope="col"{kind}>{_text(column.label)}</th>' for column, kind in zip(table.columns, kinds, strict=True)
    )
    label = escape(safe_text(table.caption, _LONGEST), quote=True)
    # a region that can be focused, so that a wide table can be scrolled without a mouse
    lines = [f'<div class="table" role="region" aria-label="{label}" tabindex="0">', "<table>"]
    lines += [f"<caption>{_text(table.caption)}</caption>", f"<thead><tr>{''.join(heads)}</tr></thead>", "<tbody>"]
    for row in table.rows:
        first, *rest = [_words(words) for words in row]
        cells = "".join(f"<td{kind}>{words}</td>" for kind, words in zip(kinds[1:], rest, strict=True))
        lines.append(f'<tr><th scope="row"{kinds[0]}>{first}</th>{cells}</tr>')
    lines += ["</tbody>", "</table>", "</div>"]
    return [*lines, f'<p class="note">{_text(table.note)}</p>'] if table.note else lines


def _words(words: Words) -> str:
    return "".join(map(_piece, pieces(words)))


def _piece(piece: Piece) -> str:
    if isinstance(piece, Code):
        return f"<code>{_text(piece.text)}</code>"
    if isinstance(piece, Strong):
        return f"<strong>{_text(piece.text)}</strong>"
    if isinstance(piece, Mark):
        return f"{_mark(piece.sign)} "
    return _text(piece)


def _mark(sign: Sign) -> str:
    return f'<span class="mark {sign}" aria-hidden="true">{_SIGNS[sign]}</span>'


def _text(value: str) -> str:
    """Foreign or own text, safe between tags; newlines are kept, and shown by the style."""
    return escape(safe_text(value, _LONGEST, lines=True))
