"""The same op on the same inputs in float64: tells a dtype that is too small from a formula that fails."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from amptui.engine.tracing.schema import Call, tensors_in


def in_float64(call: Call) -> list[Tensor] | None:
    """The results of the op with every floating input and dtype widened to float64.

    None where that cannot be asked: ops that write their arguments (the old values are gone), that draw random
    numbers, that have no float64 kernel, or where memory runs out.
    """
    facts = call.facts
    if facts.written or facts.random or facts.statistics:
        return None
    try:
        wide_args, wide_kwargs = pytree.tree_map(_widen, (call.args, dict(call.kwargs)))
        with torch.no_grad():
            results = call.func(*wide_args, **wide_kwargs)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None
    return tensors_in(results if isinstance(results, (list, tuple)) else [results])


def _widen(value: object) -> object:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.double()
    if isinstance(value, torch.dtype) and value.is_floating_point:
        return torch.float64
    return value
