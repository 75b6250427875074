"""Which module's own rounding moves the result: each one is run under the policy on its true FP32 inputs.

A module's output under the policy differs from FP32 also because its inputs do; on FP32 inputs only its own error is
left. Some modules take the dtype of what they are given (`t.to(h.dtype)`, `arange(n, dtype=h.dtype)`): each one is
also run on the same inputs rounded once, to the dtypes that the policy gives it. What a well-behaved module makes of
that is a few roundings; one that magnifies them is where digits are missing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from amptui.engine import rng
from amptui.engine.diagnosis.rounded import outputs_apart
from amptui.engine.live import LiveProject
from amptui.engine.nested import copied, map_tensors, tensors_in
from amptui.engine.precision import true_fp32
from amptui.engine.replay import untouched


@dataclass(frozen=True)
class LocalError:
    """One module: how far its outputs are off on FP32 inputs, relative to their largest value."""

    module: str
    relative: float
    #: Whether it is that far off only where its inputs are rounded first.
    rounded_inputs: bool = False


def local_errors(
    live: LiveProject,
    run: Callable[[], Any],
    arithmetic: Callable[[], AbstractContextManager[object]],
    mode: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> tuple[LocalError, ...]:
    """The modules that `run` calls, the largest own error first. Containers are judged by what is theirs alone.

    `mode` sets the training flags that `run` uses; nothing live is changed. A container's error is that of the whole
    it holds; it is named only where it is clearly larger than every module inside it, so that functional code in its
    forward is blamed on it and the work of its children is not.
    """
    with untouched(live), mode():
        with true_fp32():
            calls = _recorded(live, run)
        with arithmetic():
            dtypes = {path: call.dtypes for path, call in _recorded(live, run).items()}
        exact = {path: _apart(call, arithmetic) for path, call in calls.items()}
        rounded = {
            path: _apart(call, arithmetic, dtypes[path]) if dtypes.get(path, call.dtypes) != call.dtypes else 0.0
            for path, call in calls.items()
        }
    errors = {path: max(exact[path], rounded[path]) for path in calls}
    own = {path: error for path, error in errors.items() if error > 2.0 * _largest_inside(path, errors)}
    ranked = sorted(own.items(), key=lambda item: -item[1])
    return tuple(
        LocalError(path, error, rounded_inputs=exact[path] < error)
        for path, error in ranked
        if math.isfinite(error) and error > 0.0
    )


def _largest_inside(path: str, errors: dict[str, float]) -> float:
    prefix = f"{path}." if path else ""
    return max((e for p, e in errors.items() if p != path and p.startswith(prefix)), default=0.0)


@dataclass(frozen=True, eq=False)
class _Call:
    """The first call of a module: copies of its inputs and of its output, and the generators' state before it."""

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    state: rng.RngState

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        return tuple(tensor.dtype for tensor in tensors_in((self.args, self.kwargs)))


def _apart(
    call: _Call,
    arithmetic: Callable[[], AbstractContextManager[object]],
    dtypes: tuple[torch.dtype, ...] | None = None,
) -> float:
    """How far the module's output is from FP32's under the policy; 0 for one that cannot run alone."""
    inputs = copied((call.args, call.kwargs), None)
    if dtypes is not None:
        if len(dtypes) != len(call.dtypes):
            return 0.0
        wanted = iter(dtypes)

        def rounded(tensor: Tensor) -> Tensor:
            dtype = next(wanted)
            return tensor.to(dtype) if tensor.is_floating_point() and dtype.is_floating_point else tensor

        inputs = map_tensors(inputs, rounded)
    args, kwargs = inputs
    rng.restore(call.state)
    with contextlib.suppress(Exception), torch.no_grad(), arithmetic():
        return outputs_apart(call.output, call.module(*args, **kwargs))
    return 0.0


def _recorded(live: LiveProject, run: Callable[[], Any]) -> dict[str, _Call]:
    """The first call of every module."""
    calls: dict[str, _Call] = {}
    before: dict[str, tuple[Any, rng.RngState]] = {}
    handles = []

    def watch(path: str, module: nn.Module) -> None:
        def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if path not in before:
                before[path] = copied((args, kwargs), None), rng.capture()

        def leave(_module: nn.Module, _args: tuple[Any, ...], _kwargs: dict[str, Any], output: Any) -> None:
            if path not in calls and path in before:
                (args, kwargs), state = before[path]
                calls[path] = _Call(module, args, kwargs, copied(output, None), state)

        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(module.register_forward_hook(leave, with_kwargs=True))

    for path, module in live.named_modules().items():
        watch(path, module)
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return calls
