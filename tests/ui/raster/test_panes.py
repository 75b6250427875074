"""Headings, timelines, logs and prose fill their cells, whatever they are given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from amptui.text import display_width
from amptui.ui.raster.glyphs import ASCII, UNICODE, Glyphs
from amptui.ui.raster.heading import heading, legend
from amptui.ui.raster.line import plain
from amptui.ui.raster.log import Entry, log_lines
from amptui.ui.raster.prose import Paragraph, paragraph, prose
from amptui.ui.raster.timeline import OUTCOMES, Row, room_for_marks, timeline

GLYPHS = st.sampled_from([UNICODE, ASCII])
TEXT = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("漢😀 \x1b\x9b\n\u202e")), max_size=60)
RAW = "\x1b\x9b\n\r\u202e\x07"


@given(title=TEXT, note=TEXT, right=TEXT, width=st.integers(0, 70), focused=st.booleans(), glyphs=GLYPHS)
def test_a_heading_fills_its_line(title: str, note: str, right: str, width: int, focused: bool, glyphs: Glyphs) -> None:
    line = plain(heading(title, width, notes=[(note, "dim")], right=right, focused=focused, glyphs=glyphs))
    assert display_width(line) == width
    assert not any(character in RAW for character in line)


def test_a_heading_says_which_line_is_which_and_shows_the_focus_by_shape() -> None:
    notes = legend([("trial", "trial", False), ("baseline", "baseline", True)])
    assert plain(heading("loss", 44, notes=notes, right="0.46")) == "─ loss   trial ━  baseline ┄ ──────── 0.46 ─"
    assert plain(heading("loss", 12, focused=True)) == "━ loss ━━━━━"


@given(
    rows=st.lists(
        st.builds(Row, TEXT, st.lists(st.one_of(st.none(), st.sampled_from(OUTCOMES)), max_size=90)), max_size=5
    ),
    width=st.integers(0, 70),
    height=st.integers(0, 5),
    glyphs=GLYPHS,
)
def test_a_timeline_fills_its_lines(rows: list[Row], width: int, height: int, glyphs: Glyphs) -> None:
    lines = [plain(line) for line in timeline(rows, width, height, glyphs=glyphs)]
    assert len(lines) == (height if width > 0 else 0)
    assert all(display_width(line) == width for line in lines)


def test_a_timeline_shows_the_newest_and_names_what_does_not_fit() -> None:
    rows = [
        Row("main", ["applied"] * 50 + ["skipped", "withheld"]),
        Row("critic", ["absent", "applied"]),
        Row("ema", []),
    ]
    assert room_for_marks(["main", "critic", "ema"], 30) == 23
    assert [plain(line) for line in timeline(rows, 30, 2)] == [
        "main   " + "✓" * 21 + "↷×",
        "… 2 more updates" + " " * 14,
    ]
    assert plain(timeline(rows, 30, 3)[1]) == "critic ·✓" + " " * 21
    assert plain(timeline(rows[:1], 12, 1, glyphs=ASCII)[0]) == "main +++++>x"


@given(
    entries=st.lists(st.builds(Entry, TEXT, st.sampled_from(["text", "warn", "bad", "good", "dim"]), TEXT), max_size=9),
    width=st.integers(0, 70),
    height=st.integers(0, 7),
    back=st.integers(-2, 12),
    glyphs=GLYPHS,
)
def test_a_log_fills_its_lines(entries: list[Entry], width: int, height: int, back: int, glyphs: Glyphs) -> None:
    lines = [plain(line) for line in log_lines(entries, width, height, back=back, glyphs=glyphs)]
    assert len(lines) == (height if width > 0 else 0)
    assert all(display_width(line) == width for line in lines)
    assert not any(character in RAW for line in lines for character in line)


def test_a_log_shows_the_newest_at_the_bottom_with_marks_and_scrolls_back() -> None:
    entries = [Entry(f"event {number}", "warn" if number == 3 else "text", str(number)) for number in range(5)]
    assert [plain(line).rstrip() for line in log_lines(entries, 30, 2)] == ["3 ! event 3", "4   event 4"]
    assert [plain(line).rstrip() for line in log_lines(entries, 30, 2, back=99)] == ["0 event 0", "1 event 1"]


@given(
    texts=st.lists(st.one_of(st.none(), TEXT), max_size=5), width=st.integers(0, 50), lead=TEXT, literal=st.booleans()
)
def test_prose_fills_its_lines(texts: list[str | None], width: int, lead: str, literal: bool) -> None:
    items = [None if text is None else Paragraph(((text, "text"),), lead, literal=literal) for text in texts]
    lines = [plain(line) for line in prose(items, width)]
    assert all(display_width(line) == width for line in lines)
    assert not any(character in RAW for line in lines for character in line)


@given(words=st.lists(st.text(alphabet="abcdefgh", min_size=1, max_size=9), min_size=1, max_size=30))
def test_prose_keeps_every_word_whole_where_it_fits(words: list[str]) -> None:
    lines = [plain(line) for line in prose([paragraph(" ".join(words))], 12)]
    assert " ".join(line.strip() for line in lines).split() == words


def test_prose_hangs_under_its_mark() -> None:
    lines = prose([paragraph("one two three four", lead="✗ ", lead_role="bad")], 11)
    assert [plain(line).rstrip() for line in lines] == ["✗ one two", "  three", "  four"]
