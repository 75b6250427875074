"""A checkpoint's content put into live objects: everything is compared first, then copied, then compared again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from amptui.engine.checkpoint_content import FORMAT, parameters_of, slots
from amptui.engine.plain_values import from_plain, map_tensors, same_bits
from amptui.engine.tensor_copies import copy_all, dense, is_lazy
from amptui.engine.training_state import TrainingState, copied, has_extra_state, joined, load_state
from amptui.session.errors import SessionError
from amptui.text import safe_text

_SHOWN = 5


class CheckpointMismatch(SessionError):
    """The checkpoint is intact but belongs to other objects than those at hand; nothing was changed."""


class Loading:
    """One checkpoint held against one training state. `check` changes nothing, `apply` changes everything.

    Parameters and optimizers must agree in names, shapes and dtypes. Buffers follow the checkpoint: one that has since
    grown, vanished, appeared or turned into None becomes what it was.
    """

    def __init__(self, content: Mapping[str, Any], state: TrainingState) -> None:
        self._content = content
        self._state = state
        self._tensors: dict[str, Tensor] = {**content["model"], **content["non_persistent_buffers"]}
        for name, value in state.extra.items():
            if isinstance(value, nn.Module):
                saved = content["extra_state"].get(name, {})
                self._tensors.update({f"extra:{name}.{path}": tensor for path, tensor in saved.items()})
        self._pairs: list[tuple[str, Tensor, Tensor]] = []
        self._changes: list[Callable[[], object]] = []

    def check(self) -> None:
        """Raises CheckpointMismatch, naming the first differences, unless the content fits the state."""
        version = self._content["amptui"]["format"]
        if version != FORMAT:
            raise CheckpointMismatch(f"the checkpoint has format {version}; this amptui reads format {FORMAT}")
        problems = self._plan_modules()
        for name, optimizer in self._state.all_optimizers().items():
            problems += self._plan_optimizer(name, optimizer)
        problems += self._plan_stateful()
        if problems:
            more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
            listed = "; ".join(problems[:_SHOWN])
            raise CheckpointMismatch(
                f"the checkpoint does not fit what is loaded: {listed}{more}. Nothing was changed."
            )

    @torch.no_grad()
    def apply(self) -> None:
        """After `check`: puts everything in place and compares it bit for bit. RNG is left to the caller."""
        for change in self._changes:
            change()
        groups: dict[object, tuple[list[Tensor], list[Tensor]]] = {}
        for _path, live, saved in self._pairs:
            if is_lazy(live):
                live.copy_(saved)
                continue
            targets, sources = groups.setdefault((live.device, live.dtype), ([], []))
            targets.append(live)
            sources.append(saved)
        for targets, sources in groups.values():
            copy_all(targets, sources)
        for path, live, saved in self._pairs:
            if not same_bits(live, saved):
                raise SessionError(
                    f"{safe_text(path)} was loaded but does not hold the checkpoint's bits; load it again"
                )

    # Modules

    def _plan_modules(self) -> list[str]:
        problems = []
        live = dict(self._state.named_modules(every_name=True))
        training = self._content["flags"]["training"]
        for path in sorted(training.keys() ^ live.keys()):
            where = "in the checkpoint but not here" if path in training else "here but not in the checkpoint"
            problems.append(f"module {safe_text(path) or '(root)'} is {where}")
        if problems:
            return problems
        for path, module in self._state.named_modules():
            problems += self._plan_module(path, module)
        return problems

    def _plan_module(self, path: str, module: nn.Module) -> list[str]:
        flags = self._content["flags"]
        training = flags["training"][path]
        self._changes.append(lambda: setattr(module, "training", training))
        problems = []
        for name, parameter in module._parameters.items():
            problems += self._plan_parameter(joined(path, name), parameter)
        buffers: dict[str, Tensor | None] = {}
        for name in flags["buffers"][path]:
            if name not in module._buffers and hasattr(module, name):
                problems.append(
                    f"{safe_text(joined(path, name))} is a buffer in the checkpoint and something else here"
                )
            buffers[name] = self._planned_buffer(joined(path, name), module, module._buffers.get(name))
        self._changes.append(_refiller(module._buffers, buffers))
        self._changes.append(lambda: setattr(module, "_non_persistent_buffers_set", set(flags["non_persistent"][path])))
        if has_extra_state(module):
            if path in self._content["module_extra_state"]:
                saved = _own(self._content["module_extra_state"][path])
                self._changes.append(lambda: module.set_extra_state(saved))
            else:
                problems.append(f"the extra state of module {safe_text(path)} is not in the checkpoint")
        return problems

    def _plan_parameter(self, path: str, live: Tensor | None) -> list[str]:
        saved = self._tensors.get(path)
        if live is None and saved is None:
            return []
        if live is None or saved is None:
            return [f"{safe_text(path)} is {'here but not in the checkpoint' if saved is None else 'None here'}"]
        if saved.shape != live.shape or saved.dtype != live.dtype:
            return [f"{safe_text(path)} is {_form(live)} here and {_form(saved)} in the checkpoint"]
        self._plan_copy(path, live, saved)
        self._plan_flag(path, live)
        return []

    def _planned_buffer(self, path: str, module: nn.Module, live: Tensor | None) -> Tensor | None:
        """The live buffer, if it can be written in place, else a new one."""
        saved: Tensor | None = self._tensors.get(path)
        if saved is None:
            return None
        if live is not None and _fits(live, saved):
            self._plan_copy(path, live, saved)
            self._plan_flag(path, live)
            return live
        return saved.to(_device_of(module) if live is None else live.device, copy=True)

    def _plan_flag(self, path: str, live: Tensor) -> None:
        flag = self._content["flags"]["requires_grad"][path]

        def put() -> None:
            if live.grad_fn is not None:
                live.detach_()
            live.requires_grad_(flag)
            live.grad = None

        self._changes.append(put)

    def _plan_copy(self, path: str, live: Tensor, saved: Tensor) -> None:
        target = dense(live)
        if target is not live:  # each place in an expanded tensor's memory is written once
            for dimension, size in enumerate(target.shape):
                saved = saved.narrow(dimension, 0, size)
        self._pairs.append((path, target.detach(), saved))

    # Optimizers

    def _plan_optimizer(self, name: str, optimizer: Optimizer) -> list[str]:
        holder = self._content["extra_state"] if name.startswith("extra:") else self._content["optimizers"]
        saved = holder.get(name.removeprefix("extra:"))
        shown = f"optimizer {safe_text(name)}"
        if saved is None:
            return [f"{shown} is not in the checkpoint"]
        sizes = [len(group["params"]) for group in optimizer.param_groups]
        saved_sizes = [len(group["params"]) for group in saved["param_groups"]]
        if sizes != saved_sizes:
            return [f"{shown} has parameter groups of {sizes} here and {saved_sizes} in the checkpoint"]
        for index, (live, group) in enumerate(zip(optimizer.param_groups, saved["param_groups"], strict=True)):
            if bool(live.get("fused")) != bool(group.get("fused")):
                here, there = live.get("fused"), group.get("fused")
                return [f"{shown}, group {index} has fused={here} here and fused={there} in the checkpoint"]
            self._plan_group(f"optimizers/{name}/param_groups/{index}", live, group)
        parameters = parameters_of(optimizer)
        groups = [group for group in optimizer.param_groups for _ in group["params"]]
        states: dict[Any, Any] = {}
        for number, values in saved["state"].items():
            if not isinstance(number, int) or not 0 <= number < len(parameters):
                states[number] = _own(values)
                continue
            parameter = parameters[number]
            states[parameter] = self._planned_state(
                f"optimizers/{name}/state/{number}",
                optimizer.state.get(parameter, {}),
                values,
                parameter,
                groups[number],
            )
        self._changes.append(_refiller(optimizer.state, states))
        return []

    def _plan_group(self, path: str, live: dict[str, Any], saved: Mapping[str, Any]) -> None:
        values: dict[str, Any] = {"params": live["params"]}
        for key, value in saved.items():
            if key == "params":
                continue
            current = live.get(key)
            if isinstance(value, Tensor) and isinstance(current, Tensor) and _fits(current, value):
                self._plan_copy(f"{path}/{key}", current, value)
                values[key] = current
            else:
                values[key] = _own(value)
        self._changes.append(_refiller(live, values))

    def _planned_state(self, path: str, live: Any, saved: Any, parameter: Tensor, group: Mapping[str, Any]) -> Any:
        if not isinstance(saved, dict) or not isinstance(live, dict):
            return _own(saved)
        state = {}
        for key, value in saved.items():
            current = live.get(key)
            if isinstance(value, Tensor) and isinstance(current, Tensor) and _fits(current, value):
                self._plan_copy(f"{path}/{key}", current, value)
                state[key] = current
                continue
            # torch's own rule: the step count stays on the CPU unless a kernel on the device counts.
            stays = key == "step" and not (group.get("capturable") or group.get("fused"))
            device = torch.device("cpu") if stays else parameter.device
            state[key] = from_plain(map_tensors(value, lambda tensor, device=device: tensor.to(device, copy=True)))  # type: ignore[misc]
        return state

    # Schedulers and extra objects

    def _plan_stateful(self) -> list[str]:
        problems = []
        for path, value in self._state.stateful().items():
            is_extra = path.startswith("extra:")
            holder = self._content["extra_state" if is_extra else "schedulers"]
            name = path.removeprefix("extra:") if is_extra else path.removeprefix("schedulers.")
            if name not in holder:
                problems.append(f"{safe_text(path)} is not in the checkpoint")
            else:
                # First, so that an object that reaches into the model cannot undo what is put in place after it.
                self._changes.insert(0, _loader(value, _own(holder[name]), path))
        return problems


def _own(value: Any) -> Any:
    """Plain content as values that share nothing with the mapped file."""
    return from_plain(copied(value))


def _refiller(live: dict[Any, Any], values: dict[Any, Any]) -> Callable[[], object]:
    def put() -> None:
        live.clear()
        live.update(values)

    return put


def _loader(value: Any, state: Any, path: str) -> Callable[[], object]:
    return lambda: load_state(value, state, path)


def _fits(live: Tensor, saved: Tensor) -> bool:
    return (
        live.shape == saved.shape
        and live.dtype == saved.dtype
        and live.layout == saved.layout == torch.strided
        and not live.is_inference()
    )


def _device_of(module: nn.Module) -> torch.device:
    for _name, tensor, _persistent in slots(module):
        if tensor is not None:
            return tensor.device
    return next((tensor.device for tensor in module.parameters()), torch.device("cpu"))


def _form(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
