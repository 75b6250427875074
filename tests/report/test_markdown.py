"""Markdown: what a CommonMark renderer with GitHub's extensions makes of it is the text that was recorded."""

from __future__ import annotations

from collections import Counter

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from amptui.report.compose import compose
from amptui.report.document import (
    Banner,
    Bullets,
    Code,
    Column,
    Document,
    Facts,
    Listing,
    Paragraph,
    Part,
    Section,
    Strong,
    Table,
)
from amptui.report.markdown import markdown
from amptui.report.recorded import Recorded
from amptui.text import safe_text
from tests.report.payloads import ALL
from tests.report.written import all_told, everything, recorded, with_texts

# `linkify` finds what GitHub finds: addresses with a scheme, with www., and of mail.
RENDERER = MarkdownIt("commonmark", {"html": True, "linkify": True}).enable(["table", "strikethrough", "linkify"])


def tokens(text: str) -> list[Token]:
    """All tokens, those inside of lines included."""
    found = []
    for token in RENDERER.parse(text):
        found += [token, *(token.children or [])]
    return found


def kinds(text: str) -> Counter[str]:
    # how a text is cut into pieces, and a line broken, is no markup
    plain = ("text", "text_special", "softbreak", "hardbreak", "entity", "link_close")
    found = tokens(text)
    return Counter(
        token.type
        for token, after in zip(found, [*found[1:], found[-1]], strict=True)
        if token.type not in plain and not _guessed(token, after)
    )


def _guessed(token: Token, after: Token) -> bool:
    """A link to a bare name such as `net.py`, which this renderer guesses and GitHub's does not."""
    shown = after.content.lower()
    return token.markup == "linkify" and not shown.startswith(("http", "www.")) and "@" not in shown


def said(text: str) -> str:
    """What a reader sees, without markup."""
    parts = []
    for token in tokens(text):
        if token.type in ("text", "text_special", "code_inline", "fence"):
            parts.append(token.content)
        elif token.type in ("softbreak", "hardbreak", "inline"):
            parts.append("\n")
    return "".join(parts)


def ending_in(end: str) -> Recorded:
    """A session in which every foreign text ends so."""
    return recorded(with_texts(everything(), lambda text: f"{text} {end}"), session=f"s {end}")


RAW = {"html_inline", "html_block", "link_open", "image", "code_block"}


@pytest.mark.parametrize("session", all_told())
def test_a_report_has_no_raw_html_no_links_no_images(session: str) -> None:
    found = kinds(markdown(compose(recorded(all_told()[session]))))
    assert not set(found) & RAW
    assert found["table_open"] > 5
    assert found["heading_open"] > 6


@pytest.mark.parametrize("payload", ALL, ids=ascii)
def test_foreign_text_changes_nothing_but_text(payload: str) -> None:
    hostile, harmless = (
        kinds(
            markdown(compose(recorded(with_texts(everything(), lambda s, end=end: f"{s} {end}"), session=f"s {end}")))
        )
        for end in (payload, "xx")
    )
    # a code span whose text has a "|" is written as text in a table
    hostile["code_inline"] = min(hostile["code_inline"], harmless["code_inline"])
    if "|" in payload:
        harmless["code_inline"] = hostile["code_inline"]
    assert hostile == harmless
    assert not set(hostile) & RAW


def places(text: str) -> Document:
    table = Table(text, [Column(text), Column("b", number=True)], [(text, Code(text)), (Strong(text), text)], text)
    blocks = [
        Paragraph(text),
        Paragraph((Strong(text), " and ", Code(text))),
        Bullets([text, text]),
        Facts([(text, text), ("label", Code(text))]),
        table,
        Part(text, [Paragraph(text)]),
        Listing(text, "python", text),
    ]
    return Document(text, text, Banner("ok", text, text), [Section("k", text, blocks)], text)


@pytest.mark.parametrize("payload", ALL, ids=ascii)
def test_text_alone_in_every_place_stays_text(payload: str) -> None:
    """Also where a line begins with it, in a heading, a list, a table and a listing."""
    found, harmless = kinds(markdown(places(payload))), kinds(markdown(places("xx")))
    if "|" in payload:
        found["code_inline"] += 1
    assert found == harmless
    seen = said(markdown(places(payload)))
    for line in safe_text(payload, lines=True).split("\n"):
        assert seen.count(line.strip()) >= 15, seen


def test_lines_of_a_text_stay_lines() -> None:
    text = markdown(Document("t", "s", Banner("ok", "w", "s"), [Section("k", "k", [Paragraph("one\ntwo")])], "f"))
    assert "one\\\ntwo\n" in text


def test_the_listing_is_copied_as_it_is() -> None:
    code = "def f():\n    return `x`  # ``` four\n"
    document = Document("t", "s", Banner("ok", "w", "s"), [Section("k", "k", [Listing(code, "python", "l")])], "f")
    [fence] = [token for token in tokens(markdown(document)) if token.type == "fence"]
    assert (fence.content, fence.info) == (code, "python")
