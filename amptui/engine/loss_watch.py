"""Calls of the training loop that a loss makes itself: backward, the step, zero_grad, the scaler's.

amptui makes these calls, so inside of a loss they would be made twice. An inner loop of the loss's own (a latent that
is optimised, a gradient penalty by `torch.autograd.grad`) touches no gradient and no optimizer of the project's updates
and is left alone.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from amptui.engine.live import LiveUpdate
from amptui.engine.refusals import Refusal
from amptui.engine.tracing.source import line_of, user_frame

_SCALER_CALLS = ("scale", "unscale_", "step", "update")
_HINT = "amptui does zero_grad, backward and step: return the loss alone, undivided and not detached"


class LoopCallInLoss(Exception):
    """User code made the call `name` inside of a loss; `where` is its `file:line`."""

    def __init__(self, name: str, where: str | None) -> None:
        super().__init__(f"{name} was called inside the loss")
        self.name, self.where = name, where


@contextlib.contextmanager
def loop_calls_refused(updates: Sequence[LiveUpdate]) -> Iterator[None]:
    """Raises `LoopCallInLoss` where the code inside makes a call of the training loop of `updates`."""
    backward_at: list[str | None] = []
    parameters = [parameter for update in updates for parameter in update.parameters]
    before = [_gradient(parameter) for parameter in parameters]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_replaced(torch.Tensor, "backward", _noting(torch.Tensor.backward, backward_at)))
        stack.enter_context(_replaced(torch.autograd, "backward", _noting(torch.autograd.backward, backward_at)))
        for name in _SCALER_CALLS:
            stack.enter_context(_replaced(torch.amp.GradScaler, name, _refusing(f"scaler.{name}")))
        for update in updates:
            optimizer, scheduler = update.update.optimizer, update.update.scheduler
            stack.enter_context(_replaced(optimizer, "step", _refusing("optimizer.step")))
            stack.enter_context(_replaced(optimizer, "zero_grad", _refusing("optimizer.zero_grad")))
            if scheduler is not None:
                stack.enter_context(_replaced(scheduler, "step", _refusing("scheduler.step")))
        yield
    if backward_at and any(map(_was_added_to, parameters, before)):
        raise LoopCallInLoss("backward", backward_at[0])


def loop_call_refusal(error: LoopCallInLoss, update: LiveUpdate) -> Refusal:
    scaler = error.name.startswith("scaler.")
    return Refusal(
        "scaler-in-loss" if scaler else "loop-in-loss",
        f"the loss of update {update.name!r} "
        + ("uses a GradScaler of its own: the loss would be scaled twice" if scaler else f"calls {error.name} itself"),
        hint=f"{_HINT}; for a gradient that the loss itself needs, torch.autograd.grad leaves .grad alone"
        if error.name == "backward"
        else _HINT,
        where=error.where or update.facts.loss_at,
        kind="loop_order",
        update=update.name,
    )


def _gradient(parameter: nn.Parameter) -> tuple[Tensor | None, int]:
    return parameter.grad, parameter.grad._version if parameter.grad is not None else 0


def _was_added_to(parameter: nn.Parameter, before: tuple[Tensor | None, int]) -> bool:
    """Whether the gradient is another one than before, and not one that was cleared again."""
    gradient, version = _gradient(parameter)
    if gradient is None or (gradient is before[0] and version == before[1]):
        return False
    return gradient.layout is not torch.strided or bool((gradient != 0).any())


def _noting(original: Callable[..., Any], places: list[str | None]) -> Callable[..., Any]:
    def noted(*given: Any, **named: Any) -> Any:
        places.append(_where())
        return original(*given, **named)

    return noted


def _refusing(name: str) -> Callable[..., Any]:
    def refused(*_given: Any, **_named: Any) -> Any:
        raise LoopCallInLoss(name, _where())

    return refused


def _where() -> str | None:
    frame = user_frame(sys._getframe(2))
    return str(line_of(frame)) if frame is not None else None


@contextlib.contextmanager
def _replaced(owner: Any, name: str, stand_in: Callable[..., Any]) -> Iterator[None]:
    """`owner.name` is `stand_in` inside; afterwards what was there, also where that was inherited."""
    own = vars(owner).get(name)
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        if own is not None:
            setattr(owner, name, own)
        else:
            delattr(owner, name)
