"""Where two runs of the same code part: the first call in a function whose result is off by more than rounding.

Used for code that is no module's call, and to name the line inside of a module. Calls of torch's interface are lined
up, above autocast, where both runs make the same ones.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from amptui.engine.diagnosis.rounded import outputs_apart
from amptui.engine.live import LiveProject
from amptui.engine.nested import tensors_in
from amptui.engine.precision import true_fp32
from amptui.engine.tracing.modules import ModulePaths, ModuleStack
from amptui.engine.tracing.source import line_of, user_frame
from amptui.engine.tracing.taint import storage_key

#: Bytes of results that are kept of the FP32 run.
KEPT = 2**28


#: A result this many times as far off as what went in was magnified: the digits were lost before.
MAGNIFIED = 4.0

#: Calls that give memory nobody has written yet.
_WITHOUT_VALUES = ("empty", "new_empty")

#: Op and line.
At = tuple[str, str | None]


@dataclass(frozen=True)
class Parting:
    """One call: what, where, how far its result is off, and how far what went in was at most (of the largest value)."""

    op: str
    line: str | None
    apart: float
    apart_before: float
    #: The call in the same code that rounded what came here to half, where this one magnified what that lost.
    rounded_at: At | None = None
    #: Whether it makes a tensor of no other ones, and the dtype cannot hold what is put in.
    constant: bool = False


def first_parting(
    live: LiveProject,
    run: Callable[[], Any],
    arithmetic: Callable[[], AbstractContextManager[object]],
    *,
    module: str | None,
    limit: float,
) -> Parting | None:
    """The first call in the code of `module` (None: outside of all modules) that made an error of `limit` or more.

    What went in is less far off than that. None where there is no such call, where the runs make other calls, or where
    they cannot be kept.
    """
    kept = _Kept(ModuleStack(ModulePaths(live.modules)), module)
    with contextlib.suppress(Exception):
        with true_fp32(), kept.stack, kept:
            run()
        beside = _Beside(ModuleStack(ModulePaths(live.modules)), module, kept.calls, limit)
        with arithmetic(), beside.stack, beside:
            run()
        return beside.found
    return None


@dataclass(frozen=True, eq=False)
class _Call:
    """A call as it is kept: with copies of its floating inputs and results."""

    at: At
    inputs: tuple[Tensor, ...]
    results: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class _Seen:
    """A call that was just made; `before` are copies of the floating inputs from before it."""

    at: At
    inputs: list[Tensor]
    before: tuple[Tensor, ...]
    results: list[Tensor]

    @property
    def computes_nothing(self) -> bool:
        """Whether it is a view or bare memory: a part can be further off, relative to itself, than the whole is."""
        if self.at[0].startswith(_WITHOUT_VALUES):
            return True
        memory = {storage_key(t) for t in self.inputs}
        return not self.at[0].endswith("_") and all(storage_key(t) in memory for t in self.results)

    @property
    def rounds(self) -> bool:
        """Whether it makes half values of what is none."""
        return any(map(_is_half, self.results)) and not any(map(_is_half, self.inputs))


class _Calls(TorchFunctionMode):
    """Sees the calls that the code of one module makes itself."""

    def __init__(self, stack: ModuleStack, module: str | None) -> None:
        super().__init__()
        self.stack, self._module = stack, module
        self._ended = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, here = kwargs or {}, sys._getframe(1)
        if self._ended or self.stack.owner(here) != self._module:
            return func(*args, **kwargs)
        inputs = list(tensors_in((args, kwargs)))
        before = _copies(inputs)
        result = func(*args, **kwargs)
        results = list(tensors_in(result))
        if results:
            frame = user_frame(here)
            line = str(line_of(frame)) if frame is not None else None
            self.after(_Seen((_shown(getattr(func, "__name__", "")), line), inputs, before, results))
        return result

    def after(self, seen: _Seen) -> None:
        """Called after each."""


class _Kept(_Calls):
    """Keeps copies of all calls, as long as there is room."""

    def __init__(self, stack: ModuleStack, module: str | None) -> None:
        super().__init__(stack, module)
        self.calls: list[_Call] = []
        self._room = KEPT

    def after(self, seen: _Seen) -> None:
        call = _Call(seen.at, seen.before, _copies(seen.results))
        self._room -= sum(t.nbytes for t in (*call.inputs, *call.results))
        self._ended = self._room < 0
        self.calls.append(call)


class _Beside(_Calls):
    """Holds each call against the kept one until they part."""

    def __init__(self, stack: ModuleStack, module: str | None, kept: list[_Call], limit: float) -> None:
        super().__init__(stack, module)
        self.found: Parting | None = None
        self._kept, self._limit = iter(kept), limit
        #: Where what a tensor was made of became half.
        self._rounded: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def after(self, seen: _Seen) -> None:
        expected = next(self._kept, None)
        if expected is None or expected.at != seen.at:
            self._ended = True
            return
        rounded_at = next((self._rounded[t] for t in seen.inputs if t in self._rounded), None)
        if rounded_at is None and seen.rounds:
            rounded_at = seen.at
        if rounded_at is not None:
            for tensor in seen.results:
                self._rounded[tensor] = rounded_at
        if seen.computes_nothing:
            return
        apart = outputs_apart(expected.results, _floating(seen.results))
        apart_before = outputs_apart(expected.inputs, seen.before)
        if apart_before < self._limit <= apart:
            magnified = apart >= MAGNIFIED * apart_before
            constant = not seen.inputs and math.isinf(apart)
            self.found = Parting(*seen.at, apart, apart_before, rounded_at if magnified else None, constant)
            self._ended = True


def _is_half(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.float16, torch.bfloat16)


def _shown(name: str) -> str:
    """`sub_` as it is, `rsub` for `__rsub__`, `index` for `__getitem__`."""
    plain = name.strip("_") if name.startswith("__") else name
    return {"getitem": "index", "setitem": "index_put_"}.get(plain, plain)


def _floating(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    return tuple(t for t in tensors if t.is_floating_point())


def _copies(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    return tuple(t.detach().clone() for t in _floating(tensors))
