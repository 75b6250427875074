"""The characters that pictures are made of, in Unicode and in plain ASCII (`--ascii`)."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Glyphs:
    """One character each, one terminal cell wide. Marks differ in shape, never by colour alone."""

    name: str
    #: Passed, applied.
    ok: str
    warn: str
    fail: str
    #: An update that was not taken because its gradients were not finite (the scaler's rule).
    skipped: str
    #: An update that the guard held back.
    withheld: str
    #: A value that is not finite.
    lost: str
    #: Nothing happened here.
    absent: str
    #: A value below a logarithmic axis: zero or negative.
    below: str
    cursor: str
    ellipsis: str
    separator: str
    solid_key: str
    dashed_key: str
    rule: str
    rule_focused: str
    limit: str
    vertical: str
    tick: str
    ascending: str
    descending: str
    paused: str
    running: str


UNICODE = Glyphs(
    name="unicode",
    ok="✓",
    warn="!",
    fail="✗",
    skipped="↷",
    withheld="×",
    lost="×",
    absent="·",
    below="↓",
    cursor="▸",
    ellipsis="…",
    separator="·",
    solid_key="━",
    dashed_key="┄",
    rule="─",
    rule_focused="━",
    limit="┈",
    vertical="│",
    tick="┤",
    ascending="↑",
    descending="↓",
    paused="‖",
    running="▶",
)

ASCII = Glyphs(
    name="ascii",
    ok="+",
    warn="!",
    fail="x",
    skipped=">",
    withheld="x",
    lost="*",
    absent=".",
    below="v",
    cursor=">",
    ellipsis="~",
    separator="-",
    solid_key="=",
    dashed_key=":",
    rule="-",
    rule_focused="=",
    limit=".",
    vertical="|",
    tick="+",
    ascending="^",
    descending="v",
    paused="#",
    running=">",
)

_LOOKALIKES = str.maketrans(
    {
        "×": "x",
        "·": "-",
        "–": "-",
        "—": "-",
        "−": "-",
        "…": "~",
        "“": '"',
        "”": '"',
        "‘": "'",
        "’": "'",
        "→": ">",
        "←": "<",
        "↑": "^",
        "↓": "v",
        "↷": ">",
        "✓": "+",
        "✗": "x",
        "≤": "<",
        "≥": ">",
        "≈": "~",
        "±": "~",
        "µ": "u",
        "²": "2",
        "━": "=",
        "─": "-",
        "┄": ":",
        "┈": ".",
        "│": "|",
        "┤": "+",
        "▸": ">",
        "▶": ">",
        "‖": "#",
    }
)


def to_ascii(text: str) -> str:
    """`text` in ASCII and in as many cells: lookalikes, letters without accents, else question marks."""
    if text.isascii():
        return text
    return "".join(_plain(character) for character in text.translate(_LOOKALIKES))


def _plain(character: str) -> str:
    if character.isascii():
        return character
    if unicodedata.combining(character):
        return ""
    base = unicodedata.normalize("NFKD", character)[0]
    if base.isascii() and base.isprintable() and unicodedata.east_asian_width(character) not in "WF":
        return base
    return "?" * (2 if unicodedata.east_asian_width(character) in "WF" else 1)
