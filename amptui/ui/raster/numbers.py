"""Numbers in few characters: three digits where three are enough, non-finite values by name."""

from __future__ import annotations

import math


def number(value: float | None, digits: int = 3) -> str:
    """`value` in `digits` significant digits, without padding in the exponent: ``0.431``, ``1.2e-5``, ``nan``."""
    if value is None:
        return "–"
    if isinstance(value, int) and abs(value) < 10**6:
        return str(value)
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if 1000 <= abs(value) < 10**6:
        return f"{value:.0f}"
    text = f"{value:.{digits}g}"
    mantissa, mark, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else mantissa


def power_of_two(value: float) -> str:
    """A loss scale as its owner thinks of it: ``2^16``; any other number as `number` writes it."""
    if math.isfinite(value) and value > 0:
        mantissa, exponent = math.frexp(value)
        if mantissa == 0.5:
            return f"2^{exponent - 1}"
    return number(value)


def short(value: float, room: int) -> str:
    """`value` with as many of three digits as fit into `room` characters."""
    for digits in (3, 2, 1):
        text = number(value, digits)
        if len(text) <= room:
            break
    return text


def bytes_size(count: float) -> str:
    """Bytes as people read them: ``412 MB``, ``1.6 GB`` (powers of 1000)."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= size:
            amount = count / size
            return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"
    return f"{count:.0f} B"
