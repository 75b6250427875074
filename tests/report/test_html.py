"""HTML: one file without scripts in which foreign text is text, with names for what is read aloud."""

from __future__ import annotations

import html as standard
from html.parser import HTMLParser

import pytest

from amptui.report.compose import compose
from amptui.report.document import Banner, Code, Document, Facts, Listing, Mark, Paragraph, Section, Strong
from amptui.report.html import html
from amptui.text import safe_text
from tests.report.payloads import ALL
from tests.report.written import all_told, everything, recorded, with_texts

VOID = {"meta", "line", "circle", "polyline", "path", "rect"}
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "nav", "main", "footer", "section", "figure"),
    *("figcaption", "h1", "h2", "h3", "p", "ul", "li", "dl", "dt", "dd", "div", "span", "strong", "code", "pre", "a"),
    *("table", "caption", "thead", "tbody", "tr", "th", "td"),
    *("svg", "desc", "text", "line", "circle", "polyline", "path", "rect"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "role", "scope", "tabindex"),
    *("aria-label", "aria-labelledby", "aria-hidden", "viewbox", "text-anchor", "points", "d"),
    *("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height"),
}


class Page(HTMLParser):
    """Tags, attributes and texts of a page; fails where a tag is not closed in its place."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[tuple[str, str]] = []
        self.other: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def handle_comment(self, data: str) -> None:
        self.other.append(data)

    def handle_pi(self, data: str) -> None:
        self.other.append(data)

    def unknown_decl(self, data: str) -> None:
        self.other.append(data)

    def values(self, name: str) -> list[str]:
        return [value for _, its, value in self.attributes if its == name]


def shape(page: Page) -> tuple[list[str], list[str]]:
    """All that is not text: tags in their order, and the names of attributes."""
    return page.tags, [f"{tag} {name}" for tag, name, _ in page.attributes]


@pytest.mark.parametrize("session", all_told())
def test_only_known_tags_and_attributes_are_written(session: str) -> None:
    page = Page(html(compose(recorded(all_told()[session]))))
    assert set(page.tags) <= TAGS
    assert {name for _, name, _ in page.attributes} <= ATTRIBUTES
    assert page.other == []
    assert all(value.startswith("#") for value in page.values("href")), "nothing is loaded and nothing leads away"
    assert "url(" not in html(compose(recorded(all_told()[session])))


@pytest.mark.parametrize("payload", ALL, ids=ascii)
def test_foreign_text_changes_nothing_but_text(payload: str) -> None:
    """The same session with harmless texts has the same tags in the same order."""
    hostile, harmless = (
        Page(html(compose(recorded(with_texts(everything(), lambda s, end=end: f"{s}{end}"), session=f"s{end}"))))
        for end in (payload, "xx")
    )
    assert shape(hostile) == shape(harmless)
    visible = safe_text(payload, lines=True)
    assert sum(visible.split("\n")[0].strip() in text for _, text in hostile.texts) > 50


@pytest.mark.parametrize("payload", ALL, ids=ascii)
def test_a_text_is_read_back_as_its_visible_form(payload: str) -> None:
    blocks = [
        Paragraph(payload),
        Paragraph((Mark("ok"), Strong(payload), Code(payload))),
        Facts([(payload, payload)]),
        Listing(payload, "python", payload),
    ]
    page = Page(
        html(Document(payload, payload, Banner("ok", payload, payload), [Section("k", payload, blocks)], payload))
    )
    expected = safe_text(payload, lines=True)
    for tag in ("title", "h1", "h2", "dt", "dd", "code", "figcaption"):
        texts = [text for its, text in page.texts if its == tag]
        assert expected in "".join(texts), tag


def test_escapes_in_the_source_are_those_of_the_standard_library() -> None:
    page = html(Document("<&>\"'", "", Banner("ok", "", ""), [], ""))
    assert f"<h1>{standard.escape(chr(60) + '&>' + chr(34) + chr(39))}</h1>" in page


def test_pictures_and_regions_have_names() -> None:
    page = Page(html(compose(recorded(everything()))))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    named = [name for value in page.values("aria-labelledby") for name in value.split()]
    assert set(named) <= set(ids)
    assert page.tags.count("svg") == 4
    assert page.tags.count("desc") == page.tags.count("svg")
    assert all(value for value in page.values("aria-label"))
    assert set(page.values("role")) == {"img", "region"}
    assert page.tags.count("h1") == page.tags.count("main") == 1
    assert set(page.values("scope")) == {"col", "row"}


def test_every_link_of_the_contents_leads_to_a_section() -> None:
    page = Page(html(compose(recorded(everything()))))
    links = [value.removeprefix("#") for value in page.values("href")]
    assert len(links) == 11
    assert set(links) <= set(page.values("id"))


def test_the_browser_is_told_to_run_and_load_nothing() -> None:
    page = html(compose(recorded(everything())))
    assert "default-src 'none'" in page
    assert "<script" not in page.lower()
    assert "@media print" in page
