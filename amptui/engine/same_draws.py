"""Random numbers in half as FP32 draws them: another dtype is another kernel, and some of these draw other numbers.

On the CPU `randn` in half differs from float32 in its last sixteen numbers, on CUDA a dropout mask differs altogether,
although the generator's state is the same. Such a difference is no rounding: it is taken out before loss and gradients
are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_HALF = (torch.float16, torch.bfloat16)
#: What draws inside of a larger operation, whose own arithmetic must stay as it is.
_MORE_THAN_DRAWS = ("attention", "rnn", "lstm", "gru", "softmax")


class SameDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which what draws random numbers in half draws in float32, and rounds."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        #: Number of draws that were made so.
        self.draws = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = (tuple(args), dict(kwargs or {}))
        dtype = _half_dtype(given) if _draws(func) else None
        if dtype is None:
            return func(*given[0], **given[1])
        self.draws += 1
        wide_args, wide_kwargs = pytree.tree_map(_widened, given)
        drawn = func(*wide_args, **wide_kwargs)
        if func._schema.is_mutable:
            return args[0].copy_(wide_args[0])
        return pytree.tree_map(lambda v: v.to(dtype) if isinstance(v, Tensor) and v.is_floating_point() else v, drawn)


def _draws(func: Any) -> bool:
    name = func._schema.name
    return torch.Tag.nondeterministic_seeded in func.tags and not any(word in name for word in _MORE_THAN_DRAWS)


def _half_dtype(given: Any) -> torch.dtype | None:
    """The half dtype that an op is asked to draw in."""
    for value in pytree.tree_leaves(given):
        dtype = value if isinstance(value, torch.dtype) else value.dtype if isinstance(value, Tensor) else None
        if dtype in _HALF:
            return dtype
    return None


def _widened(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype in _HALF:
        return value.float()
    return torch.float32 if isinstance(value, torch.dtype) and value in _HALF else value
