"""From a loaded `Project` to live objects: checked, moved to the device, batches and cases frozen."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import getattr_static
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from amptui.engine.batches import Source, draw, freeze
from amptui.engine.failures import defined_at, user_code
from amptui.engine.live import LiveProject, LiveUpdate, named_parameters, optimizer_parameters
from amptui.engine.nested import copied, hashed, tensor_bytes
from amptui.engine.refusals import Refusal, check_anything_to_judge, check_cases, check_modules, check_updates
from amptui.engine.regions import region_modules
from amptui.engine.snapshot import TrainingState
from amptui.engine.tracing.source import is_file_of_user
from amptui.findings.words import counted
from amptui.project import Case, Project, Update
from amptui.protocol.facts import CaseFacts, Digests, ModuleFacts, UpdateFacts


def open_project(
    project: Project,
    *,
    device: str | None,
    iterations: int | None,
    folder: Path,
    on_progress: Callable[[int, int], object],
    title: str = "project",
    regions: Sequence[str] = (),
) -> LiveProject:
    """Checks, moves and freezes; `title` is the name of a project that has none, `regions` are to run in FP32.

    Raises `Refusal`, `RegionError`, or `UserCodeError` where batches or cases raise.
    """
    modules = check_modules(project.model)
    region_modules(modules, regions)
    check_updates(project, modules)
    cases = _cases(project)
    check_cases(cases)
    check_anything_to_judge(project, cases)
    target = _device(device)
    if target is not None:
        _move(project, modules, target)
    home = target or _device_of(modules)
    frozen_cases = tuple(dataclasses.replace(case, inputs=copied(case.inputs, target)) for case in cases)
    updates = tuple(_live(update, modules) for update in project.updates)
    accumulate = updates[0].update.accumulate if updates else 1
    batches = freeze(
        _drawn(project.batches if updates else (), accumulate, iterations or project.iterations, on_progress),
        accumulate=accumulate,
        device=target,
        folder=folder,
    )
    if updates and not batches.iterations:
        raise Refusal(
            "no-batches",
            f"{counted(batches.remainder, 'batch makes', 'batches make')} no whole window of {accumulate}",
            hint="give Project(batches=…) at least one window; a generator that is already used up gives none: "
            "pass a list, or a function that makes a fresh one",
        )
    return LiveProject(
        project=project,
        name=project.name or title,
        modules=modules,
        updates=updates,
        batches=batches,
        cases=frozen_cases,
        device=home,
        state=TrainingState(
            modules=modules,
            optimizers={update.name: update.update.optimizer for update in updates},
            schedulers={u.name: u.update.scheduler for u in updates if u.update.scheduler is not None},
            extra=dict(project.extra_state or {}),
        ),
    )


def _drawn(
    source: Source, accumulate: int, iterations: int | None, on_progress: Callable[[int, int], object]
) -> Iterator[Any]:
    """The project's batches; what raises while they are drawn is the project's own code."""
    end = object()
    with user_code("batches"):
        batches = draw(source, accumulate=accumulate, iterations=iterations, on_progress=on_progress)
    while True:
        with user_code("batches"):
            batch = next(batches, end)
        if batch is end:
            return
        yield batch


def _cases(project: Project) -> tuple[Case, ...]:
    source = project.cases
    with user_code("cases"):
        return tuple(source() if callable(source) and not isinstance(source, Iterable) else source)


def _device(name: str | None) -> torch.device | None:
    if name is None:
        return None
    try:
        device = torch.empty(0, device=torch.device(name)).device  # `cuda` becomes `cuda:0`
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise _no_device(name, str(error).splitlines()[0]) from error
    if device.type == "meta":
        raise _no_device(name, "its tensors hold no values")
    return device


def _no_device(name: str, why: str) -> Refusal:
    return Refusal(
        "device",
        f"the device {name!r} cannot be used: {why}",
        hint="choose another one with --device, such as cpu or cuda:0",
    )


def _device_of(modules: Mapping[str, nn.Module]) -> torch.device:
    """The device of the first parameter or buffer; an accelerator before the CPU where a model uses both."""
    devices = [t.device for m in modules.values() for t in (*m.parameters(), *m.buffers())]
    return next((d for d in devices if d.type != "cpu"), devices[0] if devices else torch.device("cpu"))


def _move(project: Project, modules: Mapping[str, nn.Module], device: torch.device) -> None:
    """Moves modules in place, those of `extra_state` too, and the optimizers' state as torch keeps it."""
    extra = [value for value in (project.extra_state or {}).values() if isinstance(value, nn.Module)]
    for module in (*modules.values(), *extra):
        module.to(device)
    for update in project.updates:
        for group in update.optimizer.param_groups:
            on_device = bool(group.get("capturable")) or bool(group.get("fused"))
            for parameter in group["params"]:
                for key, value in update.optimizer.state.get(parameter, {}).items():
                    # the step counter of an optimizer that is neither fused nor capturable belongs on the CPU
                    if isinstance(value, torch.Tensor) and (key != "step" or on_device):
                        update.optimizer.state[parameter][key] = value.to(device)


def _live(update: Update, modules: Mapping[str, nn.Module]) -> LiveUpdate:
    names = {id(p): name for name, p in named_parameters(modules).items()}
    parameters = tuple(optimizer_parameters(update.optimizer))
    optimizer = update.optimizer
    facts = UpdateFacts(
        name=update.name,
        optimizer=type(optimizer).__name__,
        fused=any(bool(group.get("fused")) for group in optimizer.param_groups),
        parameters=sum(p.numel() for p in parameters),
        layers=tuple(names[id(p)] for p in parameters),
        loss_at=defined_at(update.loss),
        scheduler=type(update.scheduler).__name__ if update.scheduler is not None else None,
        scheduler_sees_loss=isinstance(update.scheduler, ReduceLROnPlateau),
        scheduler_every=update.scheduler_every,
        every=update.every,
        accumulate=update.accumulate,
        reduce=update.reduce,
        clip_norm=update.clip_norm,
        clip_value=update.clip_value,
    )
    return LiveUpdate(update, parameters, facts)


def module_facts(live: LiveProject) -> tuple[ModuleFacts, ...]:
    return tuple(
        ModuleFacts(
            path=path,
            type=type(module).__name__,
            parameters=sum(p.numel() for p in module.parameters(recurse=False)),
            training=module.training,
        )
        for path, module in live.named_modules().items()
    )


def case_facts(live: LiveProject) -> tuple[CaseFacts, ...]:
    return tuple(
        CaseFacts(id=case.id, index=index, tag=case.tag, has_target=case.target is not None)
        for index, case in enumerate(live.cases)
    )


def digests(live: LiveProject, sources: Mapping[str, str]) -> Digests:
    """SHA-256 of weights and buffers, cases, batches, and of the user's source files."""
    weights = hashlib.sha256()
    for name, tensor in sorted({**dict(named_parameters(live.modules)), **live.buffers()}.items()):
        weights.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
        weights.update(tensor_bytes(tensor))
    cases = hashlib.sha256()
    for case in live.cases:
        hashed((case.id, case.tag, case.inputs, case.target), cases)
    return Digests(
        weights=weights.hexdigest(), cases=cases.hexdigest(), batches=live.batches.digest, sources=dict(sources)
    )


def source_digests(live: LiveProject, sources: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the user's source files: those that were loaded for the project, and those of its functions."""
    functions: list[Any] = [u.update.loss for u in live.updates]
    functions += [live.project.decide, live.project.outputs, live.project.quality]
    functions += [getattr_static(type(module), "forward", None) for module in live.named_modules().values()]
    places = [place.rpartition(":")[0] for place in map(defined_at, filter(None, functions)) if place]
    found = {}
    for path in sorted({*sources, *filter(is_file_of_user, places)}):
        try:
            found[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        except OSError:
            continue  # defined in a notebook or by exec
    return found
