"""What happened between two saves of one run: scale, steps, dtypes, keys, values that are no longer finite."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from amptui.inspection.result import Inspection, ScalerState


@dataclass(frozen=True, kw_only=True)
class Change:
    """One difference, as a sentence; `what` is scale, steps, dtypes, keys, nonfinite, format, parts or rates."""

    what: str
    text: str
    #: Whether it speaks of harm done between the two.
    bad: bool = False


def compare(before: Inspection, after: Inspection) -> tuple[Change, ...]:
    """Every difference between two inspections, the weightiest first; empty where they tell the same."""
    changes = [
        *_format(before, after),
        *_scale(before, after),
        *_steps(before, after),
        *_nonfinite(before, after),
        *_dtypes(before, after),
        *_keys(before, after),
        *_parts(before, after),
    ]
    return tuple(sorted(changes, key=lambda change: not change.bad))


def _format(before: Inspection, after: Inspection) -> Iterator[Change]:
    if before.format != after.format:
        yield Change(what="format", text=f"format: {before.title} → {after.title}")
    for inspection in (before, after):
        if inspection.readable and not inspection.complete:
            yield Change(what="format", text=f"{inspection.path} is not complete", bad=True)


def _scale(before: Inspection, after: Inspection) -> Iterator[Change]:
    for old, new in _paired(before.scalers, after.scalers):
        if old is None or new is None:
            path, event = (new.path, "new") if new else (old.path if old else "", "gone")
            yield Change(what="scale", text=f"scaler {path or '(the file)'}: {event}", bad=event == "gone")
        elif old.scale is not None and new.scale is not None and old.scale != new.scale:
            yield _moved(old, new)
        elif old.growth_tracker != new.growth_tracker:
            text = f"scale unchanged at {_number(new.scale)}; growth tracker {_number(old.growth_tracker)} → "
            yield Change(what="scale", text=text + _number(new.growth_tracker))


def _paired(
    before: tuple[ScalerState, ...], after: tuple[ScalerState, ...]
) -> Iterator[tuple[ScalerState | None, ScalerState | None]]:
    """Scalers of the same path; the only one of each side counts as the same wherever it stands."""
    if len(before) == len(after) == 1:
        yield before[0], after[0]
        return
    new = {scaler.path: scaler for scaler in after}
    for scaler in before:
        yield scaler, new.pop(scaler.path, None)
    for scaler in new.values():
        yield None, scaler


def _moved(old: ScalerState, new: ScalerState) -> Change:
    text = f"scale {_number(old.scale)} → {_number(new.scale)}"
    first, last = float(old.scale or 0), float(new.scale or 0)
    if not (0 < first < math.inf and 0 < last < math.inf):
        return Change(what="scale", text=text, bad=not 0 < last < math.inf)
    ratio = math.log2(last) - math.log2(first)
    backoff, growth = old.backoff_factor or 0.5, old.growth_factor or 2.0
    if ratio < 0 and 0 < backoff < 1:
        least = max(1, round(ratio / math.log2(backoff)))
        return Change(what="scale", text=f"{text}: at least {least} more overflows than growths", bad=last < 1)
    if ratio > 0 and growth > 1:
        least = max(1, round(ratio / math.log2(growth)))
        return Change(what="scale", text=f"{text}: grew at least {least} times")
    return Change(what="scale", text=text)


def _steps(before: Inspection, after: Inspection) -> Iterator[Change]:
    old, new = before.steps, after.steps
    for name, first, last in (("loop steps", old.loop, new.loop), ("optimizer steps", old.optimizer, new.optimizer)):
        if first is not None and last is not None and first != last:
            yield Change(what="steps", text=f"{name} {first:,} → {last:,} ({last - first:+,})", bad=last < first)
    if old.loop is None or new.loop is None or old.optimizer is None or new.optimizer is None:
        return
    loop, taken = new.loop - old.loop, new.optimizer - old.optimizer
    if loop > 0 and taken == 0:
        yield Change(what="steps", text=f"no update was taken in {loop:,} loop steps", bad=True)
    elif loop > taken >= 0:
        yield Change(what="steps", text=f"{loop - taken:,} of {loop:,} updates between the two were skipped")


def _nonfinite(before: Inspection, after: Inspection) -> Iterator[Change]:
    if not (before.values_read and after.values_read):
        return
    poisoned = [path for path in after.nonfinite if path not in set(before.nonfinite)]
    healed = [path for path in before.nonfinite if path not in set(after.nonfinite)]
    if poisoned:
        text = f"{_tensors(poisoned, 'are')} no longer finite: {_listed(poisoned)}"
        yield Change(what="nonfinite", text=text, bad=True)
    if healed:
        yield Change(what="nonfinite", text=f"{_tensors(healed, 'are')} finite again: {_listed(healed)}")
    emptied = [path for path in after.zero if path not in set(before.zero)]
    if emptied:
        yield Change(what="nonfinite", text=f"{_tensors(emptied, 'became')} all zero: {_listed(emptied)}")


def _dtypes(before: Inspection, after: Inspection) -> Iterator[Change]:
    old = {tensor.path: tensor.dtype for tensor in before.tensors}
    moved: dict[tuple[str, str], list[str]] = {}
    for tensor in after.tensors:
        first = old.get(tensor.path)
        if first is not None and first != tensor.dtype:
            moved.setdefault((first, tensor.dtype), []).append(tensor.path)
    for (first, last), paths in moved.items():
        yield Change(what="dtypes", text=f"{_tensors(paths)} {first} → {last}: {_listed(paths)}")


def _keys(before: Inspection, after: Inspection) -> Iterator[Change]:
    old = {tensor.path: tensor.shape for tensor in before.tensors}
    new = {tensor.path: tensor.shape for tensor in after.tensors}
    gone = [path for path in old if path not in new]
    come = [path for path in new if path not in old]
    reshaped = [path for path, shape in new.items() if path in old and old[path] != shape]
    if gone:
        yield Change(what="keys", text=f"{_tensors(gone, 'are')} gone: {_listed(gone)}")
    if come:
        yield Change(what="keys", text=f"{_tensors(come, 'are')} new: {_listed(come)}")
    if reshaped:
        yield Change(what="keys", text=f"{_tensors(reshaped, 'have')} another shape: {_listed(reshaped)}")


def _parts(before: Inspection, after: Inspection) -> Iterator[Change]:
    lost = [part for part in after.missing if part in before.present]
    if lost:
        yield Change(what="parts", text=f"no longer saved: {', '.join(lost)}", bad=True)
    found = [part for part in before.missing if part in after.present]
    if found:
        yield Change(what="parts", text=f"now saved too: {', '.join(found)}")
    if before.learning_rates and after.learning_rates and before.learning_rates != after.learning_rates:
        text = f"learning rate {before.learning_rates[0]:g} → {after.learning_rates[0]:g}"
        yield Change(what="rates", text=text)


def _tensors(paths: list[str], verb: str = "") -> str:
    """`1 tensor is`, `3 tensors are`: how many, with the verb that follows."""
    if len(paths) != 1:
        return f"{len(paths):,} tensors {verb}".strip()
    return f"1 tensor {({'are': 'is', 'have': 'has'}).get(verb, verb)}".strip()


def _listed(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
