"""Results that are exactly 0 or 1 only because the dtype is too coarse: what a log or a division later fails on.

Only results that could matter are looked at: one-sided ranges that touch zero, and probabilities that touch one.
Whether zero is right is decided by the same op in float64.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from amptui.engine.tracing.exact import in_float64
from amptui.engine.tracing.schema import Call
from amptui.engine.tracing.values import Extent, extent, is_finite

How = Literal["all", "some", "scalar", "one"]

#: Never zero for a finite input: a zero is an underflow.
_POSITIVE = {"exp", "exp2", "sigmoid", "_softmax"}
#: Never one for a finite input (softmax: for more than one entry).
_BELOW_ONE = {"sigmoid", "_softmax", "tanh"}
#: Ops that can lose a small value; for all others only "everything became zero" is looked at.
_LOSING = {
    "mul", "div", "pow", "square", "_to_copy", "mean", "sum", "prod", "sub", "rsub", "mm", "bmm", "addmm", "var",
    "linalg_vector_norm", "cumprod", "reciprocal", "log1p", "expm1", "sin", "tanh",
}  # fmt: skip
#: Ops whose zeros are a choice, not a loss.
_GATES = {
    "threshold_backward", "where", "masked_fill", "relu", "native_dropout", "native_dropout_backward", "clamp",
    "constant_pad_nd", "index", "gather", "embedding", "zeros_like", "hardtanh_backward",
    "max_pool2d_with_indices_backward",
}  # fmt: skip
_TAKES_EPS = ("add", "clamp", "maximum", "mul", "sub")
_HALF = (torch.float16, torch.bfloat16)


def touches_zero(span: Extent) -> bool:
    """Whether the values lie on one side of zero and reach it."""
    return span[0] == 0.0 or span[1] == 0.0


def rounding(call: Call, out: Tensor, span: Extent) -> tuple[How, float | None] | None:
    """How this finite result lost small values, with the literal that did where it was one; None if it did not."""
    low, high = span
    aten = call.facts.aten
    if aten in _POSITIVE and touches_zero(span):
        return ("all" if high == 0.0 else "some", None) if _finite_input(call) else None
    if high == 1.0 and aten in _BELOW_ONE and _strictly_below_one(call, out):
        return "one", None
    if not touches_zero(span):
        return None
    if out.dtype not in _HALF:
        return None
    scalar = lost_scalar(call, out.dtype)
    if scalar is not None:
        return "scalar", scalar
    everything = low == high == 0.0
    if aten in _GATES or not (everything or aten in _LOSING):
        return None
    if any(t.is_floating_point() and extent(t) == (0.0, 0.0) for t in call.tensors()):
        return None  # zero in, zero out
    wide = in_float64(call)
    if not wide or wide[0].shape != out.shape or not bool(((out == 0) & (wide[0] != 0)).any()):
        return None
    return ("all" if everything else "some"), None


def lost_scalar(call: Call, dtype: torch.dtype) -> float | None:
    """A literal such as an eps that is not zero but is zero in this dtype."""
    if not call.facts.aten.startswith(_TAKES_EPS):
        return None
    least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps / 2  # half of the smallest subnormal
    for value in (*call.args, *call.kwargs.values()):
        if isinstance(value, float) and 0.0 < abs(value) <= least:
            return value
    return None


def _finite_input(call: Call) -> bool:
    spans = [extent(t) for t in call.tensors()]
    return all(span is None or is_finite(span) for span in spans)


def _strictly_below_one(call: Call, out: Tensor) -> bool:
    if not _finite_input(call):
        return False
    if call.facts.aten != "_softmax":
        return True
    dim = call.args[1] if len(call.args) > 1 else -1
    return out.dim() > 0 and out.shape[dim] > 1
