"""The same colours with 256 of them as with millions, none with NO_COLOR, and enough contrast to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import pytest
from rich.color import Color, ColorSystem

from amptui.ui.raster.line import Role
from amptui.ui.theme import DARK, LIGHT, THEMES, Look, Palette, textual_theme, theme_for


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def in_256(colour: str) -> str:
    """What a terminal of 256 colours shows for `colour`."""
    rounded = Color.parse(colour).downgrade(ColorSystem.EIGHT_BIT)
    assert rounded.number is not None
    assert rounded.number >= 16, f"{colour} lands in the part that users redefine"
    return rounded.get_truecolor().hex


@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=["dark", "light"])
def test_hues_are_the_same_in_256_colours_and_greys_stay_grey(palette: Palette) -> None:
    for colour in (palette.background, palette.raised, *palette.roles.values()):
        red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
        if red == green == blue:
            shown = int(in_256(colour)[1:3], 16)
            assert in_256(colour) == "#" + 3 * f"{shown:02x}"
            assert abs(shown - red) <= 10
        else:
            assert in_256(colour) == colour


@pytest.mark.parametrize("rounded", [str, in_256], ids=["millions", "256"])
@pytest.mark.parametrize("palette", [DARK, LIGHT], ids=["dark", "light"])
def test_all_text_can_be_read_on_both_grounds(palette: Palette, rounded: Callable[[str], str]) -> None:
    for role, colour in palette.roles.items():
        least = 1.5 if role == "rule" else 4.5  # a rule is no text
        for ground in (palette.background, palette.raised):
            assert contrast(rounded(colour), rounded(ground)) >= least, (role, ground)


@pytest.mark.parametrize("theme", THEMES)
def test_every_role_has_a_style(theme: str) -> None:
    assert set(Look(theme).styles) == set(get_args(Role))  # type: ignore[arg-type]


def test_plain_has_no_colour_at_all() -> None:
    look = Look("plain")
    assert all(style.color is None and style.bgcolor is None for style in look.styles.values())
    theme = textual_theme("plain")
    assert theme.ansi
    assert {theme.foreground, theme.background, theme.error} == {"ansi_default"}


def test_no_color_wins_over_any_wish() -> None:
    assert theme_for({}) == "dark"
    assert theme_for({}, "light") == "light"
    assert theme_for({"NO_COLOR": "1"}, "light") == "plain"
    assert theme_for({"NO_COLOR": ""}, "light") == "light"
    with pytest.raises(ValueError, match="no theme “neon”"):
        theme_for({}, "neon")


def test_marks_differ_in_shape_in_both_sets_of_glyphs() -> None:
    for look in (Look(), Look(ascii=True)):
        glyphs = look.glyphs
        assert len({glyphs.ok, glyphs.warn, glyphs.fail, glyphs.skipped, glyphs.lost, glyphs.absent}) >= 5
        assert len({glyphs.ok, glyphs.skipped, glyphs.withheld, glyphs.absent}) == 4
