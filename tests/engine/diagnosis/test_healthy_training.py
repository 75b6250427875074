"""Training that only looks alarming: no fault is told and the verdict is accept, in float16 as in bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from amptui import Case, Criteria, Policy, Project, Scaler, Update
from tests.engine.diagnosis.healthy import Healthy, default_scaler
from tests.engine.diagnosis.told import Batch, Net, batches, rows, trained

healthy = Healthy()


# The scale


@healthy
def first_updates_that_are_skipped(dtype: str) -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return (model(batch["x"]).float().sum(-1) - batch["x"].sum(-1)).square().mean()

    return trained(Net(lambda h: h), batches(24), loss=loss, dtype=dtype, scaler=default_scaler(dtype), lr=1e-2)


@healthy
def growth_from_a_low_scale(dtype: str) -> Project:
    scaler = Scaler(init_scale=16.0, growth_interval=3) if dtype == "float16" else None
    return trained(Net(lambda h: h), batches(12), dtype=dtype, scaler=scaler)


@healthy
def growth_that_costs_one_update_now_and_then(dtype: str) -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["x"]).float().square().mean()

    scaler = Scaler(init_scale=2.0**14, growth_interval=6) if dtype == "float16" else None
    return trained(
        Net(lambda h: h), batches(40), loss=loss, dtype=dtype, scaler=scaler, criteria=Criteria(applied_share=0.7)
    )


@healthy
def constant_scale(dtype: str) -> Project:
    scaler = Scaler(init_scale=128.0, growth_interval=10**9) if dtype == "float16" else None
    return trained(Net(lambda h: h), batches(12), dtype=dtype, scaler=scaler)


@healthy
def one_difficult_batch(dtype: str) -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["x"]).float(), batch["y"]) * batch["w"]

    data = [{**b, "w": torch.tensor(2e3 if i == 9 else 1.0)} for i, b in enumerate(batches(20))]
    scaler = Scaler(init_scale=4096.0) if dtype == "float16" else None
    return trained(Net(lambda h: h), data, loss=loss, dtype=dtype, scaler=scaler, lr=1e-5)


@healthy
def window_with_one_difficult_micro_batch(dtype: str) -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["x"]).float(), batch["y"]) * batch["w"]

    data = [{**b, "w": torch.tensor(1e3 if i == 9 else 1.0)} for i, b in enumerate(batches(48))]
    scaler = Scaler(init_scale=4096.0 * 16) if dtype == "float16" else None
    return trained(Net(lambda h: h), data, loss=loss, dtype=dtype, scaler=scaler, lr=1e-6, update={"accumulate": 4})


@healthy
def spike_of_the_loss(dtype: str) -> Project:
    return trained(Net(lambda h: h), batches(12, b6=25.0), dtype=dtype)


# Gradients


@healthy
def frozen_head(dtype: str) -> Project:
    model = Net(lambda h: h)
    model.enter.weight.requires_grad_(False)
    return trained(model, batches(8), dtype=dtype)


@healthy
def part_that_is_not_used(dtype: str) -> Project:
    model = Net(lambda h: h)
    model.spare = nn.Linear(3, 3)
    return trained(model, batches(8), dtype=dtype)


@healthy
def sparse_rows_of_an_embedding(dtype: str) -> Project:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.table, self.head = nn.Embedding(200, 8), nn.Linear(8, 3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.table(ids).mean(1))

    data = [
        {"x": torch.randint(0, 200, (6, 4), generator=torch.Generator().manual_seed(i)), "y": torch.arange(6) % 3}
        for i in range(8)
    ]
    return trained(Words(), data, dtype=dtype)


@healthy
def units_that_are_off(dtype: str) -> Project:
    return trained(Net(lambda h: torch.relu(h - 3.0) + 0.05 * h), batches(8), dtype=dtype)


@healthy
def batch_without_any_signal(dtype: str) -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return F.cross_entropy(model(batch["x"]).float(), batch["y"]) * batch["on"]

    data = [{**b, "on": torch.tensor(float(i % 5 != 2))} for i, b in enumerate(batches(15))]
    return trained(Net(lambda h: h), data, loss=loss, dtype=dtype)


@healthy
def two_updates_with_one_scale(dtype: str) -> Project:
    torch.manual_seed(1)
    model = nn.ModuleDict({"a": nn.Linear(4, 3), "b": nn.Linear(4, 3)})

    def loss_of(name: str) -> Callable[[Any, Batch], Tensor]:
        return lambda m, b: F.cross_entropy(m[name](b["x"]).float(), b["y"])

    return Project(
        model=model,
        updates=[
            Update(
                optimizer=torch.optim.SGD(model["a"].parameters(), lr=1e-2), loss=loss_of("a"), name="a", clip_norm=1.0
            ),
            Update(optimizer=torch.optim.Adam(model["b"].parameters(), lr=1e-3), loss=loss_of("b"), name="b", every=2),
        ],
        batches=batches(10),
        policy=Policy(dtype=dtype, scaler=Scaler(init_scale=256.0) if dtype == "float16" else None),
    )


@healthy
def update_that_follows_one_held_back(dtype: str) -> Project:
    """In iteration 0 the first is skipped while its scale settles; the baseline's second saw it applied."""
    torch.manual_seed(2)
    model = nn.ModuleDict({"d": nn.Linear(4, 1), "g": nn.Linear(4, 4)})

    def loss_d(m: Any, b: Batch) -> Tensor:
        return 40.0 * F.softplus(-m["d"](b["x"]).float()).mean()

    def loss_g(m: Any, b: Batch) -> Tensor:
        return F.softplus(-m["d"](m["g"](b["x"])).float()).mean()

    return Project(
        model=model,
        updates=[
            Update(optimizer=torch.optim.Adam(model["d"].parameters(), lr=0.5), loss=loss_d, name="d"),
            Update(optimizer=torch.optim.SGD(model["g"].parameters(), lr=1e-3), loss=loss_g, name="g"),
        ],
        batches=batches(24),
        policy=Policy(dtype=dtype, scaler=Scaler(init_scale=2.0**13) if dtype == "float16" else None),
    )


# Random numbers


@healthy
def noise_in_the_dtype_of_the_activations(dtype: str) -> Project:
    """In half the generator gives other numbers than in float32: the numbers differ, and nothing is wrong."""

    class Sampled(nn.Module):
        def forward(self, h: Tensor) -> Tensor:
            mean, spread = h[:, :7], 3.0 * h[:, :7].exp()
            return torch.cat([mean + spread * torch.randn_like(mean), h[:, 7:]], -1)

    return trained(Net(Sampled()), batches(8), dtype=dtype)


# State


@healthy
def batch_norm_in_training(dtype: str) -> Project:
    return trained(Net(nn.BatchNorm1d(8)), batches(40), dtype=dtype, scaler=default_scaler(dtype))


@healthy
def bias_that_a_norm_takes_away(dtype: str) -> Project:
    """Its gradient is zero but for rounding."""
    return trained(Net(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))), batches(6), dtype=dtype)


@healthy
def average_of_activations(dtype: str) -> Project:
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(8))

        def forward(self, h: Tensor) -> Tensor:
            with torch.no_grad():
                self.mean.lerp_(h.float().mean(0), 0.1)
            return h - self.mean.to(h.dtype)

    return trained(Net(Average()), batches(8), dtype=dtype)


@healthy
def checkpointed_block(dtype: str) -> Project:
    inner = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 8))

    class Saved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, h: Tensor) -> Tensor:
            return checkpoint(self.inner, h, use_reentrant=False)  # type: ignore[no-any-return]

    return trained(Net(Saved()), batches(6), dtype=dtype)


@healthy
def dropout_in_training_alone(dtype: str) -> Project:
    model = Net(nn.Dropout(0.3))
    return trained(model, batches(6), dtype=dtype, cases=[Case(id="a", inputs=rows())])


@healthy
def region_that_casts(dtype: str) -> Project:
    class Precise(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 8)

        def forward(self, h: Tensor) -> Tensor:
            with torch.autocast("cpu", enabled=False):
                return self.fc(h.float()) * 1e3 * 1e3 / 1e6

    return trained(Net(Precise()), batches(6), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", list(healthy))
def test_no_false_alarm(name: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy.check(name, dtype, tmp_path, monkeypatch)
