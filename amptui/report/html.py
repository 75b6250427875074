"""A report as one HTML file: no scripts, nothing loaded from anywhere, for the screen, for print, for reading aloud."""

from __future__ import annotations

from html import escape

from amptui.report.document import (
    Bullets,
    Document,
    Facts,
    Figure,
    Listing,
    Paragraph,
    Part,
    Section,
    Sign,
    Table,
)
from amptui.report.plots import described
from amptui.report.style import STYLE
from amptui.report.svg import svg
from amptui.report.writer import LONGEST, LONGEST_LISTING, SIGNS, Writer
from amptui.text import safe_text

# Should an escape ever be forgotten, the browser still runs and loads nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def html(document: Document) -> str:
    """The whole page. Every string in `document` is made visible and escaped."""
    write = _Html()
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{write.text(document.title)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            *write.header(document),
            *write.contents(document),
            "<main>",
            *(line for section in document.sections for line in write.section(section)),
            "</main>",
            f"<footer><p>{write.text(document.footer)}</p></footer>",
            "</body>",
            "</html>",
            "",
        ]
    )


class _Html(Writer):
    """Writes one page; counts the figures of a section, whose ids must be unique."""

    def __init__(self) -> None:
        self._key = ""
        self._figures = 0

    # The page.

    def header(self, document: Document) -> list[str]:
        banner = document.banner
        word, sentence = f"{self.mark(banner.sign)} {self.text(banner.word)}", self.text(banner.sentence)
        return [
            "<header>",
            f"<h1>{self.text(document.title)}</h1>",
            f'<p class="subtitle">{self.words(document.subtitle)}</p>',
            f'<p class="banner {banner.sign}"><strong>{word}</strong> <span>{sentence}</span></p>',
            "</header>",
        ]

    def contents(self, document: Document) -> list[str]:
        links = [f'<li><a href="#{section.key}">{self.text(section.title)}</a></li>' for section in document.sections]
        return ['<nav aria-label="Sections">', "<ul>", *links, "</ul>", "</nav>"]

    def section(self, section: Section) -> list[str]:
        self._key, self._figures = section.key, 0
        return [
            f'<section id="{section.key}" aria-labelledby="{section.key}-heading">',
            f'<h2 id="{section.key}-heading">{self.text(section.title)}</h2>',
            *self.blocks(section.blocks),
            "</section>",
        ]

    # Blocks.

    def paragraph(self, block: Paragraph) -> list[str]:
        return [f"<p>{self.words(block.words)}</p>"]

    def bullets(self, block: Bullets) -> list[str]:
        return ["<ul>", *(f"<li>{self.words(item)}</li>" for item in block.items), "</ul>"]

    def facts(self, block: Facts) -> list[str]:
        rows = (f"<div><dt>{self.text(label)}</dt><dd>{self.words(words)}</dd></div>" for label, words in block.rows)
        return ["<dl>", *rows, "</dl>"]

    def table(self, block: Table) -> list[str]:
        kinds = [' class="number"' if column.number else "" for column in block.columns]
        heads = (
            f'<th scope="col"{kind}>{self.text(column.label)}</th>'
            for column, kind in zip(block.columns, kinds, strict=True)
        )
        label = escape(safe_text(block.caption, LONGEST), quote=True)
        # a region that can be focused, so that a wide table can be scrolled without a mouse
        lines = [f'<div class="table" role="region" aria-label="{label}" tabindex="0">', "<table>"]
        lines += [f"<caption>{self.text(block.caption)}</caption>", f"<thead><tr>{''.join(heads)}</tr></thead>"]
        lines.append("<tbody>")
        for row in block.rows:
            first, *rest = [self.words(words) for words in row]
            cells = "".join(f"<td{kind}>{words}</td>" for kind, words in zip(kinds[1:], rest, strict=True))
            lines.append(f'<tr><th scope="row"{kinds[0]}>{first}</th>{cells}</tr>')
        lines += ["</tbody>", "</table>", "</div>"]
        return [*lines, f'<p class="note">{self.text(block.note)}</p>'] if block.note else lines

    def listing(self, block: Listing) -> list[str]:
        code = escape(safe_text(block.text, LONGEST_LISTING, lines=True))
        return [
            f"<figure><figcaption>{self.text(block.label)}</figcaption>",
            # focusable, so that a long line can be scrolled to without a mouse
            f'<pre tabindex="0"><code>{code}</code></pre></figure>',
        ]

    def figure(self, block: Figure) -> list[str]:
        self._figures += 1
        # the description is the picture's own, too
        said = f'<p class="described" aria-hidden="true">{self.text(described(block.plot))}</p>'
        return [
            '<figure class="plot">',
            f"<figcaption>{self.text(block.plot.title)}</figcaption>",
            svg(block.plot, f"{self._key}-{self._figures}"),
            said,
            "</figure>",
        ]

    def part(self, block: Part) -> list[str]:
        heading = f"<h3>{self.words(block.title)}</h3>"
        return ['<section class="part">', heading, *self.blocks(block.blocks), "</section>"]

    # Words.

    def text(self, text: str) -> str:
        """Safe between tags; newlines are kept, and shown by the style."""
        return escape(safe_text(text, LONGEST, lines=True))

    def code(self, text: str) -> str:
        return f"<code>{self.text(text)}</code>"

    def strong(self, text: str) -> str:
        return f"<strong>{self.text(text)}</strong>"

    def mark(self, sign: Sign) -> str:
        return f'<span class="mark {sign}" aria-hidden="true">{SIGNS[sign]}</span>'
