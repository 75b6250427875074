"""Figures as the terminal account writes them: four significant digits, units that people read, plain ASCII."""

from __future__ import annotations

import math
import os

from amptui.text import safe_text

_PLAIN = str.maketrans(
    {"·": "|", "×": "x", "≈": "~", "→": "->", "…": "...", "–": "-", "─": "-", "│": "|", "━": "=", "≤": "<="}
)  # fmt: skip


def figure(value: object) -> str:
    """Any plain value in few characters: `1,234`, `0.01234`, `1.2e-5`, `nan`, `-inf`, `none`; texts made safe."""
    if value is None:
        return "none"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return safe_text(value, 80)
    return f"{value:,}" if isinstance(value, int) and abs(value) < 10**15 else _real(float(value))


def _real(value: float) -> str:
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value == 0.0:
        return "0"
    if not 1e-4 <= abs(value) < 1e4:
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.4g}"


def size(count: int) -> str:
    """Bytes as `812 B`, `48.2 KiB`, `1.5 GiB`."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{count:,} B" if unit == "B" else f"{amount:,.1f} {unit}"


def duration(seconds: float) -> str:
    """`0.34 s`, `12 s`, `3 min 20 s`."""
    if not math.isfinite(seconds):
        return f"{figure(seconds)} s"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:,} min {rest} s"


def step_time(seconds: float) -> str:
    """The time of a step: `2.458 ms`, `1.5 s`."""
    unit, factor = ("s", 1.0) if not seconds < 1.0 else ("ms", 1000.0)
    return f"{figure(seconds * factor)} {unit}"


def name(value: object) -> str:
    """A foreign name (module, case, file, operator) on one line."""
    return safe_text(value, 200)


def place(where: str | None) -> str:
    """`file:line` of the user's code, relative where it lies under the folder that one stands in; "" for None."""
    try:
        here = os.getcwd()  # noqa: PTH109 - a text is cut, not a path
    except OSError:  # it was removed meanwhile
        return name(where or "")
    return name((where or "").removeprefix(here.rstrip(os.sep) + os.sep))


def from_here(text: str) -> str:
    """A sentence with the paths in it relative where they lie under the folder that one stands in."""
    here = os.getcwd().rstrip(os.sep)  # noqa: PTH109 - a text is cut, not a path
    return text.replace(f"{here}{os.sep}", "") if here else text


def words(value: object) -> str:
    """A foreign text (exception, remark) that may have several lines."""
    return safe_text(str(value).strip("\n"), 2000, lines=True)


def short_digest(digest: str) -> str:
    """The first twelve hexadecimal digits: enough to compare by eye."""
    return safe_text(digest[:12])


def as_ascii(text: str) -> str:
    """`text` in ASCII alone: amptui's own signs as lookalikes, all else as backslash escapes."""
    return text if text.isascii() else text.translate(_PLAIN).encode("ascii", "backslashreplace").decode("ascii")
