"""Foreign text made safe before anyone sees it.

Every string that amptui did not write itself (labels, exception texts, module names, log lines, checkpoint keys)
passes `safe_text` before it reaches a terminal, a report or the clipboard. Neither Rich nor Textual does this: escape
sequences, C1 bytes and bidirectional controls in a label would reach the terminal as they are.
"""

from __future__ import annotations

import re
import shlex
import unicodedata

ELLIPSIS = "…"

# C0 and C1 controls and DEL; the bidirectional controls, marks and isolates; line and paragraph separators; zero-width
# characters that hide or join text; surrogates (a broken decode); the tag block, which is invisible everywhere.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_MARKS = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{4,}")


# Nearly all that is drawn: every character is harmless and takes one cell, which is seen without looking at each.
_NARROW = re.compile("[\x20-\x7e\xa0\u2500-\u257f\u2800-\u28ff×·…✓✗↷↓↑▸┄┈]*").fullmatch


def safe_text(value: object, limit: int = 400, *, lines: bool = False) -> str:
    """`value` as text without control characters, at most `limit` characters long.

    Control characters become visible escapes such as ``\\x1b`` or ``\\u202e``; with `lines`, newline is kept and a tab
    becomes four spaces. Runs of combining marks are cut to three, so that one cell cannot flood its neighbours.
    """
    text = value if isinstance(value, str) else text_of(value)
    overlong = len(text) > limit
    if overlong:
        text = text[: limit - 1]
    parts = text.replace("\t", "    ").split("\n") if lines else [text]
    return "\n".join(map(_visible, parts)) + (ELLIPSIS if overlong else "")


def shell_word(value: str) -> str:
    """`value` as one word of a command line; safe to show, and to paste where it holds no control characters."""
    return shlex.quote(safe_text(value, 4000))


def text_of(value: object) -> str:
    """`str(value)`, or words where the value's own `__str__` raises, whatever it raises."""
    try:
        return str(value)
    except BaseException:
        return "(its text cannot be read)"


def _visible(text: str) -> str:
    if (text.isascii() and text.isprintable()) or _NARROW(text):
        return text
    text = _UNSAFE.sub(_escaped, text)
    return _MARKS.sub(lambda match: match.group()[:3], text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def display_width(text: str) -> int:
    """How many terminal cells `text` takes: East Asian wide characters two, combining marks none."""
    return len(text) if _NARROW(text) else sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
