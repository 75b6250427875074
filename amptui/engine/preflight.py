"""One window in true FP32 under observation, and one per dtype as an operator probe, before anything is promised.

What the code alone does not show is watched while it runs: an autocast of the user's own, calls of the training loop
that a loss makes itself, values made half by hand, an optimizer that steps inside backward, sparse gradients. Nothing
that runs here is kept: the state of the checkpoint is restored afterwards.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from amptui.engine.bench import Bench
from amptui.engine.evaluate import evaluate
from amptui.engine.failures import UserCodeError, defined_at, user_code
from amptui.engine.live import LiveProject, LiveUpdate, LossRefused, named_parameters, split_loss
from amptui.engine.loss_watch import LoopCallInLoss, loop_call_refusal, loop_calls_refused
from amptui.engine.own_autocast import Opened, OwnAutocast
from amptui.engine.precision import policy_autocast, true_fp32
from amptui.engine.refusals import Refusal, refuse_left_on, sparse_refusal
from amptui.engine.tracing.source import line_of, user_frame
from amptui.findings.words import counted
from amptui.project import DTYPE_NAMES, Scaler
from amptui.protocol.events import Probed, Remarked

_HALF = (torch.float16, torch.bfloat16)


def preflight(bench: Bench) -> None:
    """Raises `Refusal` or `UserCodeError` for what cannot be judged, and emits a remark for what should be known."""
    remarks = _Remarks(bench)
    _remark_on_setup(bench, remarks)
    try:
        with true_fp32(on_autocast=remarks.on_autocast) as own:
            for update in bench.live.updates:
                _watch_window(bench.live, update, own, remarks, bench.start.tensors())
            _watch_case(bench)
            refuse_left_on(own.left_on())
    finally:
        bench.restart()


def probe_dtypes(bench: Bench) -> None:
    """Emits for float16 and bfloat16 whether this device runs the project's operators under autocast."""
    for dtype in dict.fromkeys(DTYPE_NAMES.values()):
        error: UserCodeError | None = None
        try:
            _run_once(bench, dtype)
        except UserCodeError as failed:
            error = failed
        finally:
            bench.restart()
        bench.emit(
            Probed(
                dtype=dtype,
                supported=error is None,
                error=f"{error.exception}: {error.message}" if error is not None else None,
                where=error.where if error is not None else None,
            )
        )


def _run_once(bench: Bench, dtype: str) -> None:
    live = bench.live

    def autocast() -> Any:
        return policy_autocast(live.device.type, dtype, enabled=True)

    for update in live.updates:
        batch = next(iter(live.batches.window(0)))
        with user_code("forward", step=0, update=update.name), autocast():
            loss = split_loss(update.update.loss(live.model, batch)).driving
        with user_code("backward", step=0, update=update.name):
            loss.backward()  # type: ignore[no-untyped-call]
    if live.cases and not live.updates:
        evaluate(replace(live, cases=live.cases[:1]), autocast, state=bench.rng)


def _watch_window(
    live: LiveProject, update: LiveUpdate, own: OwnAutocast, remarks: _Remarks, start: Mapping[str, Tensor]
) -> None:
    named = named_parameters(live.state.all_modules())
    for micro_batch, batch in enumerate(live.batches.window(0)):
        where: dict[str, Any] = {"step": 0, "update": update.name, "micro_batch": micro_batch}
        try:
            with user_code("forward", **where):
                with loop_calls_refused(live.updates):
                    returned = update.update.loss(live.model, batch)
                loss = split_loss(returned).driving
        except UserCodeError as error:
            refusal = _as_refusal(error, update)
            if refusal is None:
                raise
            raise refusal from error
        refuse_left_on(own.left_on(), update=update.name, where=update.facts.loss_at)
        _refuse_half_loss(loss, update)
        live.self_changing.update(n for n, p in named.items() if n in start and not _same(p, start[n]))
        before = [parameter.detach().clone() for parameter in update.parameters]
        with user_code("backward", **where):
            loss.backward()  # type: ignore[no-untyped-call]
        _refuse_sparse(live, update)
        if not all(map(_same, update.parameters, before)):
            raise Refusal(
                "step-in-backward",
                f"backward of update {update.name!r} changed its own parameters: an optimizer steps inside backward",
                hint="remove the gradient hooks that call step(): the guard must see the gradients before they are "
                "applied",
                where=update.facts.loss_at,
                kind="loop_order",
                update=update.name,
            )
    _remark_on_half_casts(live, update, remarks)


def _watch_case(bench: Bench) -> None:
    """The first case, so that what it opens is remarked on as well."""
    evaluate(replace(bench.live, cases=bench.live.cases[:1]), contextlib.nullcontext, state=bench.rng)


def _as_refusal(error: UserCodeError, update: LiveUpdate) -> Refusal | None:
    """What amptui itself raised inside the user's loss; None for an exception of the project's own."""
    original = error.original
    if isinstance(original, LossRefused):
        return Refusal(
            "loss",
            f"update {update.name!r}: {original}",
            hint="loss(model, batch) returns a scalar tensor, or a mapping with the key 'loss'",
            where=update.facts.loss_at,
            update=update.name,
        )
    if isinstance(original, LoopCallInLoss):
        return loop_call_refusal(original, update)
    return None


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal, NaN taken for equal to NaN."""
    return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())  # noqa: PLR0124


def _refuse_half_loss(loss: Tensor, update: LiveUpdate) -> None:
    if loss.dtype is torch.float16:
        raise Refusal(
            "half-loss",
            f"the loss of update {update.name!r} is float16 where autocast is off: times a loss scale of 65536 it is "
            "infinite at once",
            hint="remove the .half() that makes it, or end the loss with .float()",
            where=update.facts.loss_at,
            kind="dtype",
            stage="loss",
            update=update.name,
            module="loss",
        )


def _refuse_sparse(live: LiveProject, update: LiveUpdate) -> None:
    for name, parameter in zip(update.facts.layers, update.parameters, strict=True):
        if parameter.grad is not None and parameter.grad.layout is not torch.strided:
            module = name.rpartition(".")[0]
            raise sparse_refusal(module, type(live.named_modules()[module]).__name__, update.update)


class _Remarks:
    """Each remark once."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._made: set[tuple[str, str | None]] = set()

    def make(self, code: str, message: str, *, where: str | None = None, advice: str = "") -> None:
        if (code, where) not in self._made:
            self._made.add((code, where))
            self._bench.emit(Remarked(code=code, message=message, where=where, advice=advice))

    def on_autocast(self, opened: Opened) -> None:
        if opened.deprecated:
            self.make(
                "deprecated-autocast",
                "the project opens autocast through the deprecated torch.cuda.amp or torch.cpu.amp",
                where=opened.where,
                advice="write torch.autocast(device_type, dtype=…), or leave autocast to amptui",
            )
        self.make(
            "own-autocast",
            f"the project opens an autocast of its own ({opened.device}, {opened.dtype})",
            where=opened.where,
            advice="the FP32 baseline keeps it closed; in the trial it overrides the policy inside its block",
        )


def _remark_on_setup(bench: Bench, remarks: _Remarks) -> None:
    live, policy = bench.live, bench.policy
    if not live.updates and isinstance(policy.scaler, Scaler):
        remarks.make(
            "scaler-without-updates",
            "the policy has a scaler, but the project has no updates",
            advice="loss scaling protects gradients; for inference it does nothing",
        )
    trained = {id(p) for update in live.updates for p in update.parameters}
    loose = [n for n, p in named_parameters(live.modules).items() if p.requires_grad and id(p) not in trained]
    if live.updates and loose:
        remarks.make(
            "parameter-in-no-optimizer",
            f"{counted(len(loose), 'trainable parameter is', 'trainable parameters are')} in no optimizer, such as "
            f"{loose[0]!r}",
            advice="add them to an optimizer, or say requires_grad_(False)",
        )
    half = [n for n, p in named_parameters(live.modules).items() if p.dtype in _HALF]
    if half:
        remarks.make(
            "half-parameters",
            f"{counted(len(half), 'parameter is', 'parameters are')} stored in half precision, such as {half[0]!r}",
            advice="the baseline is only as good as its weights: keep them in float32",
        )
    for name, module in live.modules.items():
        if live.updates and not module.training:
            remarks.make(
                "eval-mode",
                f"the model{f' {name!r}' if name else ''} is in eval mode, and the stretch will train it like that",
                where=defined_at(type(module).forward),
                advice="call model.train() in the factory unless frozen statistics and no dropout are meant; "
                "cases always run in eval mode",
            )
    unsettled = live.batches.remainder
    if unsettled:
        remarks.make(
            "remainder",
            f"{counted(unsettled, 'batch', 'batches')} at the end, too few for a window of {live.accumulate}, "
            f"{'is' if unsettled == 1 else 'are'} not run",
        )


class _HalfCasts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes where float32 values are made half while autocast is off."""

    def __init__(self, on_cast: Callable[[torch.dtype, str | None], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._on_cast = on_cast

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        made = isinstance(result, Tensor) and result.dtype in _HALF
        if made and args and isinstance(args[0], Tensor) and args[0].dtype in (torch.float32, torch.float64):
            frame = user_frame(sys._getframe(1))
            self._on_cast(result.dtype, str(line_of(frame)) if frame is not None else None)
        return result


def _remark_on_half_casts(live: LiveProject, update: LiveUpdate, remarks: _Remarks) -> None:
    def on_cast(dtype: torch.dtype, where: str | None) -> None:
        remarks.make(
            "hard-coded-half",
            f"the project makes {_name(dtype)} values itself, also where autocast is off",
            where=where,
            advice="let autocast cast, or write tensor.to(other.dtype): hard-coded half stays half in FP32",
        )

    # A dispatch mode cannot see into compiled or higher-order code and may fail there; the remark is then not made.
    with contextlib.suppress(Exception, SystemExit), torch.no_grad(), _HalfCasts(on_cast):
        update.update.loss(live.model, next(iter(live.batches.window(0))))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
