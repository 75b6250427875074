"""Findings about scaler states: what torch's GradScaler accepts without a word, and what becomes of it.

The consequences are those of torch/amp/grad_scaler.py: an infinite scale stays infinite when it backs off; at or below
2^-128 its inverse, computed in float32, is infinite, and one clean batch then writes NaN into the weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from amptui.findings.finding import Finding
from amptui.inspection.notes import fault, notice
from amptui.inspection.result import ScalerState
from amptui.inspection.rules.evidence import Evidence

#: At and below this scale 1/scale overflows float32.
DEADLY_SCALE = 2.0**-128
LOW_SCALE = 16.0
LARGE_SCALE, OVERGROWN_SCALE = 2.0**24, 2.0**32  # 2^32 is the highest start that a framework (DeepSpeed) has
_FRESH = "Start a fresh GradScaler instead of loading this state; it finds its scale within a few updates."


def scaler_findings(evidence: Evidence) -> Iterator[Finding]:
    """Every fault and oddity of the scalers, and of scalers that should be there and are not."""
    scalers = evidence.sightings.scalers
    for scaler in scalers:
        yield from _state(scaler, evidence)
    yield from _missing(evidence)
    yield from _disagreement(scalers)


def _state(scaler: ScalerState, evidence: Evidence) -> Iterator[Finding]:
    where = place_of(scaler.path)
    if scaler.empty:
        yield _empty(scaler, evidence)
        return
    for name in scaler.absent:
        what = f"{where} has no {name.lstrip('_')}"
        yield fault("scaler-incomplete", what, "load_state_dict raises KeyError", advice=_FRESH, path=scaler.path)
    for words in scaler.wrong:
        yield fault("scaler-wrong-type", f"{where}: {words}", "a number is expected", advice=_FRESH, path=scaler.path)
    if scaler.stored:
        what = f"{where}: the scale is {scaler.stored}, not a number"
        if scaler.kind == "not a state":
            what = f"{where} holds {scaler.stored} instead of a scaler's state"
        advice = "Save scaler.state_dict(), not a number out of it. " + _FRESH
        yield fault("scaler-wrong-type", what, advice=advice, path=scaler.path)
    if scaler.scale is not None:
        yield from _scale(scaler, float(scaler.scale), where)
    yield from _growth(scaler, where)


def _scale(scaler: ScalerState, scale: float, where: str) -> Iterator[Finding]:
    path = scaler.path
    if math.isnan(scale):
        what = f"{where}: the scale is not a number (NaN)"
        yield fault("scale-nan", what, "every scaled loss and gradient becomes NaN", advice=_FRESH, path=path)
    elif math.isinf(scale):
        what = f"{where}: the scale is infinite"
        why = "every later update is skipped, for ever: backing off from infinity stays infinity"
        yield fault("scale-inf", what, why, advice=_FRESH, path=path)
    elif scale == 0:
        what = f"{where}: the scale is zero"
        yield fault("scale-zero", what, "the first clean update writes NaN into the weights", advice=_FRESH, path=path)
    elif scale < 0:
        what = f"{where}: the scale is negative ({scale:g})"
        yield fault("scale-negative", what, "no scaler reaches such a value by itself", advice=_FRESH, path=path)
    elif scale <= DEADLY_SCALE:
        what = f"{where}: the scale has collapsed to {scale:g}"
        why = "its inverse overflows float32: one clean update writes NaN into the weights"
        yield fault("scale-tiny", what, why, advice=_collapsed(), path=path)
    elif scale < 1:
        what = f"{where}: the scale has collapsed to {scale:g} (2^{math.log2(scale):.0f})"
        why = "gradients overflowed again and again before this save"
        yield fault("scale-tiny", what, why, advice=_collapsed(), path=path)
    elif scaler.lowest_scale is not None and scale <= scaler.lowest_scale:
        what = f"{where}: the scale is at its floor, {scale:g}"
        yield notice("scale-at-floor", what, "it cannot back off further", advice=_collapsed(), path=path)
    elif scale < LOW_SCALE:
        what = f"{where}: the scale is low, {scale:g} (2^{math.log2(scale):.0f})"
        why = "gradients beyond 4,000 overflowed before this save"
        yield notice("scale-low", what, why, advice="Look for what overflows before it collapses further.", path=path)
    elif scale > OVERGROWN_SCALE:
        what = f"{where}: the scale has grown to {scale:g} (2^{math.log2(scale):.0f})"
        why = "gradients are zero or hardly reach float16 at all, or the run was bfloat16, which needs no scaler"
        advice = "Look at the gradient norms; train bfloat16 without a scaler. " + _FRESH
        yield fault("scale-huge", what, why, advice=advice, path=path)
    elif scale > LARGE_SCALE:
        what = f"{where}: the scale is large, {scale:g} (2^{math.log2(scale):.0f})"
        yield notice("scale-huge", what, advice="Check that gradients are not mostly zero.", path=path)


def _collapsed() -> str:
    return (
        "Something overflows at every scale: find it (amptui run, or FP32 for one epoch) before you resume. "
        "A fresh scaler alone will collapse again."
    )


def _growth(scaler: ScalerState, where: str) -> Iterator[Finding]:
    path, tracker, interval = scaler.path, scaler.growth_tracker, scaler.growth_interval
    if interval is not None and not interval > 0:
        what = f"{where}: the growth interval is {interval:g}"
        yield fault("interval", what, "the scale never grows again", advice="Set growth_interval to 2000.", path=path)
    elif tracker is not None and interval is not None and tracker >= interval and scaler.kind.startswith("GradScaler"):
        what = f"{where}: the growth tracker ({tracker:g}) is past the growth interval ({interval:g})"
        why = "the scale grows only when both are equal, so it will not grow until the next overflow resets the tracker"
        advice = (
            "Set _growth_tracker to 0 in the state before loading it; keep the interval that the run was saved with."
        )
        yield fault("tracker-past-interval", what, why, advice=advice, path=path)
    if tracker is not None and not (tracker >= 0 and tracker == int(tracker) if math.isfinite(tracker) else False):
        what = f"{where}: the growth tracker is {tracker:g}, not a count"
        yield fault("tracker", what, advice="Set _growth_tracker to 0 in the state before loading it.", path=path)
    growth, backoff = scaler.growth_factor, scaler.backoff_factor
    if growth is not None and not 1 < growth < math.inf:
        what = f"{where}: the growth factor is {growth:g}"
        yield fault("growth-factor", what, "it must be above 1 for the scale to grow", advice=_FRESH, path=path)
    if backoff is not None and not 0 < backoff < 1:
        what = f"{where}: the back-off factor is {backoff:g}"
        why = "it must lie between 0 and 1 for the scale to shrink after an overflow"
        yield fault("backoff-factor", what, why, advice=_FRESH, path=path)


def _empty(scaler: ScalerState, evidence: Evidence) -> Finding:
    where = place_of(scaler.path)
    if evidence.precision.off or (evidence.precision.bf16 and not evidence.precision.fp16):
        what = f"{where} is empty: the scaler was disabled"
        return notice("scaler-empty", what, advice="Nothing to do: this run trained without scaling.", path=scaler.path)
    what = f"{where} is empty: it was saved by a disabled scaler"
    why = "an enabled scaler refuses it (RuntimeError), and the scale of the run is lost"
    advice = (
        "If the run used FP16 autocast, build the scaler for the right device (torch.amp.GradScaler('cuda')) before "
        "saving; otherwise skip loading it."
    )
    return fault("scaler-empty", what, why, advice=advice, path=scaler.path)


def _missing(evidence: Evidence) -> Iterator[Finding]:
    if evidence.sightings.scalers:
        return
    reasons = [*evidence.precision.fp16]
    for place in evidence.sightings.scaler_is_none:
        reasons.append(f"{place} is None")
    if "scaler" in evidence.layout.never:
        yield notice("scaler-never-saved", evidence.layout.never["scaler"], path="")
    elif reasons and evidence.precision.fp16:
        what = f"no scaler state, though the run trained in FP16: {reasons[0]}"
        why = "a resume starts again at scale 65536 and skips updates until it has found its scale"
        advice = (
            "Save scaler.state_dict() with the rest. Until then give the new scaler an init_scale near the old one."
        )
        yield fault("scaler-missing", what, why, advice=advice)


def _disagreement(scalers: list[ScalerState]) -> Iterator[Finding]:
    """Rank files hold the same scaler: it must not differ between them."""
    by_kind: dict[str, list[ScalerState]] = {}
    for scaler in scalers:
        file, colon, inner = scaler.path.partition(": ")
        if colon and ("rank" in file):
            by_kind.setdefault(inner, []).append(scaler)
    for group in by_kind.values():
        states = {(scaler.scale, scaler.growth_tracker) for scaler in group}
        if len(states) > 1:
            shown = ", ".join(f"{scaler.path.partition(': ')[0]}: {scaler.scale}" for scaler in group[:4])
            what = f"the ranks' scalers differ ({shown})"
            why = "ranks then skip different updates and their weights drift apart"
            advice = "Resume from an earlier save, or give all ranks one of these states."
            yield fault("ranks-disagree", what, why, advice=advice, path=group[0].path)


def place_of(path: str) -> str:
    """How a sentence names a place in the checkpoint."""
    return path if path else "the file itself"
