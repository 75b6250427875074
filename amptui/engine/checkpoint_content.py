"""What a checkpoint holds: plain values under names that a user's own code can load."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import amptui
from amptui.engine import rng
from amptui.engine.plain_values import map_tensors, same_bits, stored, to_plain
from amptui.engine.training_state import TrainingState, has_extra_state, joined, state_of

FORMAT = 1


def content_of(state: TrainingState, position: Mapping[str, Any]) -> dict[str, Any]:
    """The whole state as one dict of tensors and primitives; tensors on the CPU, tied ones shared.

    ``model``                   parameters and persistent buffers by dotted path, as `load_state_dict` takes them
    ``non_persistent_buffers``  the buffers that a state_dict leaves out
    ``optimizers``              by name, each as `Optimizer.load_state_dict` takes it
    ``schedulers``              by name, each as its `state_dict` gave it
    ``extra_state``             by name; modules flat, optimizers as above, other objects as they gave it
    ``module_extra_state``      by module path, what `get_extra_state` returned
    ``rng``                     see `RngState.as_plain`
    ``flags``                   ``training`` by module path, ``requires_grad`` by tensor path; ``buffers`` and
                                ``non_persistent``: the names of a module's buffers, also of those that are None
    ``position``                where in the batches the run stood, as given
    ``amptui``                  format number and versions

    Raises NotPlain, naming the path, for what cannot be kept.
    """
    tensors: dict[str, Tensor] = {}
    non_persistent: dict[str, Tensor] = {}
    flags: dict[str, Any] = {"training": {}, "requires_grad": {}, "buffers": {}, "non_persistent": {}}
    module_extra = {}
    for path, module in state.named_modules(every_name=True):
        flags["training"][path] = module.training
        flags["buffers"][path] = list(module._buffers)
        flags["non_persistent"][path] = sorted(module._non_persistent_buffers_set)
        for name, tensor, persistent in slots(module):
            full = joined(path, name)
            if tensor is None:
                continue
            (tensors if persistent else non_persistent)[full] = tensor
            flags["requires_grad"][full] = tensor.requires_grad
        if has_extra_state(module):
            module_extra[path] = module.get_extra_state()
    extra: dict[str, Any] = {}
    for name, value in state.extra.items():
        prefix = f"extra:{name}"
        if isinstance(value, nn.Module):
            begin = f"{prefix}."
            extra[name] = {path[len(begin) :]: tensors.pop(path) for path in list(tensors) if path.startswith(begin)}
        elif isinstance(value, Optimizer):
            extra[name] = optimizer_content(value)
        else:
            extra[name] = state_of(value, prefix)
    content = {
        "model": tensors,
        "non_persistent_buffers": non_persistent,
        "optimizers": {name: optimizer_content(value) for name, value in state.optimizers.items()},
        "schedulers": {name: state_of(value, f"schedulers/{name}") for name, value in state.schedulers.items()},
        "extra_state": extra,
        "module_extra_state": module_extra,
        "rng": rng.capture().as_plain(),
        "flags": flags,
        "position": dict(position),
        "amptui": {
            "format": FORMAT,
            "amptui": amptui.__version__,
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    }
    plain = {name: to_plain(value, name) for name, value in content.items()}
    return {name: map_tensors(value, _Stored()) for name, value in plain.items()}


def slots(module: nn.Module) -> Iterator[tuple[str, Tensor | None, bool]]:
    """(name, tensor, whether a state_dict holds it) of a module's own parameters, then of its buffers."""
    for name, parameter in module._parameters.items():
        yield name, parameter, True
    for name, buffer in module._buffers.items():
        yield name, buffer, name not in module._non_persistent_buffers_set


def optimizer_content(optimizer: Optimizer) -> dict[str, Any]:
    """As `Optimizer.state_dict` packs it, from the live state itself: hooks and overrides cannot change it."""
    parameters = parameters_of(optimizer)
    numbers = {id(parameter): index for index, parameter in enumerate(parameters)}
    groups = [
        {key: value for key, value in group.items() if key != "params"}
        | {"params": [numbers[id(parameter)] for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]
    state = {numbers.get(id(key), key): value for key, value in optimizer.state.items()}
    return {"state": state, "param_groups": groups}


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """The optimizer's parameters in the order of its groups: the numbers under which their state is kept."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def first_difference(one: Any, other: Any, path: str = "") -> str | None:
    """The path of the first tensor or value that differs between two contents, None if they agree bit for bit."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return None if same_bits(one, other) else path
    if type(one) is not type(other):
        return path
    if isinstance(one, dict):
        if list(one) != list(other):
            return path
        pairs = [(key, one[key], other[key]) for key in one]
    elif isinstance(one, list | tuple):
        if len(one) != len(other):
            return path
        pairs = [(index, *both) for index, both in enumerate(zip(one, other, strict=True))]
    else:
        return None if one == other or (one != one and other != other) else path  # noqa: PLR0124 - NaN
    for key, mine, its in pairs:
        found = first_difference(mine, its, f"{path}/{key}" if path else str(key))
        if found is not None:
            return found
    return None


class _Stored:
    """`stored` with a memory, so that what shared one storage still does after it came from another device."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Tensor] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        if tensor.layout != torch.strided:
            return stored(tensor)
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.is_conj())
        if tensor.numel() == 0 or key not in self._known:
            self._known[key] = stored(tensor)
        return self._known[key]
