"""Copies of live tensors that are put back into the very same tensors, at the speed of memcpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class TensorCopies:
    """One copy per live tensor, in memory that is allocated once.

    `add` every tensor, then `fill`; `fill` again takes the values anew into the same memory. `restore` writes into the
    live tensors in place. A tensor that has since changed shape, dtype, device or strides (resized, `.data` replaced)
    gets its old form back through `.data`. `device`: where the copies lie; None: beside their tensors.
    """

    def __init__(self, device: torch.device | None = None, reuse: TensorCopies | None = None) -> None:
        self._device = device
        self.live: list[Tensor] = []
        self.saved: list[Tensor] = []
        self._index: dict[int, int] = {}
        self._forms: list[Any] = []
        self._requires_grad: list[bool] = []
        self._groups: list[tuple[list[Tensor], list[Tensor]]] = []
        self._odd: list[int] = []
        self._memory = (
            {} if reuse is None else {id(live): saved for live, saved in zip(reuse.live, reuse.saved, strict=True)}
        )

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
        if self._forms != list(map(_form, self.live)):
            self._allocate()
        for live_group, saved_group in self._groups:
            copy_all(saved_group, live_group)
        for index in self._odd:
            self.saved[index] = dense(self.live[index]).detach().clone()

    @torch.no_grad()
    def restore(self) -> None:
        """Writes every copy back into its live tensor, bit for bit, and its `requires_grad`."""
        if self._forms == list(map(_form, self.live)) and not any(live.grad_fn for live in self.live):
            for live_group, saved_group in self._groups:
                copy_all(live_group, saved_group)
            for index in self._odd:
                _restore_odd(self.live[index], self.saved[index])
        else:
            for index in range(len(self.live)):
                self._restore_changed(index)
        for live, flag in zip(self.live, self._requires_grad, strict=True):
            if live.requires_grad is not flag:
                live.requires_grad_(flag)

    def _restore_changed(self, index: int) -> None:
        live, saved = self.live[index], self.saved[index]
        if live.grad_fn is not None:
            live.detach_()  # an in-place op on a buffer has tied it to an old graph
        if index in self._odd:
            _restore_odd(live, saved)
        elif _form(live) == self._forms[index]:
            live.copy_(saved)
        else:
            live.data = saved.to(self._forms[index][2], copy=True)

    def _allocate(self) -> None:
        groups: dict[object, tuple[list[Tensor], list[Tensor]]] = {}
        memory = self._memory | {id(live): saved for live, saved in zip(self.live, self.saved, strict=False)}
        self._memory = {}
        self._forms = list(map(_form, self.live))
        self.saved, self._odd = [], []
        for index, live in enumerate(self.live):
            if live.layout != torch.strided or live.is_inference() or _is_expanded(live) or is_lazy(live):
                self._odd.append(index)
                self.saved.append(live)  # replaced by `fill`
                continue
            saved = memory.get(id(live))
            if (
                saved is None
                or saved.shape != live.shape
                or saved.dtype != live.dtype
                or saved.stride() != live.stride()
            ):
                saved = torch.empty_like(live, device=self._device or live.device, requires_grad=False)
            self.saved.append(saved)
            group = groups.setdefault((live.device, live.dtype), ([], []))
            group[0].append(live)
            group[1].append(saved)
        self._groups = list(groups.values())


def _form(tensor: Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.layout == torch.strided else None
    return tensor.shape, tensor.dtype, tensor.device, strides


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
