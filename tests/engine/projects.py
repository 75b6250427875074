"""Small projects for the engine's tests, and a plain AMP loop written by hand to hold the engine against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from amptui import Case, Policy, Project, Scaler, Update
from amptui.engine.course import run_stretch
from amptui.engine.iteration import Choice, GuardedRun, Phase
from amptui.engine.live import LiveProject
from amptui.engine.opening import open_project
from amptui.engine.tape import RngTape
from amptui.protocol.facts import IterationRecord


class Net(nn.Module):
    """Dropout and BatchNorm, so that RNG and buffers take part."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.enter = nn.Linear(6, width)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.25)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(torch.relu(self.norm(self.enter(x)))))


Batch = tuple[Tensor, Tensor, float]


def batches(count: int, *, bad: Iterable[int] = (), factor: float = 1e6, seed: int = 3) -> list[Batch]:
    """`count` batches; the loss of those in `bad` is multiplied so that its gradient overflows float16."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for index in range(count):
        x = torch.randn(8, 6, generator=generator)
        made.append((x, x.sum(1, keepdim=True), factor if index in set(bad) else 1.0))
    return made


def weighted_loss(model: nn.Module, batch: Batch) -> Tensor:
    x, y, weight = batch
    return ((model(x) - y).float() ** 2).mean() * weight


def full_project(bad: tuple[int, ...] = (), **how: Any) -> Project:
    """A net with dropout, BatchNorm, momentum and a schedule: everything that a way back must bring back."""
    torch.manual_seed(4)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    update = Update(
        optimizer=optimizer,
        loss=weighted_loss,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 2),
    )
    how.setdefault("policy", Policy(scaler=Scaler(init_scale=1024.0)))
    return Project(
        model=model,
        updates=[update],
        batches=batches(8, bad=bad),
        cases=[Case(id="a", inputs=torch.randn(3, 6))],
        **how,
    )


def opened(project: Project, folder: Path) -> LiveProject:
    return open_project(project, device=None, iterations=None, folder=folder, on_progress=lambda done, total: None)


@dataclass
class Guarded:
    """What a guarded pass left behind."""

    run: GuardedRun
    records: list[IterationRecord] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)


def guarded(
    live: LiveProject,
    policy: Policy,
    *,
    mixed: bool = True,
    stepping: bool = False,
    on_phase: Callable[[Phase], Choice | None] = lambda phase: None,
    iterations: int | None = None,
) -> Guarded:
    """The whole stretch under the guard."""
    left = Guarded(GuardedRun(live, policy, mixed=mixed, tape=RngTape(), stepping=stepping))

    def note(phase: Phase) -> Choice | None:
        left.phases.append(phase)
        return on_phase(phase)

    run_stretch(left.run, iterations or live.batches.iterations, on_phase=note, on_record=left.records.append)
    return left


def plain_amp_loop(
    model: Any,
    updates: Sequence[Update],
    data: Sequence[Batch],
    *,
    dtype: torch.dtype,
    scaler: Scaler | None,
    autocast: bool = True,
) -> torch.amp.GradScaler | None:
    """The AMP loop as PyTorch's documentation writes it, for several updates, with per-optimizer skips for schedulers.

    A step without a scaler is always taken.
    """
    accumulate = updates[0].accumulate
    grad_scaler = None
    if scaler is not None:
        grad_scaler = torch.amp.GradScaler(
            "cpu",
            init_scale=scaler.init_scale,
            growth_factor=scaler.growth_factor,
            backoff_factor=scaler.backoff_factor,
            growth_interval=scaler.growth_interval,
        )
    for start in range(0, len(data) - accumulate + 1, accumulate):
        step = start // accumulate
        stepped = []
        for update in updates:
            if step % update.every:
                continue
            parameters = [p for group in update.optimizer.param_groups for p in group["params"]]
            update.optimizer.zero_grad(set_to_none=True)
            for batch in data[start : start + accumulate]:
                with torch.autocast("cpu", dtype=dtype, enabled=autocast):
                    loss = update.loss(model, batch)
                    if accumulate > 1:
                        loss = loss / accumulate
                (grad_scaler.scale(loss) if grad_scaler is not None else loss).backward()
            found_inf = False
            if grad_scaler is not None:
                grad_scaler.unscale_(update.optimizer)
                found_inf = any(bool(v) for v in grad_scaler._found_inf_per_device(update.optimizer).values())
            if update.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, update.clip_norm)
            if update.clip_value is not None:
                torch.nn.utils.clip_grad_value_(parameters, update.clip_value)
            if grad_scaler is not None:
                grad_scaler.step(update.optimizer)
            else:
                update.optimizer.step()
            if not found_inf:
                stepped.append(update)
        if grad_scaler is not None:
            grad_scaler.update()
        for update in stepped:
            if update.scheduler is not None:
                update.scheduler.step()
    return grad_scaler


def state_of(model: Any, updates: Sequence[Update]) -> dict[str, Tensor]:
    """Weights, buffers and every tensor of the optimizers' state, by name."""
    modules = model if isinstance(model, dict) else {"": model}
    found: dict[str, Tensor] = {}
    for key, module in modules.items():
        for name, tensor in module.state_dict().items():
            found[f"{key}.{name}"] = tensor
    for update in updates:
        for index, state in update.optimizer.state_dict()["state"].items():
            for name, value in state.items():
                if isinstance(value, Tensor):
                    found[f"{update.name}.{index}.{name}"] = value
    return found


def assert_same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        twin = other[name]
        assert tensor.dtype == twin.dtype
        assert tensor.shape == twin.shape, name
        same = torch.equal(tensor.nan_to_num(7.0), twin.nan_to_num(7.0)) and torch.equal(tensor.isnan(), twin.isnan())
        assert same, f"{name} differs: {tensor} {twin}"
