"""Text in exactly so many cells, and never raw."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from amptui.text import display_width
from amptui.ui.raster.glyphs import ASCII, UNICODE, Glyphs, to_ascii
from amptui.ui.raster.line import Span, clipped, fit, joined, plain, runs, width_of

GLYPHS = st.sampled_from([UNICODE, ASCII])
ROLES = st.sampled_from(["text", "dim", "bad"])
WIDE = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("漢字😀é\x1b\u202e\u0301")), max_size=30)


@given(
    text=WIDE, width=st.integers(0, 40), align=st.sampled_from(["left", "right"]), cut=st.sampled_from(["end", "start"])
)
def test_fit_is_exact_and_safe(text: str, width: int, align: str, cut: str) -> None:
    fitted = fit(text, width, align=align, cut=cut)  # type: ignore[arg-type]
    assert display_width(fitted) == width
    assert not any(character in fitted for character in "\x1b\n\r\x07\u202e\x9b")


@given(spans=st.lists(st.tuples(WIDE, ROLES), max_size=6), width=st.integers(0, 40), glyphs=GLYPHS)
def test_clipped_is_exact_and_safe(spans: list[tuple[str, str]], width: int, glyphs: Glyphs) -> None:
    line = clipped(spans, width, glyphs)  # type: ignore[arg-type]
    assert width_of(line) == width
    assert not any(character in plain(line) for character in "\x1b\n\r\x07\u202e\x9b")


def test_fit_cuts_the_end_that_tells_least() -> None:
    assert fit("encoder.layers.11.attn", 12) == "encoder.lay…"
    assert fit("encoder.layers.11.attn", 12, cut="start") == "…ers.11.attn"


def test_clipped_says_that_more_follows_even_where_a_span_fits_exactly() -> None:
    assert plain(clipped([("abc", "text"), ("def", "bad")], 3)) == "ab…"


@given(cells=st.lists(st.tuples(st.sampled_from("ab ⣀"), ROLES), max_size=20))
def test_runs_keep_every_character_and_the_role_of_all_that_can_be_seen(cells: list[tuple[str, str]]) -> None:
    characters, roles = [one for one, _ in cells], [role for _, role in cells]
    line = runs(characters, roles)  # type: ignore[arg-type]
    assert plain(line) == "".join(characters)
    given_roles = [role for text, role in line for _ in text]
    assert all(shown == wanted for shown, (one, wanted) in zip(given_roles, cells, strict=True) if one != " ")


def test_blanks_cost_no_colour_of_their_own() -> None:
    assert joined([("a", "bad"), ("  ", "dim"), ("b", "bad")]) == (Span("a  b", "bad"),)


def test_every_character_that_amptui_draws_with_has_a_lookalike() -> None:
    drawn = "".join(str(getattr(UNICODE, field.name)) for field in fields(UNICODE) if field.name != "name")
    assert "?" not in to_ascii(drawn + "━─")


@given(text=WIDE)
def test_ascii_keeps_the_cells(text: str) -> None:
    safe = plain(joined([(text, "text")]))
    assert to_ascii(safe).isascii()
    assert display_width(to_ascii(safe)) == display_width(safe)
