"""Plots as data, and what they show in words: for those who do not see them, and for formats without pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from amptui.findings.words import scale_text
from amptui.report.figures import figure

Scale = Literal["linear", "log10", "log2"]
#: From this ratio of the largest to the smallest value on, a plot of positive values is logarithmic.
_WIDE = 30.0
_NAMED = 4


@dataclass(frozen=True)
class Curve:
    """Values by iteration; `faint` for what the other curve is held against. Neither needs to be finite."""

    label: str
    steps: Sequence[int]
    values: Sequence[float]
    faint: bool = False


@dataclass(frozen=True)
class Lines:
    """Curves over iterations. `stairs`: a value holds until the next one. `limit` is a level, with its name."""

    title: str
    scale: Scale
    curves: Sequence[Curve]
    stairs: bool = False
    limit: tuple[str, float] | None = None


@dataclass(frozen=True)
class Strip:
    """What became of one update, by iteration; `taken` in words such as "applied"."""

    label: str
    steps: Sequence[int]
    taken: Sequence[str]


@dataclass(frozen=True)
class Strips:
    """One strip for each update."""

    title: str
    strips: Sequence[Strip]


Plot = Lines | Strips


def fitting_scale(curves: Sequence[Curve]) -> Scale:
    """Logarithmic where all finite values are positive and far apart."""
    finite = [value for curve in curves for value in curve.values if math.isfinite(value)]
    if not finite or min(finite) <= 0.0:
        return "linear"
    return "log10" if max(finite) / min(finite) >= _WIDE else "linear"


def described(plot: Plot) -> str:
    """The plot in sentences."""
    if isinstance(plot, Strips):
        return " ".join(_strip(strip) for strip in plot.strips)
    said = [_curve(curve, plot.scale) for curve in plot.curves]
    if plot.limit is not None:
        said.append(f"The line at {_value(plot.limit[1], plot.scale)} is the {plot.limit[0]}.")
    return " ".join(said)


def _curve(curve: Curve, scale: Scale) -> str:
    finite = [(value, step) for step, value in zip(curve.steps, curve.values, strict=True) if math.isfinite(value)]
    name = curve.label[:1].upper() + curve.label[1:]
    if not finite:
        return f"{name}: {'no value is finite' if curve.steps else 'no values'}."
    (first, first_step), (last, last_step) = finite[0], finite[-1]
    (low, low_step), (high, high_step) = min(finite), max(finite)
    if low == high:
        said = f"{name}: {_value(first, scale)} throughout"
    else:
        said = (
            f"{name}: {_value(first, scale)} at iteration {first_step}, {_value(last, scale)} at {last_step}; "
            f"lowest {_value(low, scale)} at {low_step}, highest {_value(high, scale)} at {high_step}"
        )
    bad = [step for step, value in zip(curve.steps, curve.values, strict=True) if not math.isfinite(value)]
    return f"{said}; not finite {_at(bad)}." if bad else f"{said}."


def _strip(strip: Strip) -> str:
    kinds = dict.fromkeys(strip.taken)
    if list(kinds) == ["applied"]:
        return f"{strip.label}: applied in all {len(strip.steps):,} iterations."
    parts = []
    for kind in kinds:
        steps = [step for step, taken in zip(strip.steps, strip.taken, strict=True) if taken == kind]
        parts.append(f"{kind} in {len(steps):,}" if kind == "applied" else f"{kind} {_at(steps)}")
    return f"{strip.label}: {', '.join(parts)}."


def _at(steps: Sequence[int]) -> str:
    """ "at iterations 3, 4, 7 and 10 more"."""
    if len(steps) == 1:
        return f"at iteration {steps[0]}"
    more = f" and {len(steps) - _NAMED:,} more" if len(steps) > _NAMED else ""
    return f"at iterations {', '.join(map(str, steps[:_NAMED]))}{more}"


def _value(value: float, scale: Scale) -> str:
    return scale_text(value) if scale == "log2" else figure(value)
