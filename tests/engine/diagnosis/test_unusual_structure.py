"""Faults in projects that are built otherwise: methods beside forward, code that follows a dtype, functions of sums."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amptui import Criteria, Project, Scaler
from tests.engine.diagnosis.told import Batch, Block, Net, Says, ask, batches, classify, evaluated, rows, trained

Made = tuple[Callable[[], Project], Says]
TABLE: dict[str, Made] = {}
NEAR = Criteria(atol=0.1, rtol=0.0)


def fault(**says: object) -> Callable[[Callable[[], Project]], Callable[[], Project]]:
    def note(make: Callable[[], Project]) -> Callable[[], Project]:
        TABLE[make.__name__] = make, Says(**says)  # type: ignore[arg-type]
        return make

    return note


# Methods beside forward


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.fc = nn.Linear(4, 8)

    def encode(self, x: Tensor) -> Tensor:
        h = self.fc(x)
        return weighted(h)


def weighted(h: Tensor) -> Tensor:
    return h * h.abs().sum(-1, keepdim=True)  # here


@fault(kind="overflow", stage="forward", module="encoder", op="mul", step=2, here=True)
def method_that_the_loss_calls() -> Project:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = Encoder(), nn.Linear(8, 3)

        def scores(self, x: Tensor) -> Tensor:
            return self.head(self.encoder.encode(x))  # type: ignore[no-any-return]

    def loss(model: Any, batch: Batch) -> Tensor:
        return F.cross_entropy(model.scores(batch["x"]), batch["y"])

    return trained(Model(), batches(b2=300.0), loss=loss)


@fault(kind="overflow", stage="forward", module="encoder", op="mul", case="large", step=1, here=True)
def method_that_another_module_calls() -> Project:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = Encoder(), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.encoder.encode(x))  # type: ignore[no-any-return]

    return evaluated(Model(), {"small": rows(), "large": rows(scale=300.0)})


# Code that takes the dtype of what it is given


class Angles(nn.Module):
    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        angle = t[:, None].to(h.dtype) * torch.tensor([1.0, 0.3, 0.1, 0.03]).to(h.dtype)  # here
        return torch.cat([angle.sin(), angle.cos()], -1)


@fault(kind="rounding", stage="output", module="angles", op="to", case="late", step=1, here=True)
def time_steps_in_the_dtype_of_the_activations() -> Project:
    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(4)
            self.enter, self.angles, self.head = nn.Linear(4, 8), Angles(), nn.Linear(8, 3)

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            h = self.enter(x)
            return self.head(h + self.angles(t, h))

    inputs = {"early": {"x": rows(), "t": torch.arange(6)}, "late": {"x": rows(), "t": torch.arange(901, 907)}}
    return evaluated(Denoiser(), inputs, dtype="bfloat16", criteria=NEAR)


@fault(kind="rounding", stage="output", module="block", op="arange", case="long", step=1, here=True)
def positions_counted_in_the_dtype_of_the_activations() -> Project:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.randn(700, 8, generator=torch.Generator().manual_seed(6)))

        def forward(self, h: Tensor) -> Tensor:
            position = torch.arange(len(h), dtype=h.dtype)  # here
            return h + self.table[position.long()]

    return evaluated(Net(Positions()), {"short": rows(9), "long": rows(600)}, dtype="bfloat16", criteria=NEAR)


@fault(kind="rounding", stage="output", module="block", op="sub", case="far", step=1, here=True)
def spread_by_a_difference_of_squares() -> Project:
    def spread(h: Tensor) -> Tensor:
        x = h[:, :4]
        variance = x.square().mean(-1) - x.mean(-1).square()  # here
        return h / variance.clamp(min=0.25).sqrt()[:, None]

    near = rows()
    return evaluated(Net(spread), {"near": near, "far": near.clone() + 30.0}, dtype="bfloat16", criteria=NEAR)


@fault(kind="dtype", stage="forward", module="block", op="tensor", case="large", step=1, here=True)
def constant_beyond_the_dtype_of_the_activations() -> Project:
    def scaled(h: Tensor) -> Tensor:
        whole = torch.tensor(70000.0, dtype=h.dtype)  # here
        return h + 5000 * h * h / whole

    return evaluated(Net(scaled), {"small": rows(scale=0.1), "large": rows(scale=1.2)}, criteria=NEAR)


@fault(kind="overflow", stage="forward", module="block", op="mul", case="large", step=1, here=True)
def infinity_that_becomes_a_whole_number() -> Project:
    def remainder(h: Tensor) -> Tensor:
        square = h * h  # here
        return (square.round().to(torch.int64) % 7).float()

    return evaluated(Net(remainder), {"small": rows().round(), "large": rows(scale=300.0).round()}, criteria=NEAR)


# Functions of the user's


@fault(kind="rounding", stage="loss", module="loss", op="add", step=0, here=True)
def running_total_in_the_loss() -> Project:
    def total(model: nn.Module, batch: Batch) -> Tensor:
        errors = model(batch["x"]).abs().sum(-1)
        found = errors.new_zeros(())
        for _ in range(250):
            for error in errors.unbind():
                found = found + error  # here
        return found / 1500

    return trained(Net(lambda h: h), batches(), loss=total, dtype="bfloat16")


@fault(kind="rounding", stage="loss", module="loss", op="sub", step=0, here=True)
def difference_of_large_numbers_in_the_loss() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        price = model(batch["x"]) * 100 + 30000
        return (price - 30000).abs().mean()  # here

    return trained(Net(lambda h: h), batches(), loss=loss, dtype="bfloat16", lr=1e-6)


@fault(kind="rounding", stage="output", module="outputs", op="sub", case="a", step=0, here=True)
def difference_of_large_numbers_in_the_outputs() -> Project:
    def outputs(model: nn.Module, x: Tensor) -> Tensor:
        price = model(x) + 3000
        return price - 3000  # here

    return evaluated(Net(lambda h: h), {"a": rows()}, dtype="bfloat16", outputs=outputs, criteria=NEAR)


# A loss that is near, gradients that are not


@fault(kind="rounding", stage="forward", module="norm", op="sub", step=0, here=True)
def slope_of_a_difference_of_squares() -> Project:
    class Norm(nn.Module):
        def forward(self, h: Tensor) -> Tensor:
            mean = h.mean(-1, keepdim=True)
            variance = (h * h).mean(-1, keepdim=True) - mean * mean  # here
            return (h - mean) / torch.sqrt(variance.abs() + 1e-3)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(7)
            self.enter, self.norm, self.head = nn.Linear(4, 8), Norm(), nn.Linear(8, 3)
            with torch.no_grad():
                self.enter.bias.fill_(12.0)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.norm(self.enter(x)))  # type: ignore[no-any-return]

    loose = Criteria(outputs={"loss": {"atol": 10.0, "rtol": 0.0}, "gradient": {"atol": 0.2}})
    return trained(Model(), batches(), dtype="bfloat16", criteria=loose)


# What only one of two runs shows


@fault(kind="overflow", stage="forward", module="block", op="mul", step=2, here=True)
def hidden_overflow_in_an_update_that_the_scaler_skips() -> Project:
    def norm(h: Tensor) -> Tensor:
        square = h * h  # here
        return h * torch.rsqrt(square.mean(-1, keepdim=True) + 1e-5)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return classify(model, batch) + 3.0 * batch["x"].mean() * model(batch["x"]).float().mean()

    return trained(Net(norm), batches(6, b2=900.0), loss=loss, scaler=Scaler(init_scale=2.0**10), lr=1e-5)


@fault(kind="autocast_state", stage="forward", module="block", op=("bmm", "matmul", "mm"), step=2, fp32_ok=False,
       verdict="inconclusive", here=True)  # fmt: skip
def half_by_hand_that_autocast_takes_back() -> Project:
    def scores(h: Tensor) -> Tensor:
        return h + (h.half() @ h.half().t()).float().softmax(-1) @ h  # here

    return trained(Net(scores), batches(b2=500.0), dtype="bfloat16")


# Gradients that are rounded to zero


@fault(kind="underflow", stage="gradient", module="block.1", step=0)
def first_layers_that_never_move() -> Project:
    """The last layers train, what lies before the narrow one does not."""
    torch.manual_seed(8)
    narrow = nn.Linear(8, 8)
    with torch.no_grad():
        narrow.weight.mul_(3e-5)
    block = nn.Sequential(nn.Linear(8, 8), narrow, nn.Tanh())
    scaler = Scaler(init_scale=1.0, growth_interval=10**6)
    return trained(Net(block), batches(), loss=lambda m, b: 1e-2 * classify(m, b), scaler=scaler, lr=1e-6)


@fault(kind="underflow", stage="gradient", module="loss", op="to", step=0, here=True)
def loss_that_is_too_small_for_its_scale() -> Project:
    def faint(model: nn.Module, batch: Batch) -> Tensor:
        logits = model(batch["x"]).float()  # here
        return 1e-9 * F.cross_entropy(logits, batch["y"])

    return trained(Net(lambda h: h), batches(), loss=faint, scaler=None)


# A check of the project's own stops the run


def checked(model: nn.Module, batch: Batch) -> Tensor:
    loss = classify(model, batch)
    if not math.isfinite(loss.item()):
        raise ValueError(f"loss is {loss.item()}, training stops")
    return loss


def leaving(model: nn.Module, batch: Batch) -> Tensor:
    loss = classify(model, batch)
    if not math.isfinite(loss.item()):
        sys.exit(1)
    return loss


def cubed(h: Tensor) -> Tensor:
    h = h.abs()
    return h * h * h / (1 + h * h * h)  # here


@fault(kind="overflow", stage="forward", module="block", op="mul", step=2, here=True,
       also=(("overflow", "error", "loss"),))  # fmt: skip
def loss_that_is_checked() -> Project:
    return trained(Net(cubed), batches(b2=60.0), loss=checked)


@fault(kind="overflow", stage="forward", module="block", op="mul", step=2, here=True,
       also=(("overflow", "error", "loss"),))  # fmt: skip
def loss_that_ends_the_program() -> Project:
    return trained(Net(cubed), batches(b2=60.0), loss=leaving)


@fault(kind="overflow", stage="forward", module="block", op="pow", case="large", step=1, here=True,
       also=(("overflow", "error", "block"),))  # fmt: skip
def activations_that_are_asserted() -> Project:
    def asserted(h: Tensor) -> Tensor:
        masked = h.masked_fill(h < -0.5, float("-inf")).exp()  # meant, and no part of the fault
        h = h.pow(3)  # here
        assert not h.isinf().any(), "activations are infinite"
        return torch.tanh(h) + masked.clamp(max=1.0)

    return evaluated(Net(asserted), {"small": rows(), "large": rows(scale=90.0)})


@fault(kind="dtype", stage="error", module="block", step=0)
def check_that_asks_for_the_dtype() -> Project:
    def exact(h: Tensor) -> Tensor:
        if h.dtype != torch.float32:
            raise TypeError("float32 only")
        return h

    return trained(Net(exact), batches())


@pytest.mark.parametrize("name", list(TABLE))
def test_the_leading_finding(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, says = TABLE[name]
    ask(make(), tmp_path, monkeypatch).check(says)


def test_modules_are_asked_alone_in_the_mode_and_state_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout and batch norm differ by far more than rounding where mode or random state is another one."""

    def coarse(h: Tensor) -> Tensor:
        return (h.to(torch.bfloat16) if torch.is_autocast_enabled("cpu") else h) + 64.0 - 64.0

    torch.manual_seed(5)
    norm, drop = nn.BatchNorm1d(8), nn.Dropout(0.5)
    block = nn.Sequential(norm, drop, Block(coarse), nn.Linear(8, 8))
    criteria = Criteria(outputs={"loss": {"atol": 1e-6, "rtol": 0.0}})
    answer = ask(trained(Net(block), batches(2), dtype="bfloat16", criteria=criteria), tmp_path, monkeypatch)
    assert answer.faults[0].module == "block.2", answer.faults
    seen = norm.num_batches_tracked
    assert seen is not None
    assert int(seen) == 2  # as after the two iterations of the stretch, whatever the diagnosis ran
