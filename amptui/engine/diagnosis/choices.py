"""Choices inside a model: argmax, top-k, sorting, comparisons. One that flips turns a rounding into a large difference.

The choices of two runs of the same code are lined up in the order in which they were made; the first that chose
otherwise is where the runs part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from amptui.engine.live import LiveProject
from amptui.engine.tracing.calls import TorchCalls
from amptui.engine.tracing.modules import ModulePaths, ModuleStack
from amptui.engine.tracing.recording import Recording
from amptui.engine.tracing.schema import makes_half
from amptui.engine.tracing.tape import KnownTensors, Place

#: ATen ops whose integer or boolean result is a choice among floating-point values.
_CHOOSE = {"argmax", "argmin", "topk", "sort", "argsort", "max", "min", "kthvalue", "median", "mode", "bucketize",
           "searchsorted", "gt", "ge", "lt", "le", "multinomial", "histc"}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Choice:
    """One choice: where, what was chosen (integers or booleans, flat), and the smallest gap it was decided by."""

    place: Place
    chosen: tuple[int, ...]
    gap: float | None
    #: The newest op that autocast ran in half before it: what most likely made the scores.
    maker: Place | None = None


class ChoiceRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records every choice made inside the context, and every op that autocast runs in half."""

    def __init__(self, live: LiveProject, outside: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        paths = ModulePaths(live.modules)
        self.stack, self.calls = ModuleStack(paths), TorchCalls(live.device.type)
        self._recording = Recording(
            stack=self.stack, known=KnownTensors(paths), outside=outside, device=live.device.type
        )
        self.choices: list[Choice] = []
        self.half_ops: list[Place] = []
        #: By module: how many ops had run in half before its code began.
        self._halves_before: dict[str, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        facts = self._recording.facts(func)
        module = self.stack.current()
        if module is not None:
            self._halves_before.setdefault(module, len(self.half_ops))
        if makes_half(facts.aten) and _is_half(result):
            self.half_ops.append(self._recording.place(facts, self.calls))
        scores = next((a for a in args if isinstance(a, Tensor)), None)
        if facts.aten in _CHOOSE and scores is not None and scores.is_floating_point():
            chosen = _discrete(result)
            if chosen is not None:
                place = self._recording.place(facts, self.calls)
                maker = self.half_ops[-1] if self.half_ops else None
                self.choices.append(Choice(place, tuple(chosen.reshape(-1).tolist()), _gap(scores), maker))
        return result

    def makers_of(self, module: str) -> tuple[str, ...]:
        """The modules that ran an op in half before the code of `module` began, the nearest first."""
        before = self.half_ops[: self._halves_before.get(module, 0)]
        return tuple(dict.fromkeys(op.module for op in reversed(before) if op.module != module))


def _is_half(result: Any) -> bool:
    return isinstance(result, Tensor) and result.dtype in (torch.float16, torch.bfloat16)


def _discrete(result: Any) -> Tensor | None:
    """The integer or boolean tensor among an op's results."""
    results = result if isinstance(result, tuple | list) else (result,)
    return next((r for r in results if isinstance(r, Tensor) and not r.is_floating_point()), None)


def _gap(scores: Tensor) -> float | None:
    """The smallest distance between the two largest values along the last dimension."""
    if scores.dim() == 0 or scores.shape[-1] < 2:
        return None
    top = scores.detach().double().topk(2, dim=-1).values
    return float((top[..., 0] - top[..., 1]).min())


@dataclass(frozen=True)
class Flip:
    """The first choice that differs between two runs of the same code."""

    place: Place
    #: What made the scores under the policy.
    maker: Place | None
    differing: int
    of: int
    baseline_gap: float | None
    trial_gap: float | None


def first_flip(baseline: Sequence[Choice], trial: Sequence[Choice]) -> Flip | None:
    """None where all choices agree, or where the runs made other choices altogether (another path through the code)."""
    for one, other in zip(baseline, trial, strict=False):
        if one.place.site[:3] != other.place.site[:3] or len(one.chosen) != len(other.chosen):
            return None
        differing = sum(a != b for a, b in zip(one.chosen, other.chosen, strict=True))
        if differing:
            return Flip(other.place, other.maker, differing, len(one.chosen), one.gap, other.gap)
    return None
