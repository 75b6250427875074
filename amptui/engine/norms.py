"""Gradient norms exactly as `torch.nn.utils.clip_grad_norm_` computes them, layer by layer.

Clipping needs every per-tensor norm anyway; computing them once, here, is what makes the guard free. The total must
be torch's to the last bit, or a clipped update would differ from the plain loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

try:  # what clip_grad_norm_ itself uses; without it the order of groups is that of first appearance
    from torch.utils import _foreach_utils as _torch_foreach
except ImportError:  # pragma: no cover - private names of a future torch
    _torch_foreach = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class Norms:
    """The 2-norms of some tensors: `stacked` (1-dim) in the tensors' order, `total` their norm as torch stacks them."""

    stacked: Tensor
    total: Tensor


@torch.no_grad()
def norms_of(tensors: Sequence[Tensor]) -> Norms | None:
    """The norm of each tensor and of all together; None without tensors."""
    if not tensors:
        return None
    groups = _groups(tensors)
    if len(groups) == 1:
        stacked = torch.stack(list(_group_norms(tensors)))
        return Norms(stacked, torch.linalg.vector_norm(stacked))
    first = tensors[0].device
    by_index: dict[int, Tensor] = {}
    for indices, group in groups:
        by_index.update(zip(indices, _group_norms(group), strict=True))
    total = torch.linalg.vector_norm(torch.stack([norm.to(first) for norm in by_index.values()]))
    return Norms(torch.stack([by_index[index].to(first) for index in range(len(tensors))]), total)


def _groups(tensors: Sequence[Tensor]) -> list[tuple[list[int], list[Tensor]]]:
    """The tensors by device and dtype, with their places, in torch's order of groups."""
    grouping = getattr(_torch_foreach, "_group_tensors_by_device_and_dtype", None)
    if grouping is not None:
        return [(places, group) for [group], places in grouping([list(tensors)], with_indices=True).values()]
    found: dict[tuple[torch.device, torch.dtype], tuple[list[int], list[Tensor]]] = {}
    for index, tensor in enumerate(tensors):
        indices, group = found.setdefault((tensor.device, tensor.dtype), ([], []))
        indices.append(index)
        group.append(tensor)
    return list(found.values())


def _group_norms(group: Sequence[Tensor]) -> Sequence[Tensor]:
    foreach: Callable[..., Sequence[Tensor]] | None = getattr(torch, "_foreach_norm", None)
    supports = getattr(_torch_foreach, "_has_foreach_support", None)
    one_of_each_type = list({type(tensor): tensor for tensor in group}.values())  # all that torch asks about
    if foreach is not None and (supports is None or supports(one_of_each_type, group[0].device)):
        return foreach(group, 2.0)
    return [torch.linalg.vector_norm(tensor, 2.0) for tensor in group]
