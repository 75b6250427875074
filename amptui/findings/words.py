"""The sentences and phrases that amptui says about scales, counts and held updates, for people new to all three."""

from __future__ import annotations

import math
from collections.abc import Sequence

from amptui.text import safe_text

UNTOUCHED = "The update is not taken; the weights are untouched."


def scale_text(scale: float) -> str:
    """A loss scale as a power of two where it is one: 65536.0 → "2^16", 1.0 → "1", 1000.0 → "1000"."""
    if not math.isfinite(scale) or scale <= 0.0:
        return number(scale)
    mantissa, exponent = math.frexp(scale)
    if mantissa != 0.5 or exponent == 1:
        return number(scale)
    return f"2^{exponent - 1}"


def number(value: float) -> str:
    """Four significant digits at most; "nan", "inf" and "-inf" as they are."""
    return f"{value:.4g}"


def percent(share: float) -> str:
    """A share in two significant digits: 0.0003988 → "0.04 %", 1.234 → "120 %"."""
    if not math.isfinite(share):
        return f"{share} %"
    rounded = float(f"{100.0 * share:.2g}")
    return f"{rounded:,.0f} %" if abs(rounded) >= 10.0 else f"{rounded:g} %"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """ "1 update", "1,200 updates"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


#: Operations whose names read as words of a sentence.
_ALSO_WORDS = ("to", "where")


def op_words(op: str) -> str:
    """An operation in a sentence: "addmm"; "to()", which is no preposition."""
    return f"{op}()" if op in _ALSO_WORDS else op


def listed(names: Sequence[str], most: int = 3) -> str:
    """ "a", "a and b", "a, b, c and 4 more"; foreign names are made safe to show."""
    shown = [safe_text(name, 80) for name in names[:most]]
    if len(names) > most:
        return f"{', '.join(shown)} and {len(names) - most:,} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def regions_in_code(modules: Sequence[str]) -> str:
    """How one writes that these modules run in FP32."""
    return f"Policy(fp32_regions={[safe_text(module, 120) for module in modules]!r})"


def plain_value(value: object) -> str:
    """A decision or a figure, short enough for a sentence."""
    return number(value) if isinstance(value, float) else safe_text(value, 60)


def settling_words(scale: float, fitting: float) -> str:
    """Why a skipped update needs nothing: the gradient is finite at a lower scale."""
    return f"infinite at scale {scale_text(scale)} and finite at {scale_text(fitting)}: the scale is still settling"


def micro_batches(bad: Sequence[str]) -> tuple[str, ...]:
    """Those entries of a guard's `bad` that name micro-batches, not layers or buffers."""
    return tuple(name for name in bad if name.startswith("micro-batch "))


def trip_words(
    outcome: str,
    bad: Sequence[str],
    *,
    scale: float = 1.0,
    layers: int = 0,
    fitting_scale: float | None = None,
    scaler: bool = True,
) -> str:
    """What the guard saw and did, for the live view.

    `outcome` and `bad` are those of the update's record, `layers` how many parameters have a place in it,
    `fitting_scale` the scale at which the gradient is finite where that is known already, `scaler` whether one runs.
    """
    places = [name for name in bad if name not in micro_batches(bad)]
    of_all = f" ({len(places)} of {layers:,} tensors)" if layers > 1 and places else ""
    where = f" of {listed(places)}{of_all}" if places else ""
    at_scale = f" at scale {scale_text(scale)}" if scaler and scale != 1.0 else ""
    if outcome == "bad_loss":
        losses = micro_batches(bad)
        which = f" of {listed(losses)}" if len(losses) > 1 or (losses and losses != ("micro-batch 0",)) else ""
        also = f" So {'are' if len(places) > 1 else 'is'} {listed(places)}." if places else ""
        return f"The loss{which} is not finite.{also} {UNTOUCHED}"
    if outcome == "bad_gradient":
        if fitting_scale is not None:
            return f"The gradient{where} is {settling_words(scale, fitting_scale)}. {UNTOUCHED}"
        plain = "" if scaler else " Without a loss scaler the plain loop would write it into the weights."
        return f"The gradient{where} is not finite{at_scale}.{plain} {UNTOUCHED}"
    if outcome == "bad_after_unscale":
        return (
            f"The gradient{where} is finite while scaled and not after the division by the scale "
            f"{scale_text(scale)}. The plain loop would write it into the weights. {UNTOUCHED}"
        )
    if outcome == "bad_before_step":
        return f"A hook of the optimizer made the gradient{where} non-finite right before the step. {UNTOUCHED}"
    if outcome == "norm_overflow":
        return (
            f"Every gradient is finite, but the norm{where} is too large for float32: clipping would turn the whole "
            f"gradient into zeros. {UNTOUCHED}"
        )
    if outcome == "bad_buffers":
        are = "are" if len(places) > 1 else "is"
        return f"{listed(places) or 'A buffer'} {are} not finite after the forward pass. {UNTOUCHED}"
    if outcome == "no_gradient":
        return f"No parameter of this update has a gradient. {UNTOUCHED}"
    return f"The update is held back ({safe_text(outcome, 40)}{where}). {UNTOUCHED}"
