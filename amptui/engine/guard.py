"""The guard: one host transfer per update that says whether it may be taken, and which layer, loss or buffer is bad.

The norms are those that clipping needs anyway. Found_inf is read here, as a float and before `GradScaler.update`:
kept as a tensor it would be summed with the other optimizers' in place. Found_inf alone is not "gradients are finite":
it looks at the gradient before the division by the scale, so norms are checked after it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from amptui.engine.buffer_watch import BufferWatch
from amptui.engine.live import LiveProject, LiveUpdate
from amptui.engine.norms import norms_of
from amptui.protocol.facts import Outcome

#: Side by side, torch takes the widest of these for all: no value is rounded.
_EXACT_TOGETHER = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class Reading:
    """What one transfer brought: losses of the window, norms by layer (−1 without gradient), and the decision."""

    outcome: Outcome
    loss: float
    losses: tuple[float, ...]
    shown: Mapping[str, float]
    norms: tuple[float, ...]
    norm: float
    found_inf: bool
    scale: float
    bad: tuple[str, ...]
    #: The total norm as torch's tensor, for clipping; None without gradients.
    total: Tensor | None
    #: Whether every gradient is zero in every element.
    zero: bool
    #: Of the first parameter group; NaN for an optimizer without one.
    learning_rate: float


@dataclass(eq=False)
class Guard:
    live: LiveProject
    scaler: torch.amp.GradScaler | None

    def __post_init__(self) -> None:
        self.buffers = BufferWatch(self.live)

    @torch.no_grad()
    def read(
        self,
        update: LiveUpdate,
        gradients: Sequence[Tensor],
        losses: Sequence[Tensor],
        shown: Mapping[str, Sequence[Tensor | float]],
    ) -> Reading:
        """Reads everything that decides about this update in one transfer, after `unscale_`.

        `gradients`: those that there are, in the order of the update's parameters.
        """
        norms = norms_of(gradients)
        found_inf, scale = self._scaler_state(update) if norms else ([], [])
        extras = [value for values in shown.values() for value in values if isinstance(value, Tensor)]
        rate = update.update.optimizer.param_groups[0].get("lr", math.nan)

        numbers = iter(
            self._transfer(
                [
                    *losses,
                    *([norms.stacked, norms.total] if norms else []),
                    *found_inf,
                    *scale,
                    *self.buffers.figures(),
                    *extras,
                    *([rate] if isinstance(rate, Tensor) else []),
                ]
            )
        )
        loss_values = [next(numbers) for _ in losses]
        norm_values = [next(numbers) for _ in gradients]
        norm = next(numbers) if norms else 0.0
        infinite = sum(next(numbers) for _ in found_inf) > 0
        scale_value = next(numbers) if scale else 1.0
        worse = self.buffers.gone_bad(numbers)
        shown_values = {
            key: _mean([next(numbers) if isinstance(value, Tensor) else float(value) for value in values])
            for key, values in shown.items()
        }
        outcome, bad = self._decide(update, loss_values, norm_values, norm, infinite, worse)
        return Reading(
            outcome=outcome,
            loss=_mean(loss_values),
            losses=tuple(loss_values),
            shown=shown_values,
            norms=_in_layer_order(update, norm_values),
            norm=norm,
            found_inf=infinite,
            scale=scale_value,
            bad=bad,
            total=norms.total if norms else None,
            zero=norm == 0.0 and not any(bool(gradient.any()) for gradient in gradients),  # squares may underflow
            learning_rate=next(numbers) if isinstance(rate, Tensor) else float(rate),
        )

    def step(self, update: LiveUpdate) -> tuple[str, ...]:
        """Takes the step, or returns the names of layers that became non-finite after the guard had read them.

        Clipping code is amptui's own, but step hooks that the user registered run inside `optimizer.step` and may
        change gradients; then they are checked once more behind the last of these hooks.
        """
        optimizer = update.update.optimizer
        if not _has_step_hooks(optimizer):
            self._take(optimizer)
            return ()
        handle = optimizer.register_step_pre_hook(lambda *_: _raise_if_spoiled(update))
        try:
            self._take(optimizer)
        except _SpoiledError as spoiled:
            for leftover in ("grad_scale", "found_inf"):  # a fused step that raised leaves them, and doubles the next
                if hasattr(optimizer, leftover):
                    delattr(optimizer, leftover)
            return spoiled.layers
        finally:
            handle.remove()
        return ()

    def _take(self, optimizer: torch.optim.Optimizer) -> None:
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)

    def _scaler_state(self, update: LiveUpdate) -> tuple[list[Tensor], list[Tensor]]:
        """found_inf per device, and the scale, as tensors; empty without a scaler or before its first use."""
        if self.scaler is None or self.scaler._scale is None:
            return [], []
        found = self.scaler._found_inf_per_device(update.update.optimizer)
        return list(found.values()), [self.scaler._scale]

    def _transfer(self, values: Sequence[Tensor]) -> list[float]:
        """All elements of `values` as Python floats, in order, by one copy to the host."""
        device = self.live.device
        wide = torch.float32 if device.type == "mps" else torch.float64
        ready = [
            value if value.dtype in _EXACT_TOGETHER and value.device == device else value.to(device, wide)
            for value in values
        ]
        found: list[float] = torch.cat([value if value.dim() == 1 else value.reshape(-1) for value in ready]).tolist()
        return found

    def _decide(
        self,
        update: LiveUpdate,
        losses: Sequence[float],
        norms: Sequence[float],
        norm: float,
        found_inf: bool,
        buffers: tuple[str, ...],
    ) -> tuple[Outcome, tuple[str, ...]]:
        bad_losses = tuple(f"micro-batch {i}" for i, loss in enumerate(losses) if not math.isfinite(loss))
        suspects = () if math.isfinite(norm) else _not_finite(update, norms)
        if bad_losses:
            return "bad_loss", (*bad_losses, *suspects, *buffers)
        if not norms:
            return "no_gradient", ()
        if found_inf:
            return "bad_gradient", (*suspects, *buffers)
        if not math.isfinite(norm):
            truly = tuple(name for name in suspects if not _finite_gradient(update, name))
            if not truly:  # every element is finite; only the sum of squares left float32
                return "norm_overflow", suspects
            return ("bad_after_unscale" if self.scaler is not None else "bad_gradient"), (*truly, *buffers)
        if buffers:
            return "bad_buffers", buffers
        return "ok", ()


class _SpoiledError(Exception):
    def __init__(self, layers: tuple[str, ...]) -> None:
        super().__init__(layers)
        self.layers = layers


def _raise_if_spoiled(update: LiveUpdate) -> None:
    spoiled = tuple(
        name
        for name, parameter in zip(update.facts.layers, update.parameters, strict=True)
        if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all())
    )
    if spoiled:
        raise _SpoiledError(spoiled)


def _has_step_hooks(optimizer: torch.optim.Optimizer) -> bool:
    own = getattr(optimizer, "_optimizer_step_pre_hooks", None)
    module = sys.modules[torch.optim.Optimizer.__module__]  # torch.optim deletes the attribute
    everywhere = getattr(module, "_global_optimizer_pre_hooks", None)
    return own is None or everywhere is None or bool(own) or bool(everywhere)


def _not_finite(update: LiveUpdate, norms: Sequence[float]) -> tuple[str, ...]:
    """Layers whose norm is not finite; `norms` are those of the layers that have a gradient."""
    named = [name for name, p in zip(update.facts.layers, update.parameters, strict=True) if p.grad is not None]
    return tuple(name for name, value in zip(named, norms, strict=True) if not math.isfinite(value))


def _finite_gradient(update: LiveUpdate, name: str) -> bool:
    gradient = update.parameters[update.facts.layers.index(name)].grad
    return gradient is None or bool(torch.isfinite(gradient).all())


def _in_layer_order(update: LiveUpdate, norms: Sequence[float]) -> tuple[float, ...]:
    if len(norms) == len(update.parameters):
        return tuple(norms)
    given = iter(norms)
    return tuple(-1.0 if parameter.grad is None else next(given) for parameter in update.parameters)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) and values else sum(values, 0.0)
