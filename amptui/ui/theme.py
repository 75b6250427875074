"""How things look: a neutral theme that is the same in 256 colours as in millions, and a plain one for `NO_COLOR`.

Over SSH and in tmux, where millions of colours are not announced, common themes turn navy, teal or black. Here every
hue is one of the fixed colours of the palette of 256, and a grey moves by one step of its ramp at most. The short codes
also make every repaint smaller. Colour only supports: each state also has a shape (`Glyphs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rich.style import Style
from textual.theme import Theme

from amptui.ui.raster.glyphs import ASCII, UNICODE, Glyphs
from amptui.ui.raster.line import Role

ThemeName = Literal["dark", "light", "plain"]
THEMES: tuple[ThemeName, ...] = ("dark", "light", "plain")


@dataclass(frozen=True)
class Palette:
    """Colours by role, and the ground they stand on. The numbers beside them are those of the palette of 256."""

    background: str
    #: A bar or a selected row.
    raised: str
    roles: Mapping[Role, str]


DARK = Palette(
    background="#121212",  # 233
    raised="#262626",  # 235
    roles={
        "text": "#d7d7d7",  # 252
        "dim": "#949494",  # 246
        "strong": "#eeeeee",  # 254
        "accent": "#87d7ff",  # 117
        "good": "#87d787",  # 114
        "warn": "#ffaf5f",  # 215
        "bad": "#ff5f5f",  # 203
        "trial": "#5fd7ff",  # 81
        "baseline": "#a8a8a8",  # 247
        "rule": "#585858",  # 240
        "key": "#ffd787",  # 222
    },
)

LIGHT = Palette(
    background="#ffffff",  # 231
    raised="#f2f2f2",  # 255
    roles={
        "text": "#303030",  # 236
        "dim": "#585858",  # 240
        "strong": "#080808",  # 232
        "accent": "#005f87",  # 24
        "good": "#005f00",  # 22
        "warn": "#875f00",  # 94
        "bad": "#af0000",  # 124
        "trial": "#005faf",  # 25
        "baseline": "#626262",  # 241
        "rule": "#a8a8a8",  # 247
        "key": "#5f0087",  # 54
    },
)

PALETTES: Mapping[ThemeName, Palette | None] = {"dark": DARK, "light": LIGHT, "plain": None}

_BOLD: frozenset[Role] = frozenset({"strong", "accent", "bad", "key"})
#: Without colour, weight is what is left: less is dim, more is bold.
_PLAIN_DIM: frozenset[Role] = frozenset({"dim", "rule", "baseline"})


@dataclass(frozen=True)
class Look:
    """What a widget needs to turn lines into strips: a style for each role, and the glyphs to draw with."""

    theme: ThemeName = "dark"
    ascii: bool = False

    @property
    def glyphs(self) -> Glyphs:
        return ASCII if self.ascii else UNICODE

    @cached_property
    def styles(self) -> Mapping[Role, Style]:
        return {role: _style(role, PALETTES[self.theme]) for role in DARK.roles}

    @cached_property
    def selected(self) -> Style:
        """Laid over the row under the cursor, which also has a mark."""
        palette = PALETTES[self.theme]
        return Style(bgcolor=palette.raised) if palette else Style(reverse=True)


def _style(role: Role, palette: Palette | None) -> Style:
    if palette is None:
        return Style(bold=role in _BOLD or None, dim=role in _PLAIN_DIM or None)
    # The ground too: the framework leaves it out of drawn lines, and light text would stand on a light terminal.
    return Style(color=palette.roles[role], bgcolor=palette.background, bold=role in _BOLD or None)


def textual_theme(name: ThemeName) -> Theme:
    """The theme to register with the app. `plain` leaves both grounds to the terminal (its own colours, no others)."""
    palette = PALETTES[name]
    if palette is None:
        ansi = "ansi_default"
        return Theme(
            name="amptui-plain",
            ansi=True,
            primary=ansi,
            secondary=ansi,
            warning=ansi,
            error=ansi,
            success=ansi,
            accent=ansi,
            foreground=ansi,
            background=ansi,
            surface=ansi,
            panel=ansi,
            boost=ansi,
            variables={
                "ansi-background": ansi,
                "ansi-foreground": ansi,
                "border-blurred": ansi,
                "block-cursor-foreground": ansi,
                "block-cursor-background": ansi,
                "input-cursor-background": ansi,
                "input-cursor-foreground": ansi,
                "input-cursor-text-style": "reverse",
                "input-selection-background": ansi,
                "input-selection-foreground": ansi,
                "screen-selection-background": ansi,
                "screen-selection-foreground": ansi,
            },
        )
    roles = palette.roles
    return Theme(
        name=f"amptui-{name}",
        dark=name == "dark",
        primary=roles["accent"],
        secondary=roles["trial"],
        warning=roles["warn"],
        error=roles["bad"],
        success=roles["good"],
        accent=roles["accent"],
        foreground=roles["text"],
        background=palette.background,
        surface=palette.background,
        panel=palette.raised,
        boost=palette.raised,
        variables={
            "block-cursor-background": palette.raised,
            "block-cursor-foreground": roles["strong"],
            "border": roles["rule"],
            "border-blurred": roles["rule"],
            "footer-background": palette.raised,
            "footer-key-foreground": roles["key"],
            "input-cursor-background": roles["text"],
            "input-cursor-foreground": palette.background,
            "scrollbar": roles["rule"],
            "scrollbar-background": palette.background,
            "scrollbar-corner-color": palette.background,
        },
    )


def theme_for(environ: Mapping[str, str], wanted: str | None = None) -> ThemeName:
    """The theme to use: `NO_COLOR` wins, then `wanted` (from an option or the configuration), then dark.

    Raises:
        ValueError: `wanted` names no theme.
    """
    names: dict[str, ThemeName] = {name: name for name in THEMES}
    if wanted is not None and wanted not in names:
        raise ValueError(f"There is no theme “{wanted}”. Choose one of: {', '.join(THEMES)}.")
    if environ.get("NO_COLOR"):
        return "plain"
    return names[wanted or "dark"]
