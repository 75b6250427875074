"""What may be said of a measurement: medians with their spread, and no gain that is smaller than its own noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Subject = Literal["time", "memory", "loss", "quality"]
#: `better`, `worse`, or `none`: nothing beyond the noise.
Direction = Literal["better", "worse", "none"]
#: Fewer pairs say nothing about their own spread.
FEWEST_PAIRS = 5
#: Resident memory comes in pages and in the allocator's own steps: less is no difference.
SMALLEST_MEMORY = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Median and quartiles of `count` values."""

    low: float
    median: float
    high: float
    count: int


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What may be said, in one sentence; `figure` is its number (a ratio, a share) where there is one."""

    subject: Subject
    direction: Direction
    words: str
    figure: float | None = None


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Peak bytes of each arm; FP32 twice, which shows the noise."""

    #: `device`: allocated on the accelerator; `resident`: of the whole process.
    kind: Literal["device", "resident"]
    fp32: int
    fp32_again: int
    mixed: int


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles, by linear interpolation; NaN for no values."""
    ordered = sorted(values)
    return Spread(
        low=_quantile(ordered, 0.25), median=_quantile(ordered, 0.5), high=_quantile(ordered, 0.75), count=len(ordered)
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    if not ordered:
        return math.nan
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def noise_of(same: Spread) -> float:
    """How far two equal runs are apart: the factor that the farther quartile of their paired ratios makes, less 1."""
    return _noise_factor(same) - 1.0


def _noise_factor(same: Spread) -> float:
    if not (same.low > 0.0 and same.high > 0.0):
        return math.inf
    return max(same.high, 1.0 / same.high, same.low, 1.0 / same.low)


def time_claim(speedup: Spread, same: Spread) -> Claim:
    """`speedup`: paired FP32 time over mixed time; `same`: paired FP32 over FP32.

    A gain is stated where even the weaker quartile lies beyond the noise of two equal runs.
    """
    if min(speedup.count, same.count) < FEWEST_PAIRS:
        return Claim(
            subject="time", direction="none", words=f"too few pairs to compare ({speedup.count}); nothing is stated"
        )
    noise, factor = noise_of(same), _noise_factor(same)
    between = f"quartiles {speedup.low:.2f} to {speedup.high:.2f}"
    if speedup.low > factor:
        words = f"{speedup.median:.2f} times as fast as FP32 ({between})"
        return Claim(subject="time", direction="better", figure=speedup.median, words=words)
    if speedup.high > 0.0 and 1.0 / speedup.high > factor:
        between = f"quartiles {1.0 / speedup.high:.2f} to {1.0 / speedup.low:.2f}"
        words = f"{1.0 / speedup.median:.2f} times as long as FP32 ({between})"
        return Claim(subject="time", direction="worse", figure=speedup.median, words=words)
    words = f"no difference in time beyond the noise ({between}; two equal FP32 runs differ by {noise:.0%})"
    return Claim(subject="time", direction="none", words=words)


def memory_claim(memory: Memory | None) -> Claim:
    if memory is None or memory.fp32 <= 0:
        return Claim(subject="memory", direction="none", words="memory could not be measured here")
    what = "peak device memory" if memory.kind == "device" else "resident memory of the process"
    noise = max(abs(memory.fp32 - memory.fp32_again), SMALLEST_MEMORY if memory.kind == "resident" else 0)
    saved = min(memory.fp32, memory.fp32_again) - memory.mixed
    more = memory.mixed - max(memory.fp32, memory.fp32_again)
    share = memory.mixed / memory.fp32
    if saved > noise:
        return Claim(subject="memory", direction="better", figure=share, words=f"{what}: {1.0 - share:.0%} less")
    if more > noise:
        return Claim(subject="memory", direction="worse", figure=share, words=f"{what}: {share - 1.0:.0%} more")
    return Claim(subject="memory", direction="none", words=f"{what}: no difference beyond the noise")


# Against other seeds.


@dataclass(frozen=True, kw_only=True)
class SeedSpread:
    """A figure of the FP32 baseline and of the same stretch under other seeds."""

    #: `loss of main` (mean over the last quarter) or `quality`.
    what: str
    subject: Literal["loss", "quality"]
    baseline: float
    others: tuple[float, ...]


def seed_claim(spread: SeedSpread, trial: float) -> Claim:
    """The trial's effect beside what another seed does in FP32.

    Seeds that change nothing are no yardstick; then only the effect itself is told.
    """
    finite = [value for value in spread.others if math.isfinite(value)]
    effect = trial - spread.baseline
    said = f"{spread.what}: {spread.baseline:.4g} in FP32, {trial:.4g} under the policy"
    if not math.isfinite(effect) or not finite:
        return Claim(subject=spread.subject, direction="none", words=f"{said}; not comparable")
    low, high = min(spread.baseline, *finite), max(spread.baseline, *finite)
    seeds = f"{len(finite)} other {'seed' if len(finite) == 1 else 'seeds'}"
    if low == high:
        return Claim(
            subject=spread.subject, direction="none", figure=effect, words=f"{said}; {seeds} change nothing in FP32"
        )
    between = f"with {seeds} FP32 gives {low:.4g} to {high:.4g}"
    if low <= trial <= high:
        words = f"{said}; within what seeds do: {between}"
        return Claim(subject=spread.subject, direction="none", figure=effect, words=words)
    words = f"{said}; beyond what seeds do: {between}"
    return Claim(subject=spread.subject, direction="worse", figure=effect, words=words)
