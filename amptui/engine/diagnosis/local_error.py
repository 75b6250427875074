"""Which module's own rounding moves the result: each one is run under the policy on its true FP32 inputs.

A module's output under the policy differs from FP32 also because its inputs do; on FP32 inputs only its own error is
left. One pass in FP32 records the inputs, and each module is then called once.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from amptui.engine.diagnosis.rounded import outputs_apart
from amptui.engine.live import LiveProject
from amptui.engine.nested import copied
from amptui.engine.precision import true_fp32


@dataclass(frozen=True)
class LocalError:
    """One module: how far its outputs are off on FP32 inputs, relative to their largest value."""

    module: str
    relative: float


def local_errors(
    live: LiveProject, run: Callable[[], Any], arithmetic: Callable[[], AbstractContextManager[object]]
) -> tuple[LocalError, ...]:
    """The modules that `run` calls, the largest own error first. Containers are judged by what is theirs alone.

    A container's error is that of the whole it holds; it is named only where it is clearly larger than every module
    inside it, so that functional code in its forward is blamed on it and the work of its children is not.
    """
    with true_fp32():
        calls = _recorded(live, run)
    errors: dict[str, float] = {}
    for path, (module, args, kwargs, expected) in calls.items():
        with contextlib.suppress(Exception), torch.no_grad(), arithmetic():  # one that cannot run alone says nothing
            errors[path] = outputs_apart(expected, module(*args, **kwargs))
    own = {path: error for path, error in errors.items() if error > 2.0 * _largest_inside(path, errors)}
    ranked = sorted(own.items(), key=lambda item: -item[1])
    return tuple(LocalError(path, error) for path, error in ranked if math.isfinite(error) and error > 0.0)


def _largest_inside(path: str, errors: dict[str, float]) -> float:
    prefix = f"{path}." if path else ""
    return max((e for p, e in errors.items() if p != path and p.startswith(prefix)), default=0.0)


Call = tuple[nn.Module, tuple[Any, ...], dict[str, Any], Any]


def _recorded(live: LiveProject, run: Callable[[], Any]) -> dict[str, Call]:
    """The first call of every module: copies of its inputs, and of its output."""
    calls: dict[str, Call] = {}
    handles = []

    def watch(path: str, module: nn.Module) -> None:
        def after(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if path not in calls:
                calls[path] = (module, *_copies(args, kwargs), copied(output, None))

        handles.append(module.register_forward_hook(after, with_kwargs=True))

    for path, module in live.named_modules().items():
        watch(path, module)
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _copies(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    plain_args, plain_kwargs = copied(args, None), copied(kwargs, None)
    return tuple(plain_args), dict(plain_kwargs)
