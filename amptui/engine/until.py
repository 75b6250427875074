"""Whether what a run goes on until has happened, in words with the figure that met the limit."""

from __future__ import annotations

import math

from amptui.findings.words import counted, scale_text
from amptui.protocol.commands import Condition
from amptui.protocol.facts import IterationRecord


def reached(condition: Condition, record: IterationRecord, without_update: int) -> str | None:
    """Why `condition` holds after `record`; None where it does not.

    `without_update`: iterations since an update was last applied.
    """
    met = _met(condition, record, without_update)
    return None if met is None else f"until {condition.name.replace('_', ' ')}: {met}"


def _met(condition: Condition, record: IterationRecord, without_update: int) -> str | None:
    limit = condition.value
    if condition.name == "skip":
        held = [u for u in record.updates if u.skipped or u.withheld]
        return f"{held[0].update} is {'skipped' if held[0].skipped else 'withheld'}" if held else None
    if condition.name == "scale_drop":
        before, after = record.scale_before, record.scale_after
        return f"from {scale_text(before)} to {scale_text(after)}" if after < before else None
    if condition.name == "nonfinite":
        bad = [u for u in record.updates if u.outcome not in ("ok", "no_gradient")]
        return f"in {bad[0].update}" if bad else None
    if limit is None:
        return None
    if condition.name == "norm":
        return _over({update.update: update.norm for update in record.updates}, limit)
    if condition.name == "loss":
        return _over({update.update: update.loss for update in record.updates}, limit)
    if condition.name == "step":
        return f"{record.step:,}" if record.step >= limit else None
    return f"{counted(without_update, 'iteration')} without an update" if without_update >= limit else None


def _over(figures: dict[str, float], limit: float) -> str | None:
    """The first figure beyond `limit`, with its update's name where there are several."""
    for update, value in figures.items():
        whose = f" in {update}" if len(figures) > 1 else ""
        if not math.isfinite(value):
            return f"{value}{whose} is not finite"
        if value > limit:
            return f"{_apart(value, limit)}{whose} is over {limit:.12g}"
    return None


def _apart(value: float, limit: float) -> str:
    """`value` in as few digits as tell it from `limit`, from four on."""
    return next((text for n in range(4, 17) if float(text := f"{value:.{n}g}") > limit), repr(value))
