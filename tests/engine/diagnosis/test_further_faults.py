"""Faults across updates, cases and settings: who starves, what a case alone shows, what the policy does."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from amptui import Criteria, Policy, Project, Scaler, Update
from tests.engine.diagnosis.told import Batch, Net, Says, argmax, ask, batches, classify, evaluated, rows, trained

Made = tuple[Callable[[], Project], Says]
TABLE: dict[str, Made] = {}


def fault(**says: object) -> Callable[[Callable[[], Project]], Callable[[], Project]]:
    def note(make: Callable[[], Project]) -> Callable[[], Project]:
        TABLE[make.__name__] = make, Says(**says)  # type: ignore[arg-type]
        return make

    return note


# Several updates


@fault(kind="scaler", stage="gradient", step=0)
def one_update_of_two_that_starves() -> Project:
    torch.manual_seed(3)
    model = nn.ModuleDict({"g": nn.Linear(4, 4), "d": nn.Linear(4, 1)})

    def loss_d(m: Any, b: Batch) -> Tensor:
        return (m["d"](b["x"]).float() ** 2).sum() * 3e2

    def loss_g(m: Any, b: Batch) -> Tensor:
        return m["g"](b["x"]).float().square().mean()

    return Project(
        model=model,
        updates=[
            Update(optimizer=torch.optim.SGD(model["g"].parameters(), lr=1e-4), loss=loss_g, name="g"),
            Update(optimizer=torch.optim.SGD(model["d"].parameters(), lr=1e-9), loss=loss_d, name="d"),
        ],
        batches=batches(12),
        policy=Policy(scaler=Scaler(init_scale=2.0**19)),
    )


@fault(kind="overflow", stage="forward", module="d.block", step=1, here=True)
def overflow_in_the_second_of_two_models() -> Project:
    def fourth(h: Tensor) -> Tensor:
        return torch.log1p(h**4)  # here

    models = {"g": Net(lambda h: h), "d": Net(fourth)}

    def loss_of(name: str) -> Callable[[Any, Batch], Tensor]:
        return lambda m, b: F.cross_entropy(m[name](b["x"]).float(), b["y"])

    return Project(
        model=models,
        updates=[
            Update(optimizer=torch.optim.SGD(m.parameters(), lr=1e-3), loss=loss_of(n), name=n)
            for n, m in models.items()
        ],
        batches=batches(4, b1=40.0),
        policy=Policy(scaler=Scaler(init_scale=16.0)),
    )


# Recomputed blocks


@fault(kind="overflow", stage="forward", module="block", op="pow", step=2, here=True)
def overflow_inside_of_a_checkpointed_block() -> Project:
    class Saved(nn.Module):
        def inner(self, h: Tensor) -> Tensor:
            return torch.log1p(h**4)  # here

        def forward(self, h: Tensor) -> Tensor:
            return checkpoint(self.inner, h, use_reentrant=False)  # type: ignore[no-any-return]

    return trained(Net(Saved()), batches(b2=40.0))


@fault(kind="overflow", stage="forward", module="block", op="pow", step=2, here=True)
def overflow_inside_of_a_reentrant_checkpoint() -> Project:
    class Saved(nn.Module):
        def inner(self, h: Tensor) -> Tensor:
            return torch.log1p(h**4)  # here

        def forward(self, h: Tensor) -> Tensor:
            return checkpoint(self.inner, h, use_reentrant=True)  # type: ignore[no-any-return]

    return trained(Net(Saved()), batches(b2=40.0))


# Cases alone


@fault(kind="overflow", stage="forward", module="block", op="pow", step=2, case="third", here=True)
def case_that_overflows() -> Project:
    def fourth(h: Tensor) -> Tensor:
        return torch.log1p(h**4)  # here

    return evaluated(Net(fourth), {"first": rows(), "second": rows(seed=2), "third": rows() * 40}, decide=argmax)


@fault(kind="not_precision", stage="input", step=1, case="broken", fp32_ok=False, verdict="inconclusive")
def case_with_nan_in_its_input() -> Project:
    x = rows()
    x[2, 2] = math.nan
    return evaluated(Net(lambda h: h), {"fine": rows(), "broken": x})


@fault(kind="not_precision", stage="weights", module="head", step=0, case="a", fp32_ok=False, verdict="inconclusive")
def case_with_a_bad_weight() -> Project:
    model = Net(lambda h: h)
    model.head.weight.data[0, 0] = math.nan
    return evaluated(model, {"a": rows()})


@fault(kind="overflow", stage="forward", module="outputs", step=0, case="a", here=True)
def overflow_in_the_outputs_function() -> Project:
    def outputs(model: nn.Module, x: Tensor) -> Tensor:
        return torch.exp(model(x).abs().clamp(max=0.5) * 20 + 12)  # here

    return evaluated(Net(lambda h: h), {"a": torch.ones(3, 4)}, outputs=outputs)


@fault(kind="overflow", stage="forward", module="block", step=0, case="a", here=True)
def infinity_beside_one_that_is_meant() -> Project:
    def closed(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).float().masked_fill(torch.tensor([False, False, True]), float("-inf"))

    def fourth(h: Tensor) -> Tensor:
        return torch.log1p(h**4)  # here

    return evaluated(Net(fourth), {"a": rows() * 40}, outputs=closed)


# Indices in half


@fault(kind="rounding", stage="output", step=1, case="far")
def index_arithmetic_in_the_dtype_of_the_features() -> Project:
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.index, self.table = nn.Linear(1, 1), nn.Embedding(6000, 8)
            nn.init.ones_(self.index.weight)
            nn.init.zeros_(self.index.bias)

        def forward(self, position: Tensor) -> Tensor:
            return self.table(self.index(position).squeeze(-1).round().long().clamp(0, 5999))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.lookup, self.head = Lookup(), nn.Linear(8, 3)

        def forward(self, position: Tensor) -> Tensor:
            return self.head(self.lookup(position))

    return evaluated(
        Model(), {"near": torch.arange(4.0)[:, None], "far": torch.arange(4001.0, 4007.0)[:, None]},
        criteria=Criteria(atol=0.1, rtol=0.0),
    )  # fmt: skip


# The policy itself


@fault(kind="underflow", stage="gradient", step=0)
def scale_of_one_that_never_grows() -> Project:
    def tiny(model: nn.Module, batch: Batch) -> Tensor:
        return classify(model, batch) * 1e-9

    return trained(Net(lambda h: h), batches(8), loss=tiny, scaler=Scaler(init_scale=1.0, growth_interval=10**6))


@fault(kind="overflow", stage="loss", module="loss", op=("mean", "mul", "pow", "sum"), step=2)
def loss_that_stays_in_half() -> Project:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["x"]).abs().mul(100.0).mean().float() + 0.0

    return trained(Net(lambda h: h), batches(b2=3e3), loss=loss)


@pytest.mark.parametrize("name", list(TABLE))
def test_the_leading_finding(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, says = TABLE[name]
    ask(make(), tmp_path, monkeypatch).check(says)


def test_which_update_starves_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ask(one_update_of_two_that_starves(), tmp_path, monkeypatch)
    assert answer.faults[0].update == "d"
    assert "Start with Scaler(init_scale=" in answer.faults[0].advice


def test_scaling_without_autocast_is_plain_fp32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = trained(Net(lambda h: h), batches(6), scaler=Scaler(), policy={"autocast": False})
    answer = ask(project, tmp_path, monkeypatch)
    assert (answer.reached.verdict, answer.faults) == ("accept", ())
