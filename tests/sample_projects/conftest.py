"""Loads the sample projects and runs them in a plain PyTorch loop, without amptui's engine.

What the samples claim (accepted, rejected, how far apart) thus rests on torch alone; the engine is held to the same
claims by its own tests.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Project

SAMPLES = Path(__file__).parents[2] / "sample_projects"


@dataclass
class Trace:
    """One update's way through the stretch: a loss per iteration, whether it was applied, its first gradients."""

    losses: list[float] = field(default_factory=list)
    applied: list[bool] = field(default_factory=list)
    first_gradient: Tensor | None = None


@dataclass(frozen=True)
class Run:
    """Cases before the stretch, the stretch, and the cases after it, under one dtype."""

    project: Project
    before: list[Any]
    after: list[Any]
    updates: dict[str, Trace]


def load_sample(name: str) -> ModuleType:
    """The sample's Python file as a fresh module."""
    spec = importlib.util.spec_from_file_location(f"sample_{name}", SAMPLES / name / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def modules_of(project: Project) -> list[nn.Module]:
    """The project's modules, also where `model` is a mapping."""
    model: Any = project.model
    return [model] if isinstance(model, nn.Module) else list(model.values())


def autocast(dtype: torch.dtype) -> AbstractContextManager[Any]:
    """Autocast on the CPU, or nothing for float32."""
    return torch.autocast(
        "cpu", dtype=dtype if dtype is not torch.float32 else None, enabled=dtype is not torch.float32
    )


@contextmanager
def eval_mode(modules: list[nn.Module]) -> Iterator[None]:
    """Evaluation mode, then each submodule's own mode again."""
    modes = [(part, part.training) for module in modules for part in module.modules()]
    for part, _ in modes:
        part.training = False
    yield
    for part, training in modes:
        part.training = training


def evaluate(project: Project, dtype: torch.dtype) -> list[Any]:
    """A row per case, with outputs by name, decision and margin."""
    rows = []
    call: Callable[[Any, Any], Any] = project.outputs or (lambda model, inputs: model(inputs))
    with eval_mode(modules_of(project)), torch.no_grad(), autocast(dtype):
        for case in project.cases:
            outputs = call(project.model, case.inputs)
            decision, margin = project.decide(outputs) if project.decide else (None, None)
            named = outputs if isinstance(outputs, dict) else {"output": outputs}
            rows.append(
                SimpleNamespace(
                    id=case.id, tag=case.tag, target=case.target, outputs=named, decision=decision, margin=margin
                )
            )
    return rows


def train(project: Project, dtype: torch.dtype, iterations: int) -> dict[str, Trace]:
    """The plain AMP loop over the stretch, one random state per iteration, update and micro-batch."""
    window = project.updates[0].accumulate
    source = project.batches() if callable(project.batches) else project.batches
    batches = list(itertools.islice(source, iterations * window))
    scaler = torch.amp.GradScaler("cpu", enabled=dtype is torch.float16)
    traces = {update.name: Trace() for update in project.updates}
    for iteration in range(len(batches) // window):
        taken = []
        for number, update in enumerate(project.updates):
            if iteration % update.every:
                continue
            trace = traces[update.name]
            parameters = [p for group in update.optimizer.param_groups for p in group["params"]]
            update.optimizer.zero_grad()
            losses = []
            for micro, batch in enumerate(batches[iteration * window : (iteration + 1) * window]):
                torch.manual_seed(1000 * iteration + 10 * number + micro)
                with autocast(dtype):
                    loss = update.loss(project.model, batch)
                losses.append(loss.item())
                scaler.scale(loss / window).backward()
            scaler.unscale_(update.optimizer)
            gradient = torch.cat([p.grad.flatten() for p in parameters])
            if trace.first_gradient is None:
                trace.first_gradient = gradient
            if update.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, update.clip_norm)
            trace.losses.append(sum(losses) / window)
            trace.applied.append(bool(gradient.isfinite().all()))
            scaler.step(update.optimizer)
            taken.append((update, trace.applied[-1]))
        scaler.update()
        for update, applied in taken:
            if applied and update.scheduler is not None:
                update.scheduler.step()
    return traces


@functools.cache
def run_sample(name: str, dtype: torch.dtype, fp32_region: str | None = None) -> Run:
    """Build the sample and run its cases, its stretch and its cases again."""
    project = load_sample(name).project()
    if fp32_region is not None:
        keep_in_fp32(modules_of(project)[0].get_submodule(fp32_region))
    before = evaluate(project, dtype)
    traces = train(project, dtype, iterations=40 if callable(project.batches) else 10**6)
    return Run(project=project, before=before, after=evaluate(project, dtype), updates=traces)


def keep_in_fp32(module: nn.Module) -> None:
    """Run the module's forward with autocast off on float32 inputs."""
    forward = module.forward

    def in_fp32(*inputs: Tensor) -> Any:
        with torch.autocast("cpu", enabled=False):
            return forward(*(x.float() for x in inputs))

    module.forward = in_fp32  # type: ignore[method-assign]


def worst_use(base: list[Any], trial: list[Any], dtype: torch.dtype) -> float:
    """The largest share of |trial − base| ≤ 16·eps·(largest |base| of the output + |base|) that is used; NaN counts as
    infinite."""
    eps = torch.finfo(dtype).eps
    worst = 0.0
    for name in base[0].outputs:
        expected = [row.outputs[name].float() for row in base]
        found = [row.outputs[name].float() for row in trial]
        largest = max(x.abs().max().item() for x in expected)
        for x, y in zip(expected, found, strict=True):
            use = (y - x).abs() / (16 * eps * (largest + x.abs()))
            worst = max(worst, use.nan_to_num(nan=float("inf")).max().item())
    return worst


def gradient_error(base: Trace, trial: Trace) -> float:
    """The relative norm of the difference between the first gradients."""
    assert base.first_gradient is not None
    assert trial.first_gradient is not None
    return ((trial.first_gradient - base.first_gradient).norm() / base.first_gradient.norm()).item()


@pytest.fixture
def sample() -> Callable[[str], ModuleType]:
    """`sample(name)`: the sample's module, loaded afresh."""
    return load_sample


@pytest.fixture
def run() -> Callable[..., Run]:
    """`run(name, dtype, fp32_region=None)`: the plain loop's run of a sample, made once per process."""
    return run_sample


@pytest.fixture
def compare() -> SimpleNamespace:
    """`compare.worst_use(base, trial, dtype)` and `compare.gradient_error(base, trial)`."""
    return SimpleNamespace(worst_use=worst_use, gradient_error=gradient_error)


@pytest.fixture
def samples_folder() -> Path:
    """The folder that holds the sample projects."""
    return SAMPLES
