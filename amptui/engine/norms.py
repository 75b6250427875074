"""Gradient norms exactly as `torch.nn.utils.clip_grad_norm_` computes them, layer by layer.

Clipping needs every per-tensor norm anyway; computing them once, here, is what makes the guard free. The total must
be torch's to the last bit, or a clipped update would differ from the plain loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

try:  # what clip_grad_norm_ itself uses; without it the order of groups is that of first appearance
    from torch.utils._foreach_utils import (
        _group_tensors_by_device_and_dtype as _torch_groups,
    )
    from torch.utils._foreach_utils import (
        _has_foreach_support,
    )
except ImportError:  # pragma: no cover - private names of a future torch
    _torch_groups = None  # type: ignore[assignment]
    _has_foreach_support = None  # type: ignore[assignment]


@torch.no_grad()
def layer_norms(tensors: Sequence[Tensor], dtype: torch.dtype | None = None) -> list[Tensor]:
    """The 2-norm of each tensor, as 0-dim tensors in the order given; with `dtype`, accumulated in that dtype."""
    norms: list[Tensor | None] = [None] * len(tensors)
    for indices, group in _groups(tensors):
        for index, norm in zip(indices, _norms_of(group, dtype), strict=True):
            norms[index] = norm
    return [norm for norm in norms if norm is not None]


@torch.no_grad()
def total_norm(tensors: Sequence[Tensor], norms: Sequence[Tensor]) -> Tensor:
    """The norm of `norms`, stacked in the order in which torch stacks them."""
    ordered = [norms[index] for indices, _ in _groups(tensors) for index in indices]
    first = tensors[0].device
    return torch.linalg.vector_norm(torch.stack([norm.to(first) for norm in ordered]))


def _groups(tensors: Sequence[Tensor]) -> list[tuple[list[int], list[Tensor]]]:
    if not tensors:
        return []
    if _torch_groups is not None:
        grouped = _torch_groups([list(tensors)], with_indices=True)  # type: ignore[list-item]
        return [(list(indices), list(group)) for [group], indices in grouped.values()]
    found: dict[tuple[torch.device, torch.dtype], tuple[list[int], list[Tensor]]] = {}
    for index, tensor in enumerate(tensors):
        indices, group = found.setdefault((tensor.device, tensor.dtype), ([], []))
        indices.append(index)
        group.append(tensor)
    return list(found.values())


def _norms_of(group: list[Tensor], dtype: torch.dtype | None) -> Sequence[Tensor]:
    foreach: Callable[..., Sequence[Tensor]] | None = getattr(torch, "_foreach_norm", None)
    supported = _has_foreach_support is None or _has_foreach_support(group, group[0].device)
    if foreach is not None and supported:
        return foreach(group, 2.0, dtype) if dtype is not None else foreach(group, 2.0)
    return [torch.linalg.vector_norm(tensor, 2.0, dtype=dtype) for tensor in group]
