"""Everything that a training run changes, by name, and the places in modules where tensors hang."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass(frozen=True, eq=False)
class TrainingState:
    """The live objects of a run: what a snapshot or a checkpoint covers.

    `modules`: by name, a single model under "". `schedulers`: objects with `state_dict` and `load_state_dict`. `extra`:
    those, or objects with `get_state` and `set_state`; a module or an optimizer among them is treated like the others.
    """

    modules: Mapping[str, nn.Module]
    optimizers: Mapping[str, Optimizer] = field(default_factory=dict)
    schedulers: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def all_modules(self) -> dict[str, nn.Module]:
        """Root modules by the beginning of their paths: the models and the modules among `extra` ("extra:ema")."""
        extra = {f"extra:{name}": value for name, value in self.extra.items() if isinstance(value, nn.Module)}
        return {**self.modules, **extra}

    def all_optimizers(self) -> dict[str, Optimizer]:
        """The optimizers by name, and those among `extra`."""
        extra = {f"extra:{name}": value for name, value in self.extra.items() if isinstance(value, Optimizer)}
        return {**self.optimizers, **extra}

    def stateful(self) -> dict[str, Any]:
        """What is saved and loaded through its own methods, by path: schedulers and the other objects of `extra`."""
        schedulers = {f"schedulers.{name}": value for name, value in self.schedulers.items()}
        return schedulers | {
            f"extra:{name}": value for name, value in self.extra.items() if not isinstance(value, nn.Module | Optimizer)
        }

    def named_modules(self, *, every_name: bool = False) -> Iterator[tuple[str, nn.Module]]:
        """(dotted path, module); a module that hangs in several places comes once unless `every_name`."""
        seen: set[nn.Module] = set()
        for root_name, root in self.all_modules().items():
            memo = None if every_name else seen
            for path, module in root.named_modules(memo=memo, remove_duplicate=not every_name):
                yield joined(root_name, path), module

    def parameter_names(self) -> dict[int, str]:
        """The first dotted path of each parameter, by the id of the tensor."""
        names: dict[int, str] = {}
        for path, module in self.named_modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    names.setdefault(id(parameter), joined(path, name))
        return names


def joined(prefix: str, name: str) -> str:
    """Dotted path of `name` under `prefix`, either of which may be empty."""
    return f"{prefix}.{name}" if prefix and name else prefix or name


def has_extra_state(module: nn.Module) -> bool:
    """Whether the module keeps state of its own through torch's `get_extra_state`."""
    return type(module).get_extra_state is not nn.Module.get_extra_state


def state_of(value: Any, path: str) -> Any:
    """The state of a scheduler or an extra object, uncopied. TypeError if it has no way to give and take it."""
    give, _take = _state_methods(value, path)
    return give()


def load_state(value: Any, state: Any, path: str) -> None:
    """The inverse of `state_of`; `value` may keep `state`, so give it a copy."""
    _give, take = _state_methods(value, path)
    take(state)


def _state_methods(value: Any, path: str) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    for names in (("state_dict", "load_state_dict"), ("get_state", "set_state")):
        give, take = (getattr(value, name, None) for name in names)
        if callable(give) and callable(take):
            return give, take
    raise TypeError(
        f"{path} ({type(value).__qualname__}) has neither state_dict and load_state_dict nor get_state and set_state, "
        "so it could not be put back; give it one of the pairs"
    )


def copied(value: Any) -> Any:
    """A copy that shares nothing that can change: tensors are detached and cloned, containers keep their type."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        twin = copy.copy(value)
        for key, item in value.items():
            twin[key] = copied(item)
        return twin
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(copied, value))
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    return copy.deepcopy(value)
