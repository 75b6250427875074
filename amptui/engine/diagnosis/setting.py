"""What a replay ran under, and what kind of fault an origin is in that light."""

from __future__ import annotations

from dataclasses import dataclass

from amptui.engine.tracing.origin import Origin
from amptui.findings.finding import Kind

HALF = ("float16", "bfloat16")
_POLE_BESIDE_ONE = ("acos", "asin", "atanh", "acosh", "log1p", "erfinv")
_ROOTS_AND_LOGS = ("sqrt", "rsqrt", "log", "pow")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a replay ran under, and what true FP32 did on the same weights and data."""

    #: The policy's dtype.
    dtype: str
    fp32_ok: bool
    #: Where true FP32 goes wrong in half precision all the same: (module, op, line) of half written by hand.
    half_in_fp32: frozenset[tuple[str, str, str | None]] = frozenset()

    def is_hard_coded(self, origin: Origin) -> bool:
        """Whether the half precision at this place is the project's own doing and not the policy's."""
        if origin.dtype not in HALF:
            return False
        return origin.dtype != self.dtype or place_of(origin) in self.half_in_fp32


def place_of(origin: Origin) -> tuple[str, str, str | None]:
    """Module, op and line."""
    return origin.module, origin.op, origin.line


def kind_of(origin: Origin, setting: Setting) -> Kind:
    """What went wrong there. What true FP32 shows too is never the dtype's fault."""
    if not origin.is_source and setting.is_hard_coded(origin):
        return "autocast_state"
    if not setting.fp32_ok:
        return "not_precision"
    root = origin.root
    if root is not None and root.how == "one":  # a probability that became exactly 1
        return "rounding"
    if origin.cause in ("pole", "underflow") or (root is not None and root.cause == "underflow"):
        return "rounding" if _digits_are_missing(origin) else "underflow"
    return "overflow"


def _digits_are_missing(origin: Origin) -> bool:
    """Whether a pole was hit for want of digits: bfloat16 reaches as far as float32, so its zeros are differences.

    In float16 that is so where the value left the function's domain (the root of a negative variance), or where the
    pole lies beside 1 and not at zero.
    """
    if origin.dtype == "bfloat16":
        return origin.root is None or origin.root.scalar is None
    if origin.op.strip("_") in _POLE_BESIDE_ONE:
        return True
    outside = any(fact.low is not None and fact.low < 0.0 for fact in origin.inputs[:1])
    return outside and "nan" in origin.kinds and origin.phase != "backward" and origin.aten.startswith(_ROOTS_AND_LOGS)
