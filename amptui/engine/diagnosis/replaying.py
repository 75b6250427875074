"""Traced replays: the failing window or case exactly as it ran, with every op watched."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from amptui.engine import rng
from amptui.engine.evaluate import call_outputs, eval_mode
from amptui.engine.iteration import GuardedRun
from amptui.engine.live import LiveProject, LiveUpdate, split_loss
from amptui.engine.nested import copied, tensors_in
from amptui.engine.plain_values import same_bits
from amptui.engine.precision import policy_autocast, true_fp32
from amptui.engine.replay import float32_scalar, untouched
from amptui.engine.tracing.blame import Site
from amptui.engine.tracing.ladder import Trace, trace
from amptui.engine.tracing.origin import Origin
from amptui.project import Case, Policy


@dataclass(frozen=True, eq=False)
class Window:
    """What one replayed window left: losses by micro-batch, raw gradients by parameter, buffers that it spoiled."""

    losses: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor | None]
    buffers: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def numbers_finite(self) -> bool:
        """Whether losses and gradients are."""
        return all(_finite(t) for t in (*self.losses.values(), *self.gradients.values()))

    @property
    def finite(self) -> bool:
        return self.numbers_finite and not self.buffers


@contextlib.contextmanager
def traced_window(
    run: GuardedRun,
    update: LiveUpdate,
    step: int,
    *,
    fp32: bool = False,
    scale: float | None = None,
    failing: bool = True,
) -> Iterator[Trace]:
    """Replays one update's window under tracing: forward, loss, backward of the loss as it was scaled.

    The trace's value is a `Window`; it begins with the buffers that the window began with. Ask for origins inside the
    context: at its end everything live is as it was.
    """
    live = run.live
    factor = 1.0 if fp32 or run.scaler is None else (run.scale if scale is None else scale)
    batches = list(live.batches.window(step))
    fresh = _Refilled(batches, lambda: list(live.batches.window(step)))
    with contextlib.ExitStack() as attempt:

        def once() -> Window:
            with _disable_current_modes():  # putting back is no part of the run
                attempt.close()
                attempt.enter_context(untouched(live))
                if run.buffers is not None:
                    run.buffers.restore()
                fresh.refill()
            with _arithmetic(fp32), _exits_as_errors():
                losses = {}
                for micro_batch, batch in enumerate(batches):
                    run.tape.enter(step, update.name, micro_batch)
                    with contextlib.nullcontext() if fp32 else run.autocast():
                        driving = split_loss(update.update.loss(live.model, batch)).driving
                        losses[f"loss of micro-batch {micro_batch}"] = driving.detach()
                        if update.update.accumulate > 1 and update.update.reduce == "mean":
                            driving = driving / update.update.accumulate
                    scaled = driving if factor == 1.0 else driving * float32_scalar(factor, driving.device)
                    scaled.backward()  # type: ignore[no-untyped-call]
            gradients = {
                name: parameter.grad for name, parameter in zip(update.facts.layers, update.parameters, strict=True)
            }
            return Window(losses, gradients, _spoiled(run))

        yield trace(
            once,
            modules=live.modules,
            inputs=batches,
            device=live.device.type,
            reproduced=(lambda value, error: error is not None or (isinstance(value, Window) and not value.finite))
            if failing
            else None,
        )


def forward_window(run: GuardedRun, update: LiveUpdate, step: int) -> list[Tensor]:
    """The losses of one update's window, in whatever arithmetic is on, without backward. Nothing live is changed."""
    live = run.live
    with untouched(live):
        if run.buffers is not None:
            run.buffers.restore()
        losses = []
        for micro_batch, batch in enumerate(live.batches.window(step)):
            run.tape.enter(step, update.name, micro_batch)
            losses.append(split_loss(update.update.loss(live.model, batch)).driving.detach())
        return losses


def _spoiled(run: GuardedRun) -> dict[str, Tensor]:
    """The buffers that were finite when the window began and are not now."""
    if run.buffers is None:
        return {}
    before = run.buffers.tensors()
    return {
        name: buffer
        for name, buffer in run.live.float_buffers().items()
        if not _finite(buffer) and name in before and _finite(before[name])
    }


def trace_case(
    live: LiveProject, case: Case, policy: Policy, state: rng.RngState, *, fp32: bool = False, failing: bool = True
) -> Trace:
    """Evaluates one case once more under tracing. The trace's value is what `outputs` returned."""
    inputs = copied(case.inputs, None)
    fresh = _Refilled(inputs, lambda: case.inputs)

    def once() -> Any:
        rng.restore(state)
        fresh.refill()
        autocast = policy_autocast(live.device.type, policy.dtype, policy.autocast and not fp32)
        with _arithmetic(fp32), eval_mode(live.modules), torch.no_grad(), autocast, _exits_as_errors():
            return call_outputs(live, inputs)

    return trace(
        once,
        modules=live.modules,
        inputs=inputs,
        outside="outputs",
        device=live.device.type,
        reproduced=(lambda value, error: error is not None or not _all_finite(value)) if failing else None,
    )


def origins_of_window(traced: Trace, accepted: frozenset[Site]) -> tuple[Origin, ...]:
    """Where what is not finite in losses and gradients began, or in buffers where these alone are not.

    Empty where the replay did not fail.
    """
    window = traced.value
    if not isinstance(window, Window) or not traced.reproduced:
        return ()
    if window.numbers_finite:
        return traced.blame(buffers=window.buffers, accepted=accepted)
    return traced.blame(outputs=window.losses, gradients=window.gradients, accepted=accepted)


def faithfulness(run: GuardedRun, update: LiveUpdate, traced: Trace) -> str:
    """How the replay compares with what ran: the unscaled gradients of the failing step still lie in `.grad`."""
    window = traced.value
    if not traced.reproduced or not isinstance(window, Window):
        return "not reproduced in a replay: no origin is claimed"
    level = "" if traced.level == "op" else f" (traced at {traced.level} level)"
    inverse = 1.0 / run.scale if run.scaler is not None else 1.0
    for parameter, replayed in zip(update.parameters, window.gradients.values(), strict=True):
        lived = parameter.grad
        if lived is None or replayed is None:
            if lived is not replayed:
                return f"reproduced in a replay, with other bits{level}"
            continue
        if not same_bits(lived, (replayed * float32_scalar(inverse, replayed.device)).to(lived.dtype)):
            return f"reproduced in a replay, with other bits{level}"
    return f"reproduced bit for bit in a replay{level}"


class _Refilled:
    """Batches or inputs that a tracer knows by identity: the same tensors with what they held, for a second run."""

    def __init__(self, given: Any, original: Callable[[], Any]) -> None:
        self._given, self._original, self._used = list(tensors_in(given)), original, False

    def refill(self) -> None:
        if self._used:
            with torch.no_grad():
                for tensor, was in zip(self._given, tensors_in(self._original()), strict=True):
                    if tensor.shape == was.shape:
                        tensor.copy_(was)
        self._used = True


#: An ordinary exception under the name of the one that it stands for.
_Left = type("SystemExit", (RuntimeError,), {})


@contextlib.contextmanager
def _exits_as_errors() -> Iterator[None]:
    """A `sys.exit` of the project's ends its replay, not the engine."""
    try:
        yield
    except SystemExit as leaving:
        raise _Left(str(leaving.code)).with_traceback(leaving.__traceback__) from None


@contextlib.contextmanager
def _arithmetic(fp32: bool) -> Iterator[None]:
    with true_fp32() if fp32 else contextlib.nullcontext():
        yield


def _finite(tensor: Tensor | None) -> bool:
    return tensor is None or bool(torch.isfinite(tensor).all())


def _all_finite(value: Any) -> bool:
    return all(_finite(tensor) for tensor in tensors_in(value))
