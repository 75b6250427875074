"""Copies of live tensors that are put back into the very same tensors, at the speed of memcpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import torch
from torch import Tensor, nn

#: Elements up to which vectors are kept end to end: gathering them in one operator costs a third of one copy each.
_SMALL = 1 << 14
_PLAIN = (Tensor, nn.Parameter)


class TensorCopies:
    """One copy per live tensor, in memory that is allocated once.

    `add` every tensor, then `fill`; `fill` again takes the values anew into the same memory. `restore` writes into the
    live tensors in place. A tensor that has since changed shape, dtype, device or strides (resized, `.data` replaced)
    gets its old form back through `.data`. The copies lie beside their tensors; with `reuse` in the memory of those,
    where it fits, which must not be used any more.
    """

    def __init__(self, reuse: TensorCopies | None = None) -> None:
        self.live: list[Tensor] = []
        self.saved: list[Tensor] = []
        self._index: dict[int, int] = {}
        self._forms: _Forms = ([], [], [], [])
        self._requires_grad: list[bool] = []
        self._groups: list[_Group] = []
        self._odd: list[int] = []
        self._memory = {} if reuse is None else dict(zip(map(id, reuse.live), reuse.saved, strict=True))
        self._packs = {} if reuse is None else {group.key: group.pack for group in reuse._groups}

    def add(self, tensor: Tensor) -> int:
        """The index of the copy of `tensor`; the same object is kept once."""
        index = self._index.get(id(tensor))
        if index is None:
            index = self._index[id(tensor)] = len(self.live)
            self.live.append(tensor)
        return index

    def index_of(self, tensor: Tensor) -> int | None:
        return self._index.get(id(tensor))

    def requires_grad(self, index: int) -> bool:
        """The flag of tensor `index` when the copies were filled."""
        return self._requires_grad[index]

    @property
    def bytes(self) -> int:
        """Bytes of all copies together."""
        return sum(saved.numel() * saved.element_size() for saved in self.saved if saved.layout == torch.strided)

    @torch.no_grad()
    def fill(self) -> None:
        """Copies every live tensor as it is now."""
        self._requires_grad = [tensor.requires_grad for tensor in self.live]
        forms = _forms(self.live)
        if forms != self._forms:
            self._allocate(forms)
        for group in self._groups:
            group.fill()
        for index in self._odd:
            self.saved[index] = dense(self.live[index]).detach().clone()

    @torch.no_grad()
    def restore(self) -> None:
        """Writes every copy back into its live tensor, bit for bit, and its `requires_grad`."""
        flags = [live.requires_grad for live in self.live]
        tied = any(live.grad_fn is not None for live in compress(self.live, flags))
        if not tied and self._forms == _forms(self.live):
            for group in self._groups:
                copy_all(group.live, group.saved)
            for index in self._odd:
                _restore_odd(self.live[index], self.saved[index])
        else:
            for index in range(len(self.live)):
                self._restore_changed(index)
            flags = [live.requires_grad for live in self.live]
        if flags != self._requires_grad:
            for live, flag in zip(self.live, self._requires_grad, strict=True):
                live.requires_grad_(flag)

    def _restore_changed(self, index: int) -> None:
        live, saved = self.live[index], self.saved[index]
        if live.grad_fn is not None:
            live.detach_()  # an in-place op on a buffer has tied it to an old graph
        if index in self._odd:
            _restore_odd(live, saved)
        elif [of_live[0] for of_live in _forms([live])] == [known[index] for known in self._forms]:
            live.copy_(saved)
        else:
            live.data = saved.to(self._forms[2][index], copy=True)

    def _allocate(self, forms: _Forms) -> None:
        self._memory |= dict(zip(map(id, self.live), self.saved, strict=False))
        self._packs |= {group.key: group.pack for group in self._groups}
        self._forms, self._odd = forms, []
        self.saved = [*self.live]  # each is replaced: by its group, or those that are odd by `fill`
        groups: dict[_Key, list[int]] = {}
        for index, live in enumerate(self.live):
            if live.layout != torch.strided or live.is_inference() or _is_expanded(live) or is_lazy(live):
                self._odd.append(index)
            else:
                groups.setdefault(self._key_of(live), []).append(index)
        self._groups = [self._group(key, indices) for key, indices in groups.items()]
        self._memory, self._packs = {}, {}

    def _key_of(self, live: Tensor) -> _Key:
        """Device, dtype, and the number of dimensions (0 or 1) of those whose copies lie end to end; None: apart."""
        packed = live.dim() <= 1 and 0 < live.numel() <= _SMALL and live.is_contiguous() and type(live) in _PLAIN
        return live.device, live.dtype, live.dim() if packed else None

    def _group(self, key: _Key, indices: list[int]) -> _Group:
        """The copies of the tensors at `indices`, in memory that is already there where it fits."""
        live, pack = [self.live[index] for index in indices], None
        if key[2] is None:
            saved = [self._memory_for(tensor) for tensor in live]
        else:
            count, pack = sum(map(Tensor.numel, live)), self._packs.get(key)
            if pack is None or pack.numel() != count:
                pack = torch.empty(count, dtype=key[1], device=key[0])
            parts = torch.split(pack, [tensor.numel() for tensor in live])
            saved = [*parts] if key[2] == 1 else [part.reshape(()) for part in parts]
        for index, copy in zip(indices, saved, strict=True):
            self.saved[index] = copy
        return _Group(key, live, saved, pack)

    def _memory_for(self, live: Tensor) -> Tensor:
        saved = self._memory.get(id(live))
        if saved is not None and (saved.shape, saved.dtype, saved.stride()) == (live.shape, live.dtype, live.stride()):
            return saved
        return torch.empty_like(live, requires_grad=False)


_Key = tuple[torch.device, torch.dtype, "int | None"]


@dataclass(frozen=True, eq=False)
class _Group:
    """Live tensors of one device and dtype with their copies, which lie end to end in `pack` unless that is None."""

    key: _Key
    live: list[Tensor]
    saved: list[Tensor]
    pack: Tensor | None

    def fill(self) -> None:
        if self.pack is None:
            copy_all(self.saved, self.live)
        elif self.key[2] == 0:
            torch.stack(self.live, out=self.pack)
        else:
            torch.cat(self.live, out=self.pack)


_Forms = tuple[list[torch.Size], list[torch.dtype], list[torch.device], list[Any]]


def _forms(tensors: Sequence[Tensor]) -> _Forms:
    """Shapes, dtypes, devices and strides (None for a sparse tensor); by column, which costs half of by row."""
    strides: list[Any]
    try:
        strides = list(map(Tensor.stride, tensors))
    except RuntimeError:  # sparse ones have none
        strides = [tensor.stride() if tensor.layout is torch.strided else None for tensor in tensors]
    return (
        [tensor.shape for tensor in tensors],
        [tensor.dtype for tensor in tensors],
        [tensor.device for tensor in tensors],
        strides,
    )


def copy_all(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copies each source into its target; both lists of one dtype and device each."""
    foreach = getattr(torch, "_foreach_copy_", None)
    if foreach is not None:
        foreach(targets, sources)
        return
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


def _restore_odd(live: Tensor, saved: Tensor) -> None:
    if live.layout != torch.strided:
        live.data = saved.clone()
    elif live.is_inference():
        with torch.inference_mode():
            dense(live).copy_(saved)
    elif dense(live).shape == saved.shape and live.dtype == saved.dtype:
        dense(live).copy_(saved)
    else:
        live.data = saved.clone()


def dense(tensor: Tensor) -> Tensor:
    """A view of `tensor` with each expanded dimension (stride 0) cut to one: as it stands it could not be written."""
    if tensor.layout == torch.strided:
        for dimension, (stride, size) in enumerate(zip(tensor.stride(), tensor.shape, strict=True)):
            if stride == 0 and size > 1:
                tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def is_lazy(tensor: Tensor) -> bool:
    """Whether a conjugate or negative bit stands between the tensor and its memory."""
    return tensor.is_conj() or tensor.is_neg()


def _is_expanded(tensor: Tensor) -> bool:
    return 0 in tensor.stride() and dense(tensor) is not tensor
