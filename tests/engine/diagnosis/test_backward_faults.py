"""Finite losses with gradients that are not: backward ops at poles, gradients that vanish, the scale, and state."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amptui import Project, Scaler
from tests.engine.diagnosis.told import Batch, Net, Says, ask, batches, rows, trained

Made = tuple[Callable[[], Project], Says]
TABLE: dict[str, Made] = {}


def fault(**says: object) -> Callable[[Callable[[], Project]], Callable[[], Project]]:
    def note(make: Callable[[], Project]) -> Callable[[], Project]:
        TABLE[make.__name__] = make, Says(**says)  # type: ignore[arg-type]
        return make

    return note


# A root, a norm, a quotient at a value that only the dtype made zero


@fault(kind="underflow", stage="gradient", module="loss", op=("sqrt", "pow"), step=2, here=True)
def triplet_of_vectors_whose_distance_is_lost() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        z = model(batch["x"])
        near = (z - z.roll(1, 0) * batch["near"]).square().sum(-1)
        return near.sqrt().mean()  # here

    data = [{**b, "near": torch.tensor(0.5)} for b in batches(b2=torch.full((6, 4), 1e-5))]
    model = Net(lambda h: h)
    model.head.bias.data.zero_()
    return trained(model, data, loss=loss)


@fault(kind="underflow", stage="gradient", module="block", op="sqrt", step=2, here=True)
def spread_of_small_features() -> Project:
    def spread(h: Tensor) -> Tensor:
        d = h - h.mean(0)
        return h + (d * d).mean().sqrt()  # here

    return trained(Net(spread), batches(b2=1e-6))


@fault(kind=("underflow", "rounding"), stage="gradient", module="block", op=("sqrt", "pow"), step=2, here=True)
def sine_of_a_saturated_cosine() -> Project:
    def sine(h: Tensor) -> Tensor:
        c = torch.tanh(h)
        return (1 - c * c).clamp(min=1e-10).sqrt()  # here

    return trained(Net(sine), batches(b2=torch.full((6, 4), 5.5)))


@fault(kind=("underflow", "rounding"), stage="gradient", module="block", op=("acos", "acos_"), step=2, here=True)
def slope_of_acos_at_a_cosine_that_became_one() -> Project:
    def angle(h: Tensor) -> Tensor:
        return torch.acos((torch.tanh(h) * 0.99999).clamp(-1, 1))  # here

    return trained(Net(angle), batches(b2=torch.full((6, 4), 6.0)))


@fault(kind="overflow", stage="gradient", module="loss", step=2)
def gradient_that_no_scale_fits() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        z = model(batch["x"])
        return (z.float() * batch["w"]).sum()

    data = [{**b, "w": torch.full((6, 3), 1e6 if i == 2 else 1.0)} for i, b in enumerate(batches())]
    return trained(Net(lambda h: h), data, loss=loss, scaler=Scaler(init_scale=1.0))


# FP32 has it too


@fault(
    kind="not_precision",
    stage="gradient",
    module="loss",
    op=("norm", "linalg_vector_norm", "sqrt"),
    step=2,
    fp32_ok=False,
    here=True,
    verdict="inconclusive",
)
def distance_of_a_vector_to_itself() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        z = model(batch["x"])
        same = z - z.roll(1, 0)
        return (same * same).sum(-1).sqrt().mean()  # here

    return trained(Net(lambda h: h), batches(b2=torch.ones(6, 4)), loss=loss)


@fault(
    kind="not_precision",
    stage="loss",
    module="loss",
    op="log",
    step=2,
    fp32_ok=False,
    here=True,
    verdict="inconclusive",
)
def log_of_a_true_zero() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        p = torch.relu(model(batch["x"]).sum() * batch["on"])
        return torch.log(p + (1 - batch["off"])).mean()  # here

    data = [
        {**b, "on": torch.tensor(0.0 if i == 2 else 1.0), "off": torch.tensor(1.0 if i == 2 else 0.0)}
        for i, b in enumerate(batches())
    ]
    return trained(Net(lambda h: h), data, loss=loss)


@fault(kind="not_precision", stage="input", step=1, fp32_ok=False, verdict="inconclusive")
def target_that_is_nan() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return F.mse_loss(model(batch["x"])[:, 0].float(), batch["t"])

    data = [{**b, "t": torch.ones(6)} for b in batches()]
    data[1]["t"][3] = float("nan")
    return trained(Net(lambda h: h), data, loss=loss)


@fault(kind="not_precision", stage="input", step=2, fp32_ok=False, verdict="inconclusive")
def sample_that_is_infinite() -> Project:
    x = rows()
    x[2, 1] = math.inf
    return trained(Net(lambda h: h), batches(b2=x))


@fault(kind="not_precision", stage="input", step=0, fp32_ok=False, verdict="inconclusive", severity="fault")
def class_weight_that_is_nan() -> Project:
    weight = torch.tensor([1.0, float("nan"), 1.0])
    return trained(Net(lambda h: h), batches(), loss=lambda m, b: F.cross_entropy(m(b["x"]).float(), b["y"], weight))


@fault(kind="not_precision", stage="weights", module="head", step=0, fp32_ok=False, verdict="inconclusive")
def weight_that_is_nan_from_the_start() -> Project:
    model = Net(lambda h: h)
    with torch.no_grad():
        model.head.weight[1, 2] = float("nan")
    return trained(model, batches())


@fault(kind="not_precision", stage="buffer", module="block", step=0, fp32_ok=False, verdict="inconclusive")
def running_statistics_that_are_nan_from_the_start() -> Project:
    norm = nn.BatchNorm1d(8).eval()
    norm.running_var[2] = float("nan")
    return trained(Net(norm), batches())


@fault(kind="not_precision", stage="gradient", module="loss", step=1, fp32_ok=False, verdict="inconclusive")
def mask_before_a_learned_temperature() -> Project:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.t = nn.Linear(4, 3), nn.Parameter(torch.tensor(0.5))

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        scores = model.fc(batch["x"]).masked_fill(batch["pad"], float("-inf")) * model.t.exp()
        return F.cross_entropy(scores, torch.zeros(6, dtype=torch.long))

    data = [{**b, "pad": torch.zeros(6, 3, dtype=torch.bool)} for b in batches()]
    data[1]["pad"][2, 1] = True
    return trained(Scaled(), data, loss=loss)


@fault(kind="not_precision", stage="forward", module="enter", fp32_ok=False, verdict="inconclusive")
def learning_rate_that_explodes() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["x"]).float().square().mean()

    return trained(Net(lambda h: h), batches(40), loss=loss, lr=30.0, scaler=Scaler(init_scale=1.0))


# Zero and missing gradients


@fault(kind="underflow", stage="gradient", step=0)
def gradients_below_the_smallest_half() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return classify_tiny(model, batch)

    return trained(Net(lambda h: h), batches(8), loss=loss, scaler=Scaler(init_scale=1.0))


def classify_tiny(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch["x"]).float(), batch["y"]) * 1e-9


@fault(kind="underflow", stage="gradient", step=0)
def float16_without_a_scaler() -> Project:
    return trained(Net(lambda h: h), batches(8), loss=classify_tiny, scaler=None)


@fault(kind="underflow", stage="gradient", step=0)
def weight_decay_alone_moves_the_weights() -> Project:
    return trained(
        Net(lambda h: h),
        batches(8),
        loss=classify_tiny,
        scaler=Scaler(init_scale=2.0**-12),
        optimizer=lambda p, lr: torch.optim.AdamW(p, lr=lr, weight_decay=0.1),
    )


@fault(kind="not_precision", stage="gradient", step=0, fp32_ok=False, verdict="reject")
def loss_that_is_detached_from_the_weights() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["x"].requires_grad_()).float().mul(0.0).sum()

    return trained(Net(lambda h: h), batches(), loss=loss)


# The scale


@fault(kind="scaler", stage="gradient", step=0)
def scale_that_takes_the_whole_stretch_to_settle() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["x"]).float().square().mean() * 1e4

    return trained(Net(lambda h: h), batches(14), loss=loss, lr=1e-9, scaler=Scaler(init_scale=2.0**24))


@fault(kind="scaler", stage="gradient", step=30)
def scale_that_grew_while_nothing_was_learnt() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["x"]).float(), batch["y"]) * batch["on"]

    data = [{**b, "on": torch.tensor(0.0 if i < 30 else 1.0)} for i, b in enumerate(batches(60))]
    return trained(Net(lambda h: h), data, loss=loss, scaler=Scaler(init_scale=65536.0, growth_interval=1))


# What is left behind


@fault(kind="overflow", stage="forward", module="block.0", step=2, also=(("state_damage", "buffer", "block.1"),))
def batch_norm_behind_an_overflow() -> Project:
    stack = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    with torch.no_grad():
        stack[0].weight.mul_(1e4)
    return trained(Net(stack), batches(b2=1e2))


@fault(kind="overflow", stage="forward", module="block", step=2, here=True, also=(("state_damage", "buffer", "block"),))
def average_of_activations_in_a_buffer() -> Project:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("average", torch.zeros(8))

        def forward(self, h: Tensor) -> Tensor:
            power = h * h  # here
            with torch.no_grad():
                self.average.mul_(0.9).add_(power.mean(0).float(), alpha=0.1)
            return h / (self.average + 1.0).sqrt() + 1e-9 * power.float().log1p()

    return trained(Net(Average()), batches(b2=6e2))


@fault(
    kind="overflow",
    stage="forward",
    module="block",
    op="mul",
    step=2,
    here=True,
    also=(("state_damage", "buffer", "block"),),
)
def codebook_that_is_updated_in_forward() -> Project:
    class Codebook(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("codes", torch.randn(5, 8, generator=torch.Generator().manual_seed(1)))

        def forward(self, h: Tensor) -> Tensor:
            big = h * 200.0  # here
            nearest = torch.cdist(h.float(), self.codes).argmin(-1)
            if self.training:
                self.codes[nearest] += 1e-7 * big.detach().float()
            return h

    return trained(Net(Codebook()), batches(b2=6e2))


@fault(
    kind="not_precision",
    stage="input",
    step=2,
    fp32_ok=False,
    verdict="inconclusive",
    also=(("state_damage", "weights", ""),),
)
def bfloat16_writes_nan_of_the_data_into_the_weights() -> Project:
    x = rows()
    x[0, 0] = math.nan
    return trained(Net(lambda h: h), batches(b2=x), dtype="bfloat16", optimizer=torch.optim.AdamW)


@fault(
    kind="rounding",
    stage="gradient",
    module="block",
    op=("sqrt", "pow"),
    step=2,
    here=True,
    also=(("state_damage", "weights", ""),),
)
def bfloat16_writes_nan_of_its_own_into_the_weights() -> Project:
    def sine(h: Tensor) -> Tensor:
        c = torch.tanh(h)
        return (1 - c * c).sqrt()  # here

    return trained(Net(sine), batches(b2=torch.full((6, 4), 4.0)), dtype="bfloat16")


# Accumulation and several updates


@fault(kind="overflow", stage="forward", module="block", step=1, here=True)
def one_bad_micro_batch_of_a_window() -> Project:
    def fourth(h: Tensor) -> Tensor:
        return torch.log1p(h**4)  # here

    return trained(Net(fourth), batches(12, b5=40.0), update={"accumulate": 4})


@pytest.mark.parametrize("name", list(TABLE))
def test_the_leading_finding(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, says = TABLE[name]
    ask(make(), tmp_path, monkeypatch).check(says)
