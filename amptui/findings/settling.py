"""Skipped updates that need nothing: the loss scale on its way to one that fits, and what share of updates is left."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amptui.findings.evidence import TrialEvidence, TripEvidence
from amptui.findings.judgement import UpdateCounts

#: Below this share of the stretch too few updates were applied to judge the training at all.
FEWEST_APPLIED = 0.25
#: Skips with which a default scale of 2^16 settles in ordinary projects. Where that many eat up a short stretch, the
#: stretch is too short; the scale is not to blame.
ORDINARY_SKIPS = 4


def settles(trip: TripEvidence) -> bool:
    """Whether nothing but the scale was wrong: by the scaler's rule, and finite at a lower scale and in FP32."""
    return (
        trip.outcome == "bad_gradient"
        and trip.found_inf
        and trip.fp32_finite
        and trip.fitting_scale is not None
        and (trip.baseline_step is None or trip.baseline_step > trip.step)
    )


def skips_to(fitting: float, scale: float, backoff: float) -> int:
    """How many back-offs lead from `scale` to `fitting` or below."""
    if not (0.0 < fitting < scale < math.inf and 0.0 < backoff < 1.0):
        return 0
    return math.ceil(round((math.log(scale) - math.log(fitting)) / -math.log(backoff), 6))


def counts_of(name: str, counts: Sequence[UpdateCounts]) -> UpdateCounts | None:
    return next((c for c in counts if c.name == name), None)


def counted_iterations(counts: UpdateCounts, iterations: int, without_gradient: int = 0) -> int:
    """The iterations of an update from its first applied one on, less those without a gradient in FP32 either.

    An update that takes part in every n-th iteration (k of N) has taken part in ⌊s·k/N⌋ of the iterations before its
    step s, which is exact because s is a multiple of n and k is N/n rounded up.
    """
    first = counts.first_applied
    before = first * counts.iterations // iterations if first is not None and iterations > 0 else 0
    idle = max(0, min(counts.without_gradient, without_gradient) - before)
    return max(counts.applied, counts.iterations - before - idle)


def applied_share(counts: UpdateCounts, iterations: int, without_gradient: int = 0) -> float:
    """The share of applied updates, counted from the first applied one on; 0 where none was applied."""
    counted = counted_iterations(counts, iterations, without_gradient)
    return counts.applied / counted if counted and counts.applied else 0.0


def idle_in_fp32(evidence: TrialEvidence, name: str) -> int:
    """Iterations in which the FP32 baseline had no gradient for this update."""
    baseline = counts_of(name, evidence.baseline.counts)
    return baseline.without_gradient if baseline is not None else 0


def too_few(counts: UpdateCounts, without_gradient: int = 0) -> bool:
    """Whether less than a quarter of the stretch was applied; iterations idle in FP32 too are not asked for."""
    wanted = counts.iterations - min(counts.without_gradient, without_gradient)
    return counts.iterations > 0 and (wanted <= 0 or counts.applied < FEWEST_APPLIED * wanted)


def updates_fail(evidence: TrialEvidence, name: str) -> bool:
    """Whether the share of applied updates of this update is a reason to blame the scale (see `ORDINARY_SKIPS`).

    Iterations that were held back for another reason are not the scale's doing: that reason is a fault of its own.
    """
    counts = counts_of(name, evidence.counts)
    if counts is None:
        return False
    idle = idle_in_fp32(evidence, name)
    others = [trip for trip in evidence.trips if trip.update == name and not settles(trip)]
    if too_few(counts, idle):
        skips = counts.skipped - sum(trip.count for trip in others if trip.found_inf)
        wanted = counts.iterations - min(counts.without_gradient, idle) - sum(trip.count for trip in others)
        return skips > ORDINARY_SKIPS and counts.applied < FEWEST_APPLIED * wanted
    first = counts.first_applied or 0
    later = sum(trip.count for trip in others if trip.last_step > first)
    asked = max(counts.applied, counted_iterations(counts, evidence.iterations, idle) - later)
    return counts.applied < evidence.criteria.applied_share * asked
