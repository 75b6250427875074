"""Which op draws random numbers: the first one after which the generator's state is another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from amptui.engine import rng
from amptui.engine.evaluate import call_outputs, eval_mode
from amptui.engine.live import LiveProject
from amptui.engine.nested import copied
from amptui.engine.precision import true_fp32
from amptui.engine.tracing.calls import TorchCalls
from amptui.engine.tracing.modules import ModulePaths, ModuleStack
from amptui.engine.tracing.recording import Recording
from amptui.engine.tracing.tape import KnownTensors, Place
from amptui.project import Case


@dataclass(frozen=True)
class RandomOp:
    module: str
    op: str
    line: str | None


def first_random_op(live: LiveProject, case: Case, state: rng.RngState) -> RandomOp | None:
    """The first op of `case`, its decision included, that draws from torch's generator of the device in FP32.

    None if none does.
    """
    paths = ModulePaths(live.modules)
    stack, calls = ModuleStack(paths), TorchCalls(live.device.type)
    recording = Recording(stack=stack, known=KnownTensors(paths), outside="outputs", device=live.device.type)
    watch = _Draws(recording, calls, live.device)
    rng.restore(state)
    try:
        with true_fp32(), eval_mode(live.modules), torch.no_grad(), stack, calls, watch:
            raw = call_outputs(live, copied(case.inputs, None))
            if live.project.decide is not None:
                recording.outside = "decide"
                live.project.decide(raw)
    except (Exception, SystemExit):  # code that cannot run under a dispatch mode: nothing is claimed
        return None
    place = watch.place
    if place is None:
        return None
    return RandomOp(place.module, place.api or place.op, str(place.line) if place.line is not None else None)


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, recording: Recording, calls: TorchCalls, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recording, self._calls, self._device = recording, calls, device
        self.place: Place | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        before = self._state() if self.place is None else None
        result = func(*args, **(kwargs or {}))
        if before is not None and not torch.equal(before, self._state()):
            self.place = self._recording.place(self._recording.facts(func), self._calls)
        return result

    def _state(self) -> torch.Tensor:
        if self._device.type == "cuda":
            return torch.cuda.get_rng_state(self._device)
        return torch.get_rng_state()
