"""What FP32 alone foretells of a trial in a smaller dtype, and what became of it. Pure functions on plain values.

A value overflows where it rounds beyond the dtype's largest number, and is lost where it rounds to zero. Gradients are
linear in the loss scale, so what one FP32 pass shows of them holds for every scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from amptui.findings.finding import Finding
from amptui.findings.judgement import ScaleCourse, UpdateCounts
from amptui.findings.words import counted, scale_text

#: `result`: what an op computes; `cast`: what goes into it when autocast makes it half; `row`: a softmax over a row
#: that lies wholly beyond the dtype's range.
Why = Literal["result", "cast", "row"]

#: GradScaler's own default.
DEFAULT_SCALE = 2.0**16
#: Growth of the scale stops here.
LARGEST_SCALE = 2.0**127
#: An op's partial sums can be larger than its result (a convolution's weight gradient), and the weights of the trial
#: are not those of the baseline: the forecast leaves so much of the range free.
RESERVE = 2.0
#: A larger scale than torch's default is proposed only if the default loses this share of the gradients.
LOSES_MUCH = 0.01
#: Exponents of the histograms, lowest first: all of float32, denormal numbers included.
LOWEST_EXPONENT, EXPONENTS = -149, 277


@dataclass(frozen=True, kw_only=True)
class DtypeRange:
    """`largest` finite value, and the exponent below which every value rounds to zero."""

    largest: float
    zero_below: int


RANGES: Mapping[str, DtypeRange] = {
    "float16": DtypeRange(largest=65504.0, zero_below=-25),
    "bfloat16": DtypeRange(largest=3.3895313892515355e38, zero_below=-134),
}


@dataclass(frozen=True, kw_only=True)
class PlaceForecast:
    """One op at one place, over everything that FP32 ran there; magnitudes are FP32's."""

    phase: Literal["forward", "backward"]
    #: Dotted path, `""` the root; `loss` or `outputs` for code outside of all modules.
    module: str
    op: str
    line: str | None
    #: In which the policy computes it, as one run showed.
    dtype: str
    why: Why = "result"
    #: How many results were read.
    results: int
    largest: float
    #: The dtype's largest value over `largest`; below 1 it overflows, infinite where all is zero.
    headroom: float
    #: Share of the non-zero values that round to zero at loss scale 1.
    lost: float
    #: Where it first overflows, else where it is largest: the iteration, or the evaluation case.
    step: int | None = None
    case: str | None = None


@dataclass(frozen=True, kw_only=True)
class ScaleForecast:
    """One loss scale: whether every gradient is in range, and the share of non-zero ones that round to zero."""

    scale: float
    fits: bool
    lost: float


@dataclass(frozen=True, kw_only=True)
class DtypeForecast:
    """What FP32 foretells of one dtype."""

    dtype: str
    #: What kept the one run in this dtype from its end, which shows what is computed in it; ops after that are unknown.
    failed: str | None = None
    failed_at: str | None = None
    #: Forward places that overflow, in the order in which a trial meets them: the first is the cause.
    overflows: tuple[PlaceForecast, ...] = ()
    #: All places, the smallest headroom first.
    places: tuple[PlaceForecast, ...] = ()
    #: The loss scale to start with; None where nothing is computed in this dtype in backward, or no scale saves any
    #: iteration.
    initial_scale: float | None = None
    #: The place in backward that limits it.
    limited_by: PlaceForecast | None = None
    #: Iterations whose forward overflows, which no loss scale mends, and others whose gradients leave the range at
    #: every scale from 1 on.
    overflowing: int = 0
    beyond_every_scale: int = 0
    scales: tuple[ScaleForecast, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """The gradients that are computed in one dtype, unscaled.

    `exponents` counts the non-zero values by floor(log2 |value|), from `LOWEST_EXPONENT` on.
    """

    largest: float
    exponents: Sequence[float]
    #: 1 where an op gets the gradient that backward begins with, which is the scale itself, in half; else 0.
    seed: float = 0.0


def overflows(largest: float, dtype: str) -> bool:
    """Whether a value of this magnitude rounds to infinity."""
    if dtype == "float16":
        return largest >= 65520.0  # halfway to what would be the next number
    return largest > RANGES[dtype].largest


def headroom(largest: float, dtype: str) -> float:
    return RANGES[dtype].largest / largest if largest > 0.0 else math.inf


def lost_share(exponents: Sequence[float], dtype: str, scale: float = 1.0) -> float:
    """The share of the counted values that round to zero once they are multiplied by `scale`."""
    total = math.fsum(exponents)
    if not total:
        return 0.0
    below = RANGES[dtype].zero_below - math.log2(scale) - LOWEST_EXPONENT
    return math.fsum(exponents[: max(0, math.ceil(below))]) / total


def fitting_scale(gradients: Gradients, dtype: str) -> float:
    """The largest power of two at which every gradient is in range, with `RESERVE` for those that were measured."""
    largest = max(gradients.largest * RESERVE, gradients.seed)
    if largest <= 0.0:
        return LARGEST_SCALE
    exponent = math.floor(math.log2(RANGES[dtype].largest) - math.log2(largest))
    return 2.0 ** min(max(exponent, -126), 127)


def initial_scale(gradients: Gradients, dtype: str) -> float:
    """The scale to start with, at least 1: torch's default, lower where it does not fit, higher where it loses much."""
    fits = max(1.0, fitting_scale(gradients, dtype))
    if dtype == "bfloat16" and lost_share(gradients.exponents, dtype) <= LOSES_MUCH:
        return 1.0  # reaches as far down as float32: nothing to scale for
    if fits <= DEFAULT_SCALE or lost_share(gradients.exponents, dtype, DEFAULT_SCALE) <= LOSES_MUCH:
        return min(fits, DEFAULT_SCALE)
    scale = DEFAULT_SCALE
    while scale < fits and lost_share(gradients.exponents, dtype, scale) > LOSES_MUCH:
        scale *= 2.0
    return scale


def scale_table(gradients: Gradients, dtype: str, scales: Sequence[float]) -> tuple[ScaleForecast, ...]:
    fits = fitting_scale(gradients, dtype)
    return tuple(
        ScaleForecast(scale=scale, fits=scale <= fits, lost=lost_share(gradients.exponents, dtype, scale))
        for scale in scales
    )


# Afterwards.


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A forecast beside the trial that followed."""

    dtype: str
    #: Module and op of the first foreseen overflow, and those of the first overflow that the trial's findings name.
    foreseen: PlaceForecast | None
    happened: Finding | None
    #: Whether both say the same: the same module (or parent and child) overflows, or none does.
    overflow_right: bool
    foreseen_scale: float | None
    #: The scale of the first applied update, by what the trial's scaler came down to; None without a scaler.
    trial_scale: float | None
    skipped: int
    words: tuple[str, ...]


def compare(
    forecast: DtypeForecast, findings: Sequence[Finding], counts: Sequence[UpdateCounts], scaler: ScaleCourse | None
) -> Comparison:
    """What was foreseen beside what the trial showed."""
    foreseen = forecast.overflows[0] if forecast.overflows else None
    modules = {place.module for place in forecast.overflows}
    faults = [finding for finding in findings if finding.severity == "fault"]
    happened = _what_overflowed(faults, modules)
    right = (foreseen is None) if happened is None else any(near(happened.module, module) for module in modules)
    skipped = sum(count.skipped for count in counts)
    scale = scaler.lowest if scaler is not None else None
    return Comparison(
        dtype=forecast.dtype,
        foreseen=foreseen,
        happened=happened,
        overflow_right=right,
        foreseen_scale=forecast.initial_scale,
        trial_scale=scale,
        skipped=skipped,
        words=(
            *_error_words(forecast, faults),
            *_overflow_words(forecast, happened, right),
            *_scale_words(forecast, scaler, skipped),
        ),
    )


def _what_overflowed(faults: Sequence[Finding], foreseen: Set[str]) -> Finding | None:
    """The overflow that the trial found in forward, one with a known op first; else what it found at a foreseen place.

    An overflow may be told by its reason (an autocast for another dtype), or as one that FP32 has as well.
    """
    forward = [
        f for f in faults if f.kind != "scaler"
    ]  # a gradient at the loss scale: the words about the scale say it
    overflowed = [f for f in forward if f.kind == "overflow" or f.facts.get("cause") == "overflow"]
    overflowed.sort(key=lambda finding: (finding.op is None, finding.kind != "overflow"))
    at_place = (f for f in forward if f.op is not None and any(near(f.module, module) for module in foreseen))
    return overflowed[0] if overflowed else next(at_place, None)


def near(module: str, other: str) -> bool:
    """Whether two dotted paths are the same, or parent and child."""
    if module == other:
        return True
    one, two = module.split(".") if module else [], other.split(".") if other else []
    shorter = min(len(one), len(two))
    return abs(len(one) - len(two)) == 1 and one[:shorter] == two[:shorter]


def _error_words(forecast: DtypeForecast, faults: Sequence[Finding]) -> tuple[str, ...]:
    if forecast.failed is None:
        return ()
    if any(finding.stage == "error" for finding in faults):
        return ("the error in the project's code was foreseen",)
    return ("an error in the project's code was foreseen, and there was none",)


def _overflow_words(forecast: DtypeForecast, happened: Finding | None, right: bool) -> tuple[str, ...]:
    foreseen = forecast.overflows[0] if forecast.overflows else None
    if happened is None:
        if foreseen is not None:
            return (f"an overflow was foreseen in {place_words(foreseen)}, and none was found",)
        # after an error neither of the two looked any further
        return ("no overflow in forward was foreseen, and none was found",) if forecast.failed is None else ()
    op = "cast" if happened.op == "to" else happened.op
    where = f"{place_name(happened.module)} ({op})" if op else place_name(happened.module)
    known = "was foreseen" if right else "was not foreseen"
    also = "" if right or foreseen is None else f"; one in {place_words(foreseen)} was"
    if happened.kind == "not_precision":
        also += "; FP32 has it too"
    elif happened.kind != "overflow":
        where += f", found as {happened.kind.replace('_', ' ')},"
    return (f"the overflow in {where} {known}{also}",)


def _scale_words(forecast: DtypeForecast, scaler: ScaleCourse | None, skipped: int) -> tuple[str, ...]:
    if scaler is None or forecast.initial_scale is None or forecast.failed is not None:
        return ()
    foreseen = f"a first scale of {scale_text(forecast.initial_scale)} was foreseen"
    fell = scaler.lowest < scaler.initial
    course = f"the trial started at {scale_text(scaler.initial)}" + (
        f" and came down to {scale_text(scaler.lowest)}" if fell else " and never came down"
    )
    skips = f"{' ' if fell else ', '}with {counted(skipped, 'skipped update')}" if skipped else ""
    return (f"{foreseen}; {course}{skips}",)


def place_name(module: str) -> str:
    """A module for a sentence: a path of numbers alone would read as a figure."""
    return f"module {module}" if module.replace(".", "").isdigit() else module or "the model itself"


def place_words(place: PlaceForecast) -> str:
    """ "head (addmm)"; "head (cast)" for what autocast makes half there."""
    return f"{place_name(place.module)} ({'cast' if place.why == 'cast' else place.op})"
