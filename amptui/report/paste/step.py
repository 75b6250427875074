"""The training step itself, as straight-line code: one block for each update, then the scale, then the schedulers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from amptui.protocol.facts import UpdateFacts
from amptui.report.paste.helpers import forward_context
from amptui.report.paste.plan import Plan, literal

Lines = Sequence[str]


def train_step(plan: Plan) -> Lines:
    body = _single(plan) if plan.single else _several(plan)
    return [f"def train_step({', '.join(_arguments(plan))}):", *_indented([*_docstring(plan), *body])]


def uses_fmean(plan: Plan) -> bool:
    """Whether a scheduler is given the mean of several losses as a Python float."""
    return plan.accumulate > 1 and any(update.scheduler_sees_loss for update in plan.scheduled)


def _arguments(plan: Plan) -> list[str]:
    each = "" if plan.single else "s"
    arguments = ["step"] if any(update.every > 1 for update in plan.updates) else []
    arguments += ["batches" if plan.accumulate > 1 else "batch", "model", f"loss_function{each}", f"optimizer{each}"]
    if plan.scheduled:
        arguments.append(f"scheduler{each}")
    if plan.scaler is not None:
        arguments.append("scaler")
    if plan.counts_applied:
        arguments.append("applied_updates")
    return arguments


def _docstring(plan: Plan) -> Lines:
    window = f"a window of {plan.accumulate} batches" if plan.accumulate > 1 else "one batch"
    loss = "mean loss" if plan.accumulate > 1 else "loss"
    lines = [f'"""One iteration on {window}. Returns {f"the {loss}" if plan.single else f"each {loss} by name"}.', ""]
    if any(update.every > 1 for update in plan.updates):
        lines.append("`step` counts the iterations from 0.")
    if not plan.single:
        names = ", ".join(_in_docstring(update.name) for update in plan.updates)
        lines.append(f"Loss functions and optimizers are mappings with the keys {names}.")
    lines.append("`loss_function(model, batch)` is forward and loss only, its result undivided.")
    if plan.counts_applied:
        lines.append("`applied_updates` maps each update's name to 0 when the run begins.")
    return [*lines, '"""']


def _in_docstring(name: str) -> str:
    """A name that ends no docstring and escapes nothing in it."""
    return literal(name).replace("\\", "\\\\").replace('"', "'")


# One update.


def _single(plan: Plan) -> Lines:
    [update] = plan.updates
    lines: list[str] = []
    if update.every > 1:
        lines += [f"if step % {update.every}:", "    return None"]
    lines += _prepared(plan, update)
    lines += _gradients(plan, update, explained=True)
    mean = _mean(plan, update)
    if update.scheduler_sees_loss:
        lines.append(f"mean = {mean}")
        mean = "mean"
    if update.name in plan.idle:
        lines += ["if all(p.grad is None for p in parameters):", f"    return {mean}  # nothing to step with"]
    lines += _unscaled_and_clipped(plan, update, explained=True)
    if plan.scaler is None:
        lines += ["optimizer.step()", *_scheduled(plan, update, "scheduler")]
        return [*lines, f"return {mean}"]
    if plan.asks_scaler:
        lines += [
            "applied = not found_inf(scaler, optimizer)",
            "if applied:",
            "    scaler.step(optimizer)",
            "scaler.update()",
        ]
    elif plan.watches_scale:
        lines += [
            "scaler.step(optimizer)  # leaves the weights alone if a gradient is not finite",
            "scale = scaler.get_scale()",
            "scaler.update()",
            "applied = scaler.get_scale() >= scale  # it falls exactly where the update was skipped",
        ]
    else:
        lines += ["scaler.step(optimizer)  # leaves the weights alone if a gradient is not finite", "scaler.update()"]
    schedule = _scheduled(plan, update, "scheduler")
    if schedule:
        lines += ["if applied:  # the schedule follows the updates that were made", *_indented(schedule)]
    if plan.rollback:
        lines += ["else:" if schedule else "if not applied:", "    put_back(buffers)"]
    return [*lines, f"return {mean}"]


# Several updates.


def _several(plan: Plan) -> Lines:
    lines = ["means = {}"]
    if plan.scheduled:
        lines.append("applied = []")
    if _may_be_idle(plan):
        lines.append("unscaled = False")
    for number, update in enumerate(plan.updates):
        block = _block(plan, update, explained=number == 0)
        lines.append("")
        if update.every > 1:
            block = [f"if step % {update.every} == 0:", *_indented(block)]
        lines += block
    lines.append("")
    if plan.scaler is not None:
        told = "  # once, after all optimizers"
        lines += ["if unscaled:", f"    scaler.update(){told}"] if _may_be_idle(plan) else [f"scaler.update(){told}"]
    for update in plan.scheduled:
        schedule = _scheduled(plan, update, f"schedulers[{literal(update.name)}]")
        lines += [f"if {literal(update.name)} in applied:", *_indented(schedule)]
    return [*lines, "return means"]


def _may_be_idle(plan: Plan) -> bool:
    """Whether an iteration may unscale nothing; `GradScaler.update` refuses that."""
    always = any(update.every == 1 and update.name not in plan.idle for update in plan.updates)
    return plan.scaler is not None and not always


def _block(plan: Plan, update: UpdateFacts, *, explained: bool) -> Lines:
    name = literal(update.name)
    lines = [f"optimizer, loss_function = optimizers[{name}], loss_functions[{name}]"]
    lines += _prepared(plan, update)
    lines += _gradients(plan, update, explained=explained)
    lines.append(f"means[{name}] = {_mean(plan, update)}")
    taken = list(_unscaled_and_clipped(plan, update, explained=explained))
    if _may_be_idle(plan):
        taken.append("unscaled = True")
    stepped = ["optimizer.step()" if plan.scaler is None else "scaler.step(optimizer)"]
    if update.scheduler is not None:
        stepped.append(f"applied.append({name})")
    if plan.asks_scaler:
        taken += ["if not found_inf(scaler, optimizer):", *_indented(stepped)]
        taken += ["else:", "    put_back(buffers)"] if plan.rollback else []
    else:
        taken += stepped
    if update.name in plan.idle:
        taken = ["if any(p.grad is not None for p in parameters):", *_indented(taken)]
    return [*lines, *taken]


# Parts of both.


def _prepared(plan: Plan, update: UpdateFacts) -> Lines:
    lines = []
    if _clipping(update) or update.name in plan.idle:
        lines.append('parameters = [p for group in optimizer.param_groups for p in group["params"]]')
    if plan.rollback:
        lines.append("buffers = saved_buffers(model)")
    return [*lines, "optimizer.zero_grad(set_to_none=True)"]


def _gradients(plan: Plan, update: UpdateFacts, *, explained: bool) -> Lines:
    call = "loss_function(model, batch)" + ('["loss"]' if update.name in plan.mapped else "")
    context = forward_context(plan)
    why = "  # forward and loss only, no backward" if explained else ""
    lines = [f"with {context}:{why}", f"    loss = {call}"] if context else [f"loss = {call}"]
    divided = update.accumulate > 1 and update.reduce == "mean"
    driving = f"loss / {update.accumulate}" if divided else "loss"
    if plan.scaler is not None:
        backward = f"scaler.scale({driving}).backward()"
    else:
        backward = f"({driving}).backward()" if divided else "loss.backward()"
    if update.accumulate == 1:
        return [*lines, backward]
    return ["losses = []", "for batch in batches:", *_indented([*lines, "losses.append(loss.detach())", backward])]


def _unscaled_and_clipped(plan: Plan, update: UpdateFacts, *, explained: bool) -> Lines:
    clip = _clipping(update)
    if plan.scaler is None:
        return clip
    why = "  # before clipping: the limit is one for true gradients" if explained and clip else ""
    needed = clip or plan.asks_scaler or _may_be_idle(plan)  # otherwise `scaler.step` does it
    return [f"scaler.unscale_(optimizer){why}", *clip] if needed else clip


def _clipping(update: UpdateFacts) -> Lines:
    """An infinite limit, written to measure the norm, clips nothing."""
    limits = {"clip_grad_norm_": update.clip_norm, "clip_grad_value_": update.clip_value}
    return [
        f"torch.nn.utils.{clip}(parameters, {float(limit)!r})"
        for clip, limit in limits.items()
        if limit is not None and math.isfinite(limit)
    ]


def _scheduled(plan: Plan, update: UpdateFacts, scheduler: str) -> Lines:
    """What follows an applied update."""
    if update.scheduler is None:
        return []
    mean = "mean" if plan.single else f"means[{literal(update.name)}]"
    call = f"{scheduler}.step({mean if update.scheduler_sees_loss else ''})"
    if not plan.counts_applied:
        return [call]
    count = f"applied_updates[{literal(update.name)}]"
    if update.scheduler_every == 1:
        return [f"{count} += 1", call]
    return [f"{count} += 1", f"if {count} % {update.scheduler_every} == 0:", f"    {call}"]


def _mean(plan: Plan, update: UpdateFacts) -> str:
    """The mean loss of the window: as a Python float where a scheduler compares it, else as it lies on the device."""
    if update.scheduler_sees_loss:
        return "fmean(map(float, losses))" if plan.accumulate > 1 else "float(loss.detach())"
    return "torch.stack(losses).mean()" if plan.accumulate > 1 else "loss.detach()"


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" if line else "" for line in lines]
