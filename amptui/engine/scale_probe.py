"""The loss scale that fits, predicted from one backward pass.

Gradients are linear in the scale, so one pass at a safe scale tells how far each of them is from the end of its dtype.
Bisection needs about six passes for the same answer; a scaler that starts too high burns one update per halving.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from amptui.engine.tracing.backward import current_node
from amptui.engine.tracing.calls import TorchCalls
from amptui.engine.tracing.modules import ModulePaths, ModuleStack
from amptui.engine.tracing.recording import Recording
from amptui.engine.tracing.schema import tensors_in
from amptui.engine.tracing.tape import KnownTensors, Place
from amptui.engine.tracing.values import dtype_name, extent, is_finite

#: GradScaler's growth stops at the last power of two that float32 has.
LARGEST_SCALE = 2.0**127
#: Scales to try in turn, from the one where most projects' gradients are in range. A value that is not finite asks for
#: a lower one; gradients that are zero, or so small that their digits are gone, for a higher one.
_FIRST, _LOWER, _HIGHER = 2.0**8, 2.0**-16, 2.0**16
#: Ratio to the end of the range under which an FP16 number has too few digits left to predict from.
_TOO_SMALL = 2.0**-34


@dataclass(frozen=True, kw_only=True)
class ScaleFit:
    """The largest power of two that keeps every gradient finite, and what limits it."""

    #: None if gradients are not finite at any scale that was tried: the scale is not the fault.
    scale: float | None
    #: Largest magnitude among the gradients relative to the end of their dtype, at `probed`.
    reach: float
    #: The scale of the last pass.
    probed: float
    passes: int
    #: Where the limiting gradient is made (`module`, `op`, `line` of the forward op), and its dtype.
    module: str | None = None
    op: str | None = None
    line: str | None = None
    dtype: str | None = None

    def halvings_from(self, scale: float) -> int:
        """How many updates a scaler that starts at `scale` skips before it fits."""
        if self.scale is None or scale <= self.scale:
            return 0
        return math.ceil(math.log2(scale / self.scale))


def fit_scale(
    run: Callable[[float], object],
    modules: nn.Module | Mapping[str, nn.Module],
    *,
    device: str = "cpu",
    verify: bool = False,
) -> ScaleFit:
    """Predict the fitting scale; usually one call of `run`.

    `run(scale)` does forward, loss and backward of the loss times `scale`, from the same state each time. The
    prediction sees the results of ops, not the partial sums inside one: where these cancel (a convolution's weight
    gradient) it can be twice too high. With `verify` the scale is tried, and halved while it does not hold.
    """
    scale, passes = _FIRST, 0
    while True:
        reach = _measure(run, scale, modules, device)
        passes += 1
        if not math.isfinite(reach.ratio):
            if scale < 2.0**-20:
                return ScaleFit(scale=None, reach=reach.ratio, probed=scale, passes=passes, **reach.place_fields())
            scale *= _LOWER
        elif reach.ratio < _TOO_SMALL and scale < 2.0**60:
            scale *= _HIGHER
        else:
            break
    fitting = LARGEST_SCALE
    if reach.ratio > 0:
        fitting = min(2.0 ** math.floor(math.log2(scale / reach.ratio)), LARGEST_SCALE)
    while verify and fitting > scale:  # at `scale` it is known to be finite
        passes += 1
        at_fitting = _measure(run, fitting, modules, device)
        if math.isfinite(at_fitting.ratio):
            break
        reach, fitting = at_fitting, fitting / 2
    return ScaleFit(scale=fitting, reach=reach.ratio, probed=scale, passes=passes, **reach.place_fields())


@dataclass
class _Reach:
    ratio: float = 0.0
    place: Place | None = None
    dtype: str | None = None

    def place_fields(self) -> dict[str, str | None]:
        if self.place is None:
            return {}
        line = str(self.place.line) if self.place.line is not None else None
        return {"module": self.place.module, "op": self.place.op, "line": line, "dtype": self.dtype}


class _GradientReach(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the largest gradient relative to its dtype."""

    def __init__(self, recording: Recording, calls: TorchCalls) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recording = recording
        self._calls = calls
        self.reach = _Reach()

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        facts = self._recording.facts(func)
        repeats_forward = torch.is_grad_enabled()
        in_backward = current_node() is not None and not repeats_forward
        if not in_backward:
            self._recording.note(facts)
        out = func(*args, **(kwargs or {}))
        if in_backward and not facts.passive and not facts.uninitialised:
            for tensor in tensors_in(out if isinstance(out, (list, tuple)) else [out]):
                span = extent(tensor)
                if span is None:
                    continue
                ratio = max(abs(span[0]), abs(span[1])) / torch.finfo(tensor.dtype).max if is_finite(span) else math.inf
                if ratio > self.reach.ratio:
                    self.reach = _Reach(ratio, self._recording.place(facts, self._calls), dtype_name(tensor.dtype))
        return out


def _measure(
    run: Callable[[float], object], scale: float, modules: nn.Module | Mapping[str, nn.Module], device: str
) -> _Reach:
    paths = ModulePaths(modules)
    stack = ModuleStack(paths)
    calls = TorchCalls(device)
    probe = _GradientReach(Recording(stack=stack, known=KnownTensors(paths), device=device), calls)
    with ExitStack() as contexts:
        contexts.enter_context(torch.compiler.set_stance("force_eager"))
        contexts.enter_context(stack)
        contexts.enter_context(probe)
        run(scale)
    return probe.reach
