"""A project with its live objects: modules on their device, updates with their parameters, frozen batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from amptui.engine.batches import FrozenBatches
from amptui.engine.buffer_slots import BufferSlots
from amptui.engine.snapshot import TrainingState
from amptui.project import Case, Project, Update
from amptui.protocol.facts import UpdateFacts


@dataclass(frozen=True, eq=False)
class LiveUpdate:
    """An update with its optimizer's parameters in order; `facts.layers` are their names."""

    update: Update
    parameters: tuple[nn.Parameter, ...]
    facts: UpdateFacts

    @property
    def name(self) -> str:
        return self.update.name

    def takes_part(self, step: int) -> bool:
        return step % self.update.every == 0


@dataclass(frozen=True, eq=False)
class LiveProject:
    project: Project
    name: str
    #: The modules by name; a single model has the name "".
    modules: Mapping[str, nn.Module]
    updates: tuple[LiveUpdate, ...]
    batches: FrozenBatches
    cases: tuple[Case, ...]
    device: torch.device
    state: TrainingState
    #: Parameters that a forward was seen to change itself (a momentum encoder), by name.
    self_changing: set[str] = field(default_factory=set)

    @property
    def model(self) -> Any:
        """What the user's functions get: the module, or the mapping as it was given."""
        return self.project.model

    @property
    def accumulate(self) -> int:
        return self.updates[0].update.accumulate if self.updates else 1

    def update(self, name: str) -> LiveUpdate:
        return next(update for update in self.updates if update.name == name)

    def named_modules(self) -> dict[str, nn.Module]:
        """Every module by dotted path; a mapping's paths start with the key, a single model's root is ""."""
        return named_modules(self.modules)

    @functools.cached_property
    def _modules_by_path(self) -> tuple[tuple[str, nn.Module], ...]:
        return tuple(self.named_modules().items())

    def buffers(self) -> dict[str, Tensor]:
        """Every buffer by dotted path, persistent or not, each tensor once."""
        found: dict[str, Tensor] = {}
        seen: set[int] = set()
        for path, module in self._modules_by_path:
            for name, buffer in module._buffers.items():
                if buffer is not None and id(buffer) not in seen:
                    seen.add(id(buffer))
                    found[joined(path, name)] = buffer
        return found

    def buffer_slots(self) -> BufferSlots:
        """Where the buffers hang: to see at little cost whether one was replaced."""
        return BufferSlots(self._modules_by_path)

    def float_buffers(self) -> dict[str, Tensor]:
        """The buffers that can hold NaN or inf and that torch takes a norm of: no float8, sparse or meta tensors."""
        return {path: buffer for path, buffer in self.buffers().items() if _has_norm(buffer)}


def joined(prefix: str, path: str) -> str:
    return f"{prefix}.{path}" if prefix and path else prefix or path


def named_modules(modules: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    return {joined(key, path): module for key, root in modules.items() for path, module in root.named_modules()}


def named_parameters(modules: Mapping[str, nn.Module]) -> dict[str, nn.Parameter]:
    return {joined(key, path): p for key, root in modules.items() for path, p in root.named_parameters()}


_NORMED = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128)


def _has_norm(tensor: Tensor) -> bool:
    return tensor.dtype in _NORMED and tensor.layout is torch.strided and not tensor.is_meta


LossFunction = Callable[[Any, Any], Tensor | Mapping[str, Tensor]]


@dataclass(frozen=True)
class LossParts:
    """What a loss function returned: the scalar that drives backward, and what is only shown."""

    driving: Tensor
    shown: Mapping[str, Tensor | float]
    #: Whether it returned a mapping.
    mapped: bool


class LossRefused(TypeError):
    """The loss function returned what cannot be trained on."""


def split_loss(result: object) -> LossParts:
    """The driving loss and the shown entries of what a loss function returned.

    Raises `LossRefused` where there is no scalar tensor that requires a gradient.
    """
    shown: dict[str, Tensor | float] = {}
    driving = result
    if isinstance(result, Mapping):
        if "loss" not in result:
            raise LossRefused(f"the loss mapping has the keys {sorted(map(str, result))}; add the key 'loss'")
        driving = result["loss"]
        shown = {str(k): v for k, v in result.items() if k != "loss" and _is_scalar(v)}
    if not isinstance(driving, Tensor):
        raise LossRefused(
            f"the loss is {type(driving).__name__}; return a scalar tensor, undivided and without .item()"
        )
    if driving.numel() != 1:
        raise LossRefused(
            f"the loss has shape {tuple(driving.shape)}; reduce it to one number, for example with .mean()"
        )
    if driving.is_complex() or not driving.is_floating_point():
        raise LossRefused(f"the loss has dtype {driving.dtype}; return a real floating-point number")
    if not driving.requires_grad:
        raise LossRefused("the loss needs no gradient; it was detached, computed under no_grad, or uses no parameter")
    return LossParts(driving.reshape(()) if driving.dim() else driving, shown, isinstance(result, Mapping))


def _is_scalar(value: object) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1 and not value.is_complex()
    return isinstance(value, int | float) and not isinstance(value, bool)


def optimizer_parameters(optimizer: Any) -> Sequence[nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]
