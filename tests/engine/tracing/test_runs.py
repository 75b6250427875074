"""Ways to run: threads, micro-batches, several models, unscaling inside the trace, inference, double backward."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amptui.engine.tracing import Tracer, trace

HALF = torch.float16


class Branch(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.fc, self.gain = nn.Linear(4, 4), gain
        nn.init.constant_(self.fc.weight, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", HALF):
            h = self.fc(x)
            return h * self.gain  # <- branch


class InThreads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList([Branch(1.0), Branch(6e4)])

    def forward(self, x: Tensor) -> Tensor:
        out: dict[int, Tensor] = {}

        def work(i: int) -> None:
            out[i] = self.branches[i](x)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return out[0] + out[1]


def test_module_calls_in_the_users_threads_are_watched(line_at: Callable[[str], str]) -> None:
    model = InThreads()

    def run() -> Tensor:
        loss = model(torch.ones(2, 4)).float().mean()
        loss.backward()
        return loss

    found = trace(run, modules=model)
    [first] = found.blame(loss=found.value)
    assert (first.module, first.op, first.line) == ("branches.1", "mul", line_at("branch"))


def test_two_threads_write_one_tape() -> None:
    class Burst(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(200):
                x = (x / (x - x)).nan_to_num(1.0, 1.0, 1.0)
            return x

    model = InThreads()
    model.branches = nn.ModuleList([Burst(), Burst()])
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        found = trace(lambda: model(torch.ones(2, 2)), modules=model)
    finally:
        sys.setswitchinterval(interval)
    assert found.error is None
    assert len(found.sites()) == 2


def test_backward_of_ops_in_two_threads_is_told_apart() -> None:
    class Roots(nn.Module):
        def __init__(self, clean: bool) -> None:
            super().__init__()
            self.fc, self.clean = nn.Linear(4, 4), clean

        def forward(self, x: Tensor) -> Tensor:
            h = self.fc(x)
            return torch.exp(h) if self.clean else torch.sqrt(h - h)

    model = InThreads()
    model.branches = nn.ModuleList([Roots(True), Roots(False)])

    def run() -> Tensor:
        loss = model(torch.ones(2, 4)).mean()
        loss.backward()
        return loss

    found = trace(run, modules=model)
    [first] = found.blame(loss=found.value, gradients={n: p.grad for n, p in model.named_parameters()})
    assert (first.phase, first.module, first.op) == ("backward", "branches.1", "sqrt")
    assert all(name.startswith("gradient branches.1") for name in first.reaches)


def test_the_guilty_micro_batch_is_the_one_that_is_named() -> None:
    model = nn.Linear(4, 1)
    batches = [torch.ones(2, 4), torch.full((2, 4), math.nan), torch.ones(2, 4)]

    def run() -> list[Tensor]:
        losses = []
        for batch in batches:
            with torch.autocast("cpu", HALF):
                losses.append(model(batch).float().mean())
            (losses[-1] / 3 * 1024).backward()
        return losses

    found = trace(run, modules=model, inputs=batches)
    [first] = found.blame(outputs=found.value, gradients={n: p.grad for n, p in model.named_parameters()})
    assert first.tensor == "input 1"
    assert first.reaches == ("output 1", "gradient weight")


def test_paths_of_several_models_begin_with_their_names(line_at: Callable[[str], str]) -> None:
    class Critic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 1)
            nn.init.constant_(self.fc.weight, 1.0)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x).square() * 60000  # <- critic

    models = {"G": nn.Linear(4, 4), "D": Critic()}

    def run() -> Tensor:
        with torch.autocast("cpu", HALF):
            return models["D"](models["G"](torch.ones(2, 4)) * 0 + 1).float().mean()

    found = trace(run, modules=models)
    [first] = found.blame(loss=found.value)
    assert (first.module, first.line) == ("D", line_at("critic"))


def test_overflow_of_unscaling_has_its_own_phase() -> None:
    """The scaler tests gradients before it multiplies them by 1 / scale, so below 1 it can make infinities itself."""
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-60)
    tracer = Tracer(nn.Module())
    with tracer:
        scaler.scale(torch.zeros(1))
        weight.grad = torch.full((1,), 1e30)
        tracer.phase("unscale")
        scaler.unscale_(optimizer)
        tracer.phase(None)
    assert weight.grad.isinf().all()
    [first] = tracer.blame().origins({"gradient weight": weight.grad})
    assert (first.phase, first.cause) == ("unscale", "overflow")
    assert first.inputs[0].absmax == pytest.approx(1e30)


def test_unscaling_keeps_the_pasts_of_gradients_apart() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.good, self.bad = nn.Linear(4, 1), nn.Linear(4, 1)

    model = Two()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def run() -> Tensor:
        h = model.bad(torch.ones(1, 4))
        loss = (h - h).sqrt().mean() + model.good(torch.ones(1, 4)).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        return loss

    found = trace(run, modules=model)
    [first] = found.blame(loss=found.value, gradients={n: p.grad for n, p in model.named_parameters()})
    assert set(first.reaches) == {"gradient bad.weight", "gradient bad.bias"}
    assert first.op == "sqrt"


def test_inference_mode_and_evaluation(line_at: Callable[[str], str]) -> None:
    model = Branch(6e4).eval()

    def run() -> Tensor:
        with torch.inference_mode():
            return model(torch.ones(2, 4))

    found = trace(run, modules=model, outside="outputs")
    [first] = found.blame(outputs=found.value)
    assert (first.phase, first.op, first.line) == ("forward", "mul", line_at("branch"))


def test_code_outside_of_modules_has_the_name_of_its_function() -> None:
    model = nn.Linear(4, 4)

    def run() -> Tensor:
        with torch.no_grad():
            return {"scores": torch.log(model(torch.ones(1, 4)) * 0)}

    found = trace(run, modules=model, outside="outputs")
    [first] = found.blame(outputs=found.value)
    assert (first.module, first.phase, first.reaches) == ("outputs", "forward", ("output scores",))


def test_gradient_penalty_with_create_graph(line_at: Callable[[str], str]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    def run() -> Tensor:
        x = torch.ones(2, 4, requires_grad=True)
        [slope] = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        penalty = (slope - slope.detach()).square().sum().sqrt()  # <- penalty
        penalty.backward()
        return penalty

    found = trace(run, modules=model)
    first = found.blame(loss=found.value, gradients={n: p.grad for n, p in model.named_parameters()})[0]
    assert (first.phase, first.op, first.module, first.line) == ("backward", "sqrt", "loss", line_at("penalty"))


def test_gradient_hook_of_the_user_has_its_own_line(line_at: Callable[[str], str]) -> None:
    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            h = self.fc(x)
            h.register_hook(self.normalised)
            return h

        def normalised(self, gradient: Tensor) -> Tensor:
            return gradient / (gradient - gradient).norm()  # <- hook

    model = Hooked()

    def run() -> Tensor:
        loss = model(torch.ones(2, 4)).mean()
        loss.backward()
        return loss

    found = trace(run, modules=model)
    [first] = found.blame(loss=found.value, gradients={n: p.grad for n, p in model.named_parameters()})
    assert (first.phase, first.op, first.line) == ("backward", "div", line_at("hook"))


def test_per_sample_gradients_inside_a_module(line_at: Callable[[str], str]) -> None:
    class PerSample(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 1)

        def root(self, x: Tensor) -> Tensor:
            return (self.fc(x) - self.fc(x)).sqrt().sum()

        def forward(self, x: Tensor) -> Tensor:
            return torch.func.vmap(torch.func.grad(self.root))(x)  # <- per_sample

    model = PerSample()
    found = trace(lambda: model(torch.ones(2, 4)).mean(), modules=model)
    first = found.blame(loss=found.value)[0]
    assert (first.op, first.module, first.line) == ("sqrt", "", line_at("per_sample"))


def test_what_is_made_before_the_run_and_is_nowhere_registered_is_a_constant() -> None:
    table = torch.tensor([1.0, math.nan])
    model = nn.Linear(4, 2)

    def run() -> Tensor:
        return (model(torch.ones(1, 4)) * table).mean()

    found = trace(run, modules=model)
    [first] = found.blame(loss=found.value)
    assert (first.phase, first.tensor, first.op) == ("constant", "constant", "mul")


def test_inputs_are_named_inside_any_container() -> None:
    @dataclass
    class Batch:
        x: Tensor
        more: dict[str, list[Tensor]]

    batch = Batch(torch.ones(1, 4), {"y": [torch.ones(1), torch.full((1,), math.nan)]})
    model = nn.Linear(4, 1)

    def run() -> Tensor:
        return (model(batch.x) - batch.more["y"][1]).mean()

    found = trace(run, modules=model, inputs=batch)
    [first] = found.blame(loss=found.value)
    assert first.tensor == "input more.y.1"


def test_tied_and_viewed_weights_are_named() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(6, 4)

        def forward(self, ids: Tensor) -> Tensor:
            return F.linear(self.table(ids), self.table.weight[1:])

    model = Tied()
    with torch.no_grad():
        model.table.weight[5, 0] = math.inf
    found = trace(lambda: model(torch.tensor([0, 1])).mean(), modules=model)
    [first] = found.blame(loss=found.value)
    assert first.tensor == "weights table.weight"
