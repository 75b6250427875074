"""A failing iteration once more, with one thing varied: true FP32, another loss scale.

The weights are still what they were, because the guard withheld the step; RNG comes from the tape. What user code may
have changed is put back afterwards. A replay touches neither the scaler nor the optimizer.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amptui.engine import rng
from amptui.engine.failures import user_code
from amptui.engine.iteration import GuardedRun
from amptui.engine.live import LiveProject, LiveUpdate, named_parameters, split_loss
from amptui.engine.precision import true_fp32
from amptui.engine.snapshot import BufferSnapshot
from amptui.engine.switches import Switches
from amptui.engine.training_state import copied as deeply_copied
from amptui.engine.training_state import load_state, state_of


@dataclass(frozen=True, eq=False)
class Replay:
    """Losses of the window and unscaled gradients in the order of the update's parameters."""

    losses: tuple[float, ...]
    gradients: tuple[Tensor | None, ...]

    @property
    def loss_finite(self) -> bool:
        return all(math.isfinite(loss) for loss in self.losses)

    @property
    def gradients_finite(self) -> bool:
        return all(g is None or bool(torch.isfinite(g).all()) for g in self.gradients)

    @property
    def finite(self) -> bool:
        return self.loss_finite and self.gradients_finite


def replay(run: GuardedRun, update: LiveUpdate, step: int, *, fp32: bool = False, scale: float | None = None) -> Replay:
    """Forward and backward of one update's window as `run` does it, or in true FP32 without scaling.

    `scale` replaces the run's loss scale; gradients are divided by it in float32, as `unscale_` does. Raises
    `UserCodeError` where the project fails.
    """
    factor = 1.0 if fp32 else (run.scale if scale is None else scale)
    with untouched(run.live), true_fp32() if fp32 else contextlib.nullcontext():
        if run.buffers is not None:
            run.buffers.restore()  # the failing forward may have changed them already
        losses = []
        for micro_batch, batch in enumerate(run.live.batches.window(step)):
            run.tape.enter(step, update.name, micro_batch)
            where: dict[str, Any] = {"step": step, "update": update.name, "micro_batch": micro_batch}
            with user_code("forward", **where), contextlib.nullcontext() if fp32 else run.autocast():
                driving = split_loss(update.update.loss(run.live.model, batch)).driving
                losses.append(float(driving.detach()))
                if update.update.accumulate > 1 and update.update.reduce == "mean":
                    driving = driving / update.update.accumulate
            scaled = driving if run.scaler is None or fp32 else driving * float32_scalar(factor, driving.device)
            with user_code("backward", **where):
                scaled.backward()  # type: ignore[no-untyped-call]
        gradients = tuple(_unscaled(parameter.grad, factor) for parameter in update.parameters)
    return Replay(tuple(losses), gradients)


def fitting_scale(run: GuardedRun, update: LiveUpdate, step: int) -> float | None:
    """The largest power of two, at most the run's scale, at which the unscaled gradients are finite; None if none is.

    Gradients are linear in the scale, so the exponents between 0 and the present one are bisected.
    """
    if run.scaler is None or not (1.0 < run.scale < math.inf):
        return None
    low, high = 0, math.ceil(math.log2(run.scale))
    if not replay(run, update, step, scale=1.0).gradients_finite:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if replay(run, update, step, scale=2.0**middle).gradients_finite:
            low = middle
        else:
            high = middle
    return 2.0**low


@contextlib.contextmanager
def untouched(live: LiveProject) -> Iterator[None]:
    """What a forward and backward may change as it was, whatever happens inside; no gradient is there at the start.

    That is gradients, buffers, parameters that forwards change themselves, the objects of `extra_state`, training
    flags, torch's switches and all random number generators. Optimizers and schedulers no loss function changes.
    """
    buffers, generators, switches = BufferSnapshot(live.state), rng.capture(), Switches.current()
    extra = {path: value for path, value in live.state.stateful().items() if path.startswith("extra:")}
    states = {path: deeply_copied(state_of(value, path)) for path, value in extra.items()}
    flags = [(module, module.training) for root in live.modules.values() for module in root.modules()]
    own = {n: p for n, p in named_parameters(live.state.all_modules()).items() if n in live.self_changing}
    values = {name: parameter.detach().clone() for name, parameter in own.items()}
    parameters = _all_parameters(live)
    gradients = [parameter.grad for parameter in parameters]
    for parameter in parameters:  # all: backward adds in place to whatever gradient is there
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        buffers.restore()
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(values[name])
        for path, value in extra.items():
            load_state(value, states[path], path)
        for module, training in flags:
            module.training = training
        switches.restore()
        rng.restore(generators)


def _all_parameters(live: LiveProject) -> Sequence[torch.nn.Parameter]:
    found = {id(p): p for root in live.modules.values() for p in root.parameters()}
    found.update((id(p), p) for update in live.updates for p in update.parameters)
    return list(found.values())


def float32_scalar(value: float, device: torch.device) -> Tensor:
    """A loss scale as GradScaler keeps it, whatever default dtype the project set."""
    return torch.tensor(value, dtype=torch.float32, device=device)


@torch.no_grad()
def _unscaled(gradient: Tensor | None, scale: float) -> Tensor | None:
    return None if gradient is None else gradient * float32_scalar(1.0 / scale, gradient.device)
