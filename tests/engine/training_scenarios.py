"""Small training runs, each with something that a snapshot or a checkpoint could lose.

A scenario is a function without arguments that builds the same objects in any process, and gives the training state
with a function that takes one training step and returns its loss.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop, lr_scheduler

from amptui.engine.snapshot import Snapshot, TrainingState

Scenario = Callable[[], tuple[TrainingState, Callable[[], float]]]


class Net(nn.Module):
    """Batch norm, dropout, and buffers of every kind: non-persistent, None, counting, growing with use."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(3, 4)
        self.register_buffer("scale", torch.ones(3), persistent=False)
        self.register_buffer("nothing", None)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("history", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        self.history = torch.cat([self.history, x.mean().detach().reshape(1)])
        self.scale.mul_(0.99)
        return self.head(self.drop(self.norm(self.conv(x)).mean((2, 3)) * self.scale))


def _step_of(state: TrainingState) -> Callable[[], float]:
    net, optimizer = state.modules[""], state.optimizers["main"]
    scheduler = state.schedulers.get("main")

    def step() -> float:
        x = torch.randn(4, 1, 6, 6) + random.random() + float(np.random.rand())
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(loss.item())
        elif scheduler is not None:
            scheduler.step()
        return loss.item()

    return step


def _seeded() -> None:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)


def _with(optimizer: Callable[[Any], torch.optim.Optimizer], scheduler: Callable[[Any], Any] | None = None) -> Scenario:
    def build() -> tuple[TrainingState, Callable[[], float]]:
        _seeded()
        net = Net()
        chosen = optimizer(net.parameters())
        schedulers = {} if scheduler is None else {"main": scheduler(chosen)}
        state = TrainingState({"": net}, {"main": chosen}, schedulers)
        return state, _step_of(state)

    return build


def _tied() -> tuple[TrainingState, Callable[[], float]]:
    """One weight under two names, one module under two names, a frozen parameter, a submodule in eval mode."""
    _seeded()
    net = nn.ModuleDict({"embed": nn.Embedding(5, 4), "out": nn.Linear(4, 5, bias=False), "norm": nn.BatchNorm1d(4)})
    net["again"] = net["norm"]
    net["out"].weight = net["embed"].weight
    net["frozen"] = nn.Linear(4, 4).requires_grad_(False)
    net["norm"].eval()
    optimizer = AdamW([p for p in net.parameters() if p.requires_grad], lr=0.01, amsgrad=True)
    state = TrainingState({"": net}, {"main": optimizer})

    def step() -> float:
        tokens = torch.randint(0, 5, (6,))
        optimizer.zero_grad()
        hidden = net["again"](net["norm"](net["frozen"](net["embed"](tokens))))
        loss = nn.functional.cross_entropy(net["out"](hidden), tokens)
        loss.backward()
        optimizer.step()
        return loss.item()

    return state, step


class Ema:
    """An extra object whose state_dict hands out its live tensors, and whose load keeps what it is given."""

    def __init__(self, net: nn.Module) -> None:
        self.shadow = {name: p.detach().clone() for name, p in net.named_parameters()}

    def update(self, net: nn.Module) -> None:
        for name, p in net.named_parameters():
            self.shadow[name].lerp_(p.detach(), 0.1)

    def state_dict(self) -> dict[str, Any]:
        return {"shadow": self.shadow, "decay": np.float32(0.1)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.shadow = state["shadow"]


class Sampler:
    """An extra object with get_state and set_state, whose state holds NumPy arrays."""

    def __init__(self) -> None:
        self.random = np.random.RandomState(3)
        self.order = self.random.permutation(8).astype(np.uint16)

    def draw(self) -> int:
        self.order = np.roll(self.order, 1)
        return int(self.random.randint(8)) + int(self.order[0])

    def get_state(self) -> dict[str, Any]:
        return {"random": self.random.get_state(), "order": self.order}

    def set_state(self, state: dict[str, Any]) -> None:
        self.random.set_state(state["random"])
        self.order = state["order"]


def _gan() -> tuple[TrainingState, Callable[[], float]]:
    """Two modules and optimizers, and extra objects of every kind: EMA, averaged module, sampler, own generator."""
    _seeded()
    modules = {
        "generator": nn.Linear(2, 3),
        "critic": nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)),
    }
    optimizers = {
        "generator": RMSprop(modules["generator"].parameters(), lr=0.01, momentum=0.5, centered=True),
        "critic": Adam(modules["critic"].parameters(), lr=torch.tensor(0.01), foreach=False),
    }
    ema, averaged = Ema(modules["generator"]), torch.optim.swa_utils.AveragedModel(modules["critic"], use_buffers=True)
    own, sampler = torch.Generator().manual_seed(5), Sampler()
    extra = {"ema": ema, "averaged": averaged, "own": own, "sampler": sampler}
    state = TrainingState(modules, optimizers, {}, extra)

    def step() -> float:
        total = 0.0
        for name in ("critic", "generator"):
            optimizers[name].zero_grad()
            noise = torch.randn(4, 2, generator=own) + sampler.draw()
            score = modules["critic"](modules["generator"](noise)).square().mean()
            score.backward()
            optimizers[name].step()
            total += score.item()
        ema.update(modules["generator"])
        averaged.update_parameters(modules["critic"])
        return total + sum(float(value.sum()) for value in ema.shadow.values())

    return state, step


class Odd(nn.Module):
    """Tensors of every shape and dtype that a naive copy or file would get wrong."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        payload = torch.tensor([0x7FC00001, 0x7F800001 - 2**32, -1, 0x7F800000], dtype=torch.int64).to(torch.int32)
        self.expanded = nn.Parameter(torch.randn(3, 1, generator=generator).expand(3, 4))
        self.transposed = nn.Parameter(torch.randn(4, 5, generator=generator).t())
        self.strided = nn.Parameter(torch.randn(8, 6, generator=generator)[::2, 1:4])
        self.last = nn.Parameter(torch.randn(2, 3, 4, 4, generator=generator).to(memory_format=torch.channels_last))
        self.scalar = nn.Parameter(torch.randn((), generator=generator))
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.narrow = nn.Parameter(torch.randn(7, generator=generator).to(torch.bfloat16))
        self.register_buffer("nan_bits", payload.view(torch.float32))
        self.register_buffer("minus_zero", torch.tensor([-0.0, 0.0]))
        self.register_buffer("phase", torch.randn(3, dtype=torch.complex64, generator=generator))
        self.register_buffer("flipped", torch.randn(3, dtype=torch.complex64, generator=generator).conj())
        self.register_buffer("wide", torch.randn(3, dtype=torch.float64, generator=generator))
        self.register_buffer("small", torch.randint(0, 255, (3, 3), generator=generator).to(torch.uint8))
        self.register_buffer("flag", torch.tensor([True, False]))
        self.register_buffer("float8", torch.randn(5, generator=generator).to(torch.float8_e4m3fn))
        self.register_buffer("sparse", torch.eye(3).to_sparse(), persistent=False)
        self.register_buffer("windows", torch.arange(6.0).unfold(0, 3, 1))
        self.register_buffer("part", self.wide[1:])

    def forward(self) -> Tensor:
        self.phase.mul_(1.5)
        self.small += 1
        self.wide.add_(0.25)
        self.flag.logical_not_()
        self.nan_bits[3:].mul_(-1)
        self.minus_zero.neg_()
        self.float8.copy_((self.float8.float() * 0.5).to(torch.float8_e4m3fn))
        self.sparse = (self.sparse * 2).coalesce()
        parts = [self.transposed, self.strided, self.last, self.scalar, self.narrow.float()]
        return sum(part.square().sum() for part in parts) + self.empty.sum()


def _odd() -> tuple[TrainingState, Callable[[], float]]:
    _seeded()
    net = Odd()
    optimizer = SGD([p for name, p in net.named_parameters() if name != "expanded"], lr=0.01, momentum=0.9)
    state = TrainingState({"": net}, {"main": optimizer})

    def step() -> float:
        optimizer.zero_grad()
        loss = net()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            net.expanded[:, 0].add_(1.0)
        return loss.item()

    return state, step


def _adamw(parameters: Any) -> AdamW:
    return AdamW(parameters, lr=0.01)


def _sgd(parameters: Any) -> SGD:
    return SGD(parameters, lr=0.05, momentum=0.9, nesterov=True)


OPTIMIZERS: dict[str, Scenario] = {
    "sgd with momentum": _with(_sgd),
    "sgd without state": _with(lambda p: SGD(p, lr=0.05)),
    "fused sgd": _with(lambda p: SGD(p, lr=0.05, momentum=0.9, fused=True)),
    "adamw": _with(_adamw),
    "fused adamw": _with(lambda p: AdamW(p, lr=0.01, fused=True)),
    "foreach adam": _with(lambda p: Adam(p, lr=0.01, foreach=True)),
    "adagrad": _with(lambda p: Adagrad(p, lr=0.05)),
}

SCHEDULERS: dict[str, Scenario] = {
    "StepLR": _with(_sgd, lambda o: lr_scheduler.StepLR(o, 2, 0.5)),
    "MultiStepLR": _with(_sgd, lambda o: lr_scheduler.MultiStepLR(o, [1, 3, 4])),
    "LambdaLR": _with(_sgd, lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step)),
    "CosineAnnealingWarmRestarts": _with(_adamw, lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2, 2)),
    "OneCycleLR": _with(_adamw, lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20)),
    "CyclicLR": _with(_sgd, lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2)),
    "ReduceLROnPlateau": _with(_adamw, lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, threshold=0.5)),
    "SequentialLR": _with(
        _adamw,
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.1, total_iters=2), lr_scheduler.CosineAnnealingLR(o, 9)], [2]
        ),
    ),
    "ChainedScheduler": _with(
        _sgd,
        lambda o: lr_scheduler.ChainedScheduler(
            [lr_scheduler.ExponentialLR(o, 0.9), lr_scheduler.ConstantLR(o, 0.5)], o
        ),
    ),
}

SCENARIOS: dict[str, Scenario] = {
    **OPTIMIZERS,
    **SCHEDULERS,
    "tied weights": _tied,
    "two models and extra state": _gan,
    "odd tensors": _odd,
}


def run(step: Callable[[], float], steps: int) -> list[str]:
    """The losses of `steps` training steps, every bit of them."""
    return [step().hex() for _ in range(steps)]


def digest(state: TrainingState) -> str:
    """SHA-256 over every tensor, value and generator of a training state."""
    snapshot, whole = Snapshot.take(state), hashlib.sha256()
    for path, value in snapshot._leaves():
        whole.update(path.encode())
        if isinstance(value, Tensor):
            tensor = value.to_dense() if value.layout != torch.strided else value
            whole.update(str((tensor.dtype, tuple(tensor.shape))).encode())
            flat = tensor.resolve_conj().contiguous().reshape(-1)
            whole.update(bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b"")
        elif isinstance(value, np.ndarray):
            whole.update(value.tobytes())
        else:
            whole.update(repr(value).encode())
    whole.update(repr(snapshot.rng.python).encode())
    whole.update(bytes(snapshot.rng.torch_cpu.tolist()))
    return whole.hexdigest()
