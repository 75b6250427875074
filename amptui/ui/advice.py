"""What the two lines that lead on are: a sentence on what is true, and the keys to press next."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from amptui.findings.judgement import Verdict
from amptui.text import display_width
from amptui.ui.key_names import KeyNames
from amptui.ui.raster.line import Role

ROLES: Mapping[Verdict, Role] = {"accept": "good", "reject": "bad", "inconclusive": "warn"}
#: Cells of the line that says what to press, on the smallest terminal that is common.
_LINE = 80


@dataclass(frozen=True)
class Guidance:
    """`now` says what is true, `press` what to do about it."""

    now: str
    press: str
    role: Role = "text"


def fitting(options: Mapping[str, str], active: Collection[str], keys: KeyNames) -> str:
    """Those of `options` (what a key does, by its id) that do something now, in their order, as many as fit."""
    said = ""
    for identity, text in options.items():
        words = keys.say(text)
        longer = f"{said}, {words}" if said else words
        if identity in active and words and display_width(longer) < _LINE:
            said = longer
    return f"{said}." if said else ""
