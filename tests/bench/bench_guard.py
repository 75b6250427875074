"""What the guard costs: the whole guarded iteration with its events, against the bare AMP step.

Variants run in random order within each round, in one process with one thread; a ratio is that of the two times of one
round, and the median over the rounds is printed with its quartiles. `bare against bare` is the noise. float32 without
autocast stands for fast hardware (the guard does the same work beside a step without slow half kernels); half
precision on a CPU would flatter the guard.

`after backward` is the guard by itself: what follows the last backward (unscale, reading, clip, step, scale, record and
event) beyond what follows it in the bare loop, as a share of the bare step. The ratio holds also what a trial does
before it: the batch copied, RNG and buffers kept.

Budget: 1 % after backward; a ratio of 1.02 plus the noise; one host transfer per update (plus GradScaler.step's own).
The 2 ms step is beyond both, and cannot be within: the event as JSON (50 µs), the copy of the batch and the generators
put back (80 µs) cost the same however short the step is. It stands here to show the fixed cost, about 0.3 ms.
"""

from __future__ import annotations

import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from amptui import Policy, Project, Scaler, Update
from amptui.engine import guard
from amptui.engine.course import run_iteration
from amptui.engine.iteration import GuardedRun, Phase
from amptui.engine.opening import open_project
from amptui.engine.tape import RngTape
from amptui.protocol.codec import encode
from amptui.protocol.events import IterationDone

ROUNDS = 200


class Deep(nn.Module):
    """200 parameter tensors, BatchNorm and dropout."""

    def __init__(self, width: int = 96, depth: int = 50) -> None:
        super().__init__()
        blocks = [
            nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1))
            for _ in range(depth)
        ]
        self.body = nn.Sequential(*blocks)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norms[1](x))


def transformer() -> tuple[nn.Module, Any]:
    model = nn.Sequential(*[Block(128) for _ in range(4)], nn.Linear(128, 1))
    return model, (torch.randn(8, 32, 128), torch.randn(8, 32, 1))


def mlp() -> tuple[nn.Module, Any]:
    return Deep(), (torch.randn(64, 96), torch.randn(64, 1))


def tiny() -> tuple[nn.Module, Any]:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(6)], nn.Linear(64, 1))
    return model, (torch.randn(256, 64), torch.randn(256, 1))


def loss(model: nn.Module, batch: Any) -> Tensor:
    return nn.functional.mse_loss(model(batch[0]), batch[1])


POLICY = Policy(autocast=False, scaler=Scaler(init_scale=1024.0))


#: A step gives the processor seconds of this thread at the end of its last backward.
Step = Callable[[], float]


def bare_step(make: Callable[[], tuple[nn.Module, Any]]) -> Step:
    model, batch = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    parameters = list(model.parameters())

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        value = loss(model, batch)
        scaler.scale(value).backward()
        backward_ended = time.thread_time()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(parameters, 1e6)
        scaler.step(optimizer)
        scaler.update()
        return backward_ended

    return step


def guarded_step(make: Callable[[], tuple[nn.Module, Any]], folder: Path) -> Step:
    model, batch = make()
    update = Update(optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4), loss=loss, clip_norm=1e6)
    project = Project(model=model, updates=[update], batches=[batch])
    live = open_project(project, device=None, iterations=None, folder=folder, on_progress=lambda *_: None)
    run = GuardedRun(live, POLICY, mixed=True, tape=RngTape())
    # As in a trial: the tape already holds the RNG state of each moment and gives it back.
    moments = itertools.cycle(range(8))
    backward_ended = 0.0

    def on_phase(phase: Phase) -> None:
        nonlocal backward_ended
        if phase.name == "backward":
            backward_ended = time.thread_time()

    def step() -> float:
        record = run_iteration(run, next(moments), on_phase)
        encode(IterationDone(run="trial", record=record))
        return backward_ended

    return step


#: Seconds of a whole step, and of what followed its last backward.
Times = dict[str, list[tuple[float, float]]]


def measure(make: Callable[[], tuple[nn.Module, Any]], folder: Path) -> Times:
    torch.manual_seed(0)
    variants = {"bare": bare_step(make), "bare again": bare_step(make), "guarded": guarded_step(make, folder)}
    for step in variants.values():
        for _ in range(8):
            step()
    times: Times = {name: [] for name in variants}
    for _ in range(ROUNDS):
        for name in random.sample(list(variants), len(variants)):
            started = time.thread_time()
            backward_ended = variants[name]()
            ended = time.thread_time()
            times[name].append((ended - started, ended - backward_ended))
    return times


def quartiles(ratios: list[float]) -> str:
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f} [{low:.3f}, {high:.3f}]"


def transfers(make: Callable[[], tuple[nn.Module, Any]], folder: Path) -> int:
    """Host transfers of the guard in one update, counted where it makes them."""
    step = guarded_step(make, folder)
    step()
    counted = 0
    original = guard.Guard._transfer

    def counting(self: guard.Guard, values: Any) -> list[float]:
        nonlocal counted
        counted += 1
        return original(self, values)

    guard.Guard._transfer = counting  # type: ignore[method-assign]
    try:
        step()
    finally:
        guard.Guard._transfer = original  # type: ignore[method-assign]
    return counted


def main() -> None:
    torch.set_num_threads(1)
    for name, make in {"mlp, 202 tensors": mlp, "transformer": transformer, "2 ms step": tiny}.items():
        with tempfile.TemporaryDirectory() as folder:
            times = measure(make, Path(folder))
            bare, again, ours = times["bare"], times["bare again"], times["guarded"]
            noise = [b / a for (a, _), (b, _) in zip(bare, again, strict=True)]
            ratio = [g / b for (b, _), (g, _) in zip(bare, ours, strict=True)]
            extra = [(tail - bare_tail) / b for (b, bare_tail), (_, tail) in zip(bare, ours, strict=True)]
            milliseconds = statistics.median(whole for whole, _ in bare) * 1e3
            print(
                f"{name}: bare step {milliseconds:.1f} ms; guarded / bare {quartiles(ratio)}; "
                f"bare / bare {quartiles(noise)}; after backward {statistics.median(extra):+.2%} of the step; "
                f"host transfers per update {transfers(make, Path(folder))}"
            )


if __name__ == "__main__":
    main()
