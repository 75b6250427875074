"""The guarded iteration: a generator of phases. Stepping it, running it and testing it are the same code.

An iteration is one window of micro-batches, seen by every update in turn. For each update that takes part:

    zero_grad, then per micro-batch forward, check_loss, backward, then unscale, check_grads, clip, step;

after all updates `update_scale`, then `scheduler` for the updates that were applied. Nothing here decides differently
from the plain AMP loop as long as everything is finite: weights, buffers, optimizer state and scale are equal bit for
bit. When something is not finite, `step` is withheld here and `GradScaler.update` still runs on the found_inf that
`unscale_` recorded, so that "applied" is exact for every optimizer, fused or not, and no fused kernel is ever entered
on a bad gradient (fused SGD with momentum destroys the weights after a skipped first step).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from amptui.engine.failures import user_code
from amptui.engine.guard import Guard, Reading
from amptui.engine.live import LiveProject, LiveUpdate, split_loss
from amptui.engine.memory import MemoryGauge
from amptui.engine.precision import policy_autocast
from amptui.engine.scale import ScaleMirror
from amptui.engine.snapshot import BufferSnapshot
from amptui.engine.tape import RngTape
from amptui.project import Policy, Update
from amptui.protocol.codec import Floats
from amptui.protocol.facts import IterationRecord, PhaseName, UpdateRecord

Choice = Literal["go_on", "retry"]


@dataclass(frozen=True)
class Phase:
    """One phase that has just run. `trip` is set where the guard holds the update back."""

    step: int
    update: str | None
    name: PhaseName
    micro_batch: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    note: str = ""
    trip: UpdateRecord | None = None


Phases = Generator[Phase, "Choice | None", IterationRecord]


@dataclass(eq=False)
class GuardedRun:
    """One pass over the stretch: what it runs under, and what it keeps between iterations.

    `stepping` reads each value as it is shown (one transfer a value); otherwise all values of an update come with one
    transfer at `check_grads`.
    """

    live: LiveProject
    policy: Policy
    #: False for the true-FP32 baseline: neither autocast nor scaler.
    mixed: bool
    tape: RngTape
    stepping: bool = False
    scaler: torch.amp.GradScaler | None = None
    mirror: ScaleMirror | None = None
    #: Applied updates so far, by update.
    applied: dict[str, int] = field(default_factory=dict)
    #: The found_inf of what was unscaled since the last `GradScaler.update`.
    unscaled: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        settings = self.policy.effective_scaler if self.mixed else None
        if settings is not None:
            self.scaler = torch.amp.GradScaler(
                self.live.device.type,
                init_scale=settings.init_scale,
                growth_factor=settings.growth_factor,
                backoff_factor=settings.backoff_factor,
                growth_interval=settings.growth_interval,
            )
            self.mirror = ScaleMirror.start(settings)
        self.guard = Guard(self.live, self.scaler)
        self.memory = MemoryGauge(self.live.device)
        #: The buffers as they were before the running update's block; a baseline never goes back.
        self.buffers = BufferSnapshot(self.live.state) if self.mixed else None
        self.applied = {update.name: 0 for update in self.live.updates}

    @property
    def scale(self) -> float:
        return self.mirror.scale if self.mirror is not None else 1.0

    def autocast(self) -> Any:
        return policy_autocast(self.live.device.type, self.policy.dtype, self.mixed and self.policy.autocast)

    def iteration(self, step: int) -> Phases:
        return guarded_iteration(self, step)


def guarded_iteration(run: GuardedRun, step: int) -> Phases:
    """One iteration of `run`. Yields each phase after it ran; a trip may be answered with "retry" by `send`."""
    started = time.perf_counter()
    scale_before = run.scale
    records: list[UpdateRecord] = []
    for update in run.live.updates:
        if update.takes_part(step):
            records.append((yield from _guarded_update(run, update, step)))
    yield from _update_scale(run, step)
    for record in records:
        if record.applied:
            yield from _step_scheduler(run, run.live.update(record.update), record)
    mirror = run.mirror
    return IterationRecord(
        step=step,
        updates=tuple(records),
        scale_before=scale_before,
        scale_after=run.scale,
        growth_tracker=mirror.growth_tracker if mirror is not None else 0,
        growth_interval=mirror.settings.growth_interval if mirror is not None else 0,
        seconds=time.perf_counter() - started,
        memory=run.memory.read(),
    )


def _guarded_update(run: GuardedRun, update: LiveUpdate, step: int) -> Generator[Phase, Choice | None, UpdateRecord]:
    """One update's block, repeated as long as its trip is answered with "retry"."""
    if run.buffers is not None:
        run.buffers.take()
    while True:
        seen = run.guard.buffers.states
        record = yield from _attempt(run, update, step)
        if record.applied or record.outcome == "no_gradient":
            return record
        where: PhaseName = "step" if record.outcome == "bad_before_step" else "check_grads"
        choice = yield Phase(step, update.name, where, values=_shown(record), trip=record)
        if run.buffers is not None and (choice == "retry" or run.policy.buffers == "rollback"):
            run.buffers.restore()
            run.guard.buffers.states = seen  # what turns bad once more is to be seen once more
        if choice != "retry":
            return record
        yield from _update_scale(run, step)


def _attempt(run: GuardedRun, update: LiveUpdate, step: int) -> Generator[Phase, Choice | None, UpdateRecord]:
    started = time.perf_counter()
    name, settings, optimizer = update.name, update.update, update.update.optimizer
    with user_code("zero_grad", step=step, update=name):
        optimizer.zero_grad(set_to_none=True)
    yield Phase(step, name, "zero_grad")

    losses: list[Tensor] = []
    shown: dict[str, list[Tensor | float]] = {}
    mapped = False
    for micro_batch, batch in enumerate(run.live.batches.window(step)):
        run.tape.enter(step, name, micro_batch)
        with user_code("forward", step=step, update=name, micro_batch=micro_batch), run.autocast():
            parts = split_loss(settings.loss(run.live.model, batch))
            divided = settings.accumulate > 1 and settings.reduce == "mean"
            driving = parts.driving / settings.accumulate if divided else parts.driving
        # copies: a project may write into the same tensors again before they are read
        losses.append(parts.driving.detach().clone())
        mapped |= parts.mapped
        for key, value in parts.shown.items():
            shown.setdefault(key, []).append(value.detach().clone() if isinstance(value, Tensor) else value)
        values = {"loss": float(losses[-1])} if run.stepping else {}
        yield Phase(step, name, "forward", micro_batch, values)
        yield Phase(step, name, "check_loss", micro_batch, values)
        with user_code("backward", step=step, update=name, micro_batch=micro_batch):
            (driving if run.scaler is None else run.scaler.scale(driving)).backward()  # type: ignore[no-untyped-call]
        yield Phase(step, name, "backward", micro_batch, {"scale": run.scale} if run.stepping else {})

    gradients = [parameter.grad for parameter in update.parameters if parameter.grad is not None]
    if run.scaler is not None and gradients:
        with user_code("unscale", step=step, update=name):
            run.scaler.unscale_(optimizer)
    yield Phase(step, name, "unscale", note="" if run.scaler is not None else "no scaler")

    with user_code("check_grads", step=step, update=name):
        reading = run.guard.read(update, gradients, losses, shown)
    if gradients:
        run.unscaled.append(reading.found_inf)
    if reading.outcome != "ok":
        if reading.outcome == "no_gradient":
            yield Phase(step, name, "check_grads", values=_shown(reading), note="skipped: no gradient")
        return _record(update, step, reading, mapped, started)
    yield Phase(step, name, "check_grads", values=_shown(reading))

    clipped_to = _clip(update, reading)
    yield Phase(step, name, "clip", values={"factor": clipped_to}, note=_how_clipped(settings, clipped_to))
    with user_code("step", step=step, update=name):
        spoiled = run.guard.step(update)
    if spoiled:
        record = _record(update, step, reading, mapped, started)
        return replace(record, outcome="bad_before_step", applied=False, withheld=True, bad=spoiled)
    run.applied[name] += 1
    yield Phase(step, name, "step", values={"applied": 1.0})
    return _record(update, step, reading, mapped, started, clipped_to)


def _record(
    update: LiveUpdate, step: int, reading: Reading, mapped: bool, started: float, clipped_to: float = 1.0
) -> UpdateRecord:
    """What the guard decided. The scaler's own rule is found_inf; whatever else is held back is `withheld`."""
    ok = reading.outcome == "ok"
    return UpdateRecord(
        step=step,
        update=update.name,
        outcome=reading.outcome,
        loss=reading.loss,
        losses=Floats.of(reading.losses),
        shown=reading.shown,
        norms=Floats.of(reading.norms),
        norm=reading.norm,
        clipped_to=clipped_to,
        found_inf=reading.found_inf,
        scale=reading.scale,
        applied=ok,
        skipped=not ok and reading.found_inf,
        withheld=not ok and not reading.found_inf and reading.outcome != "no_gradient",
        zero_gradient=reading.zero,
        learning_rate=reading.learning_rate,
        bad=reading.bad,
        seconds=time.perf_counter() - started,
        mapped_loss=mapped,
    )


def _clip(update: LiveUpdate, reading: Reading) -> float:
    """Clips as the plain loop does and returns the factor; left out where torch would multiply by one.

    torch decides in the norm's own dtype, so within its precision of the limit it is asked instead of predicted.
    """
    limit = update.update.clip_norm
    if limit is not None and reading.total is not None:
        margin = max(1e-6, 4.0 * torch.finfo(reading.total.dtype).eps)
        if reading.norm + 1e-6 <= limit * (1.0 - margin):
            return 1.0
        torch.nn.utils.clip_grads_with_norm_(update.parameters, limit, reading.total)
        return min(1.0, limit / (reading.norm + 1e-6))
    if update.update.clip_value is not None:
        torch.nn.utils.clip_grad_value_(update.parameters, update.update.clip_value)
    return 1.0


def _how_clipped(update: Update, factor: float) -> str:
    if update.clip_value is not None:
        return "by value"
    return "" if factor < 1.0 else "left out"


def _update_scale(run: GuardedRun, step: int) -> Generator[Phase, Any, None]:
    """`GradScaler.update`, if anything was unscaled; found_inf of any update backs the scale off, once."""
    if run.scaler is None or run.mirror is None or not run.unscaled:
        yield Phase(step, None, "update_scale", note="no scaler" if run.scaler is None else "nothing was unscaled")
        return
    run.scaler.update()
    run.mirror = run.mirror.updated(any(run.unscaled))
    run.unscaled.clear()
    values = {"scale": run.scale, "growth_tracker": float(run.mirror.growth_tracker)}
    yield Phase(step, None, "update_scale", values=values)


def _step_scheduler(run: GuardedRun, update: LiveUpdate, record: UpdateRecord) -> Generator[Phase, Any, None]:
    scheduler = update.update.scheduler
    if scheduler is None or run.applied[update.name] % update.update.scheduler_every:
        return
    with user_code("scheduler", step=record.step, update=update.name):
        scheduler.step(*([record.loss] if update.facts.scheduler_sees_loss else []))
    note = f"{update.facts.scheduler} got the window's mean loss" if update.facts.scheduler_sees_loss else ""
    rate = update.update.optimizer.param_groups[0].get("lr")
    # a rate that is a tensor is read with the next update's numbers: asking for it here would cost a transfer
    values = (
        {"learning_rate": float(rate)} if isinstance(rate, float | int) or (run.stepping and rate is not None) else {}
    )
    yield Phase(record.step, update.name, "scheduler", values=values, note=note)


def _shown(decided: Reading | UpdateRecord) -> Mapping[str, float]:
    return {"loss": decided.loss, "norm": decided.norm, "scale": decided.scale}
