"""The account of stage 1: what was loaded, what it stands on, and what should be known before anything runs."""

from __future__ import annotations

from collections import Counter

from amptui.findings.words import counted
from amptui.project import TAGS
from amptui.protocol.events import CheckpointWritten, Probed, ProjectOpened, Remarked
from amptui.protocol.facts import Environment, UpdateFacts
from amptui.report.figures import figure, name, place, short_digest, size, words
from amptui.report.page import Page

#: Settings of float32 arithmetic that take no bits away.
_FULL = ("false", "none", "ieee", "highest")
_OF_ACCELERATORS = ("cuda", "cudnn", "fp16 reduced", "bf16 reduced")


def tell_project(page: Page, event: ProjectOpened) -> None:
    at = f" · {place(event.defined_at)}" if event.defined_at else ""
    modules, parameters = counted(len(event.modules), "module"), counted(event.parameters, "parameter")
    page.field("project", f"{name(event.name)}{at}")
    page.field("model", f"{modules} · {parameters}")
    for update in event.updates:
        page.field("update", _update(update))
    if event.updates:
        page.field("stretch", _stretch(event))
    else:
        page.field("stretch", "none: the project has no updates, its cases alone are judged")
    page.field("cases", _cases(event))
    page.field("device", _device(event.environment))
    page.field("versions", _versions(event.environment))
    reduced = _reduced_precision(event.environment)
    if reduced:
        page.field("precision", f"{reduced} · as found; off in the baseline, as found in the trial")


def _update(update: UpdateFacts) -> str:
    parts = [f"{name(update.name)}: {name(update.optimizer)}{' (fused)' if update.fused else ''}"]
    if update.clip_norm is not None:
        parts.append(f"norm clipped to {figure(float(update.clip_norm))}")
    if update.clip_value is not None:
        parts.append(f"values clipped to {figure(float(update.clip_value))}")
    if update.scheduler is not None:
        every = f" every {update.scheduler_every:,} applied updates" if update.scheduler_every > 1 else ""
        parts.append(f"{name(update.scheduler)}{every}")
    if update.accumulate > 1:
        parts.append(f"{update.reduce} of {update.accumulate:,} batches")
    if update.every > 1:
        parts.append(f"in one iteration of {update.every:,}")
    if update.loss_at:
        parts.append(f"loss at {place(update.loss_at)}")
    return " · ".join(parts)


def _stretch(event: ProjectOpened) -> str:
    window = event.updates[0].accumulate
    rest = f"; {counted(event.remainder, 'batch is', 'batches are')} left over and not run" if event.remainder else ""
    return f"{counted(event.iterations, 'iteration')} of {counted(window, 'batch', 'batches')}{rest}"


def _cases(event: ProjectOpened) -> str:
    if not event.cases:
        return "none: the training stretch alone is judged"
    by_tag = Counter(case.tag for case in event.cases)
    tags = [*(tag for tag in TAGS if tag in by_tag), *sorted(set(by_tag) - set(TAGS))]
    also = ["decisions"] * event.has_decide + ["quality"] * event.has_quality
    judged = f" · judged by outputs{''.join(f' and {what}' if what == also[-1] else f', {what}' for what in also)}"
    return f"{', '.join(f'{by_tag[tag]:,} {name(tag)}' for tag in tags)}{judged}"


def _device(environment: Environment) -> str:
    parts = [name(environment.device)]
    if environment.device_name:
        parts.append(name(environment.device_name))
    if environment.accelerator and not environment.device.startswith("cpu"):
        parts.append(name(environment.accelerator))
    parts.append(counted(environment.threads, "thread"))
    return " · ".join(parts)


def _versions(environment: Environment) -> str:
    numpy = f" · numpy {name(environment.numpy)}" if environment.numpy else ""
    commit = f" · commit {name(environment.git_commit[:10])}" if environment.git_commit else ""
    changed = " with changes" if environment.git_commit and environment.git_dirty else ""
    return f"torch {name(environment.torch)} · Python {name(environment.python)}{numpy}{commit}{changed}"


def _reduced_precision(environment: Environment) -> str:
    """The settings under which float32 arithmetic has fewer bits on this device."""
    cpu = environment.device.startswith("cpu")
    return ", ".join(
        name(key) if value == "True" else f"{name(key)} {name(value)}"
        for key, value in environment.precision.items()
        if value.strip().lower() not in _FULL and not (cpu and key.startswith(_OF_ACCELERATORS))
    )


def tell_checkpoint(page: Page, event: CheckpointWritten) -> None:
    page.field(
        "checkpoint",
        f"{counted(event.tensors, 'tensor')}, {size(event.bytes)}, saved and verified · SHA-256 "
        f"{short_digest(event.sha256)}",
        mark="ok",
    )


def tell_remark(page: Page, event: Remarked) -> None:
    page.marked("warn", words(event.message))
    if event.where:
        page.field("where", place(event.where))
    if event.advice:
        page.field("advice", words(event.advice))


def tell_probe(page: Page, event: Probed) -> None:
    if event.supported:
        page.field(name(event.dtype), "this device runs the project's operators under autocast", mark="ok")
        return
    page.field(name(event.dtype), f"fails here: {words(event.error or 'no reason is known')}", mark="fail")
    if event.where:
        page.field("where", place(event.where))
