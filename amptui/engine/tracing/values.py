"""What values a tensor holds: its extremes, and which non-finite kinds, at the price of one or two reductions.

`torch.aminmax` is the screen: exact, vectorised on CPU for every floating dtype, and a NaN reaches both of its results.
`isfinite(x).all()` costs 29 to 44 times as much there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["nan", "inf", "-inf"]
Extent = tuple[float, float]

_INF = math.inf


@dataclass(frozen=True, kw_only=True)
class TensorFacts:
    """What is known of one tensor at one moment; plain values only.

    `low` and `high` are the extremes of its finite entries (None where there are none), `kinds` its non-finite kinds.
    """

    dtype: str
    shape: tuple[int, ...]
    low: float | None
    high: float | None
    kinds: tuple[Kind, ...] = ()
    #: `weights fc.weight`, `input x`, `buffer bn.running_var`, where it is one of these.
    name: str | None = None

    @property
    def absmax(self) -> float | None:
        """The largest finite magnitude."""
        if self.low is None or self.high is None:
            return None
        return max(abs(self.low), abs(self.high))


def dtype_name(dtype: torch.dtype) -> str:
    """`float16` for `torch.float16`."""
    return str(dtype).removeprefix("torch.")


def real_values(tensor: Tensor) -> Tensor | None:
    """A floating, dense, non-empty tensor with the same values, or None where nothing can be non-finite or read."""
    if tensor.layout != torch.strided:
        if tensor.layout != torch.sparse_coo:
            return None
        tensor = tensor._values()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if not tensor.is_floating_point() or tensor.device.type == "meta" or tensor.numel() == 0:
        return None
    return tensor.float() if tensor.dtype.itemsize < 2 else tensor  # the 8-bit formats have no reductions


def extent(tensor: Tensor) -> Extent | None:
    """The least and greatest value, both NaN if one entry is; None where there is nothing to read. One transfer."""
    values = real_values(tensor)
    if values is None:
        return None
    if values.dim() == 0:
        value = float(values.item())
        return value, value
    low, high = torch.aminmax(values)
    if values.device.type == "cpu":
        return float(low.item()), float(high.item())
    low_high: list[float] = torch.stack((low, high)).tolist()
    return low_high[0], low_high[1]


def is_finite(span: Extent) -> bool:
    """Whether all values of a tensor with these extremes are finite."""
    low, high = span
    return low > -_INF and high < _INF  # both comparisons are false for NaN


def kinds_of(tensor: Tensor, span: Extent | None = None) -> frozenset[Kind]:
    """The non-finite kinds in the tensor, exactly."""
    span = extent(tensor) if span is None else span
    if span is None or is_finite(span):
        return frozenset()
    kinds: set[Kind] = set()
    if math.isnan(span[0]):
        kinds.add("nan")
        values = real_values(tensor)
        assert values is not None
        span = extent(torch.nan_to_num(values, nan=0.0, posinf=_INF, neginf=-_INF))
        assert span is not None
    if span[1] == _INF:
        kinds.add("inf")
    if span[0] == -_INF:
        kinds.add("-inf")
    return frozenset(kinds)


def facts_of(tensor: Tensor, name: str | None = None) -> TensorFacts:
    """Everything that `TensorFacts` tells."""
    kinds: tuple[Kind, ...] = ()
    low = high = None
    span = extent(tensor)
    if span is not None and is_finite(span):
        low, high = span
    elif span is not None:
        kinds = tuple(sorted(kinds_of(tensor, span)))
        low, high = _finite_extremes(tensor)
    return TensorFacts(
        dtype=dtype_name(tensor.dtype), shape=tuple(tensor.shape), low=low, high=high, kinds=kinds, name=name
    )


def _finite_extremes(tensor: Tensor) -> tuple[float | None, float | None]:
    values = real_values(tensor)
    assert values is not None
    finite = values[torch.isfinite(values)]
    if finite.numel() == 0:
        return None, None
    low, high = torch.aminmax(finite)
    return float(low.item()), float(high.item())
