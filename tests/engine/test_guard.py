"""What one transfer tells about an update: norms, buffers, rates, and which of them is bad."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Policy, Project, Scaler, Update
from amptui.engine.iteration import Phase
from tests.engine.projects import Guarded, guarded, opened

X = torch.ones(2, 4)


def run(
    model: Any,
    loss: Any,
    folder: Path,
    *,
    optimizer: Any = None,
    count: int = 2,
    policy: Policy | None = None,
    **how: Any,
) -> Guarded:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    on_phase = how.pop("on_phase", lambda phase: None)
    update = Update(optimizer=optimizer, loss=loss, **how)
    project = Project(model=model, updates=[update], batches=[(X.clone(), index) for index in range(count)])
    return guarded(opened(project, folder), policy or Policy(dtype="bfloat16", autocast=False), on_phase=on_phase)


def summed(model: Any, batch: Any) -> Tensor:
    return model(batch[0]).float().sum()


def test_a_gradient_too_small_to_be_squared_is_no_zero_gradient(tmp_path: Path) -> None:
    tiny = run(nn.Linear(4, 1), lambda m, b: summed(m, b) * 1e-30, tmp_path / "tiny", count=1)
    zero = run(nn.Linear(4, 1), lambda m, b: summed(m, b) * 0.0, tmp_path / "zero", count=1)
    assert [left.records[0].updates[0].norm for left in (tiny, zero)] == [0.0, 0.0]
    assert [left.records[0].updates[0].zero_gradient for left in (tiny, zero)] == [False, True]


@pytest.mark.parametrize(
    "rate", [0.25, torch.tensor(0.25), torch.tensor(0.25, dtype=torch.float64)], ids=["float", "tensor", "double"]
)
def test_the_learning_rate_is_that_of_the_first_group(rate: Any, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 1))
    groups = [{"params": model[0].parameters(), "lr": rate}, {"params": model[1].parameters(), "lr": 0.5}]
    left = run(model, summed, tmp_path, optimizer=torch.optim.SGD(groups, lr=1.0))
    assert [record.updates[0].learning_rate for record in left.records] == [0.25, 0.25]


def test_an_optimizer_without_a_learning_rate_is_none_the_worse(tmp_path: Path) -> None:
    class Unrated(torch.optim.Optimizer):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            with torch.no_grad():
                for parameter in self.param_groups[0]["params"]:
                    parameter.sub_(parameter.grad * 0.1)

    model = nn.Linear(4, 1)
    left = run(model, summed, tmp_path, optimizer=Unrated(model.parameters(), {}))
    assert [record.updates[0].applied for record in left.records] == [True, True]
    assert math.isnan(left.records[0].updates[0].learning_rate)


class Statistics(nn.Module):
    """Buffers of every kind; `scale` is what the running one is multiplied by at each forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.register_buffer("running", torch.ones(2))
        self.register_buffer("counter", torch.zeros((), dtype=torch.int64))
        self.register_buffer("eighth", torch.ones(2).to(torch.float8_e4m3fn))
        self.register_buffer("wave", torch.ones(2, dtype=torch.complex64))
        self.register_buffer("sparse", torch.eye(2).to_sparse())
        self.register_buffer("empty", torch.empty(0))
        self.register_buffer("absent", None)
        self.register_buffer("large_half", torch.full((100,), 6e4, dtype=torch.float16))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def test_buffers_of_every_kind_are_carried_along(tmp_path: Path) -> None:
    left = run(Statistics(), summed, tmp_path)
    assert [record.updates[0].outcome for record in left.records] == ["ok", "ok"], (
        "a half norm that overflows is no inf"
    )


@pytest.mark.parametrize("name", ["running", "wave"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_buffer_that_turns_bad_is_named_also_where_it_was_replaced(name: str, replaced: bool, tmp_path: Path) -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        if batch[1] == 1 and replaced:
            setattr(model, name, getattr(model, name) * math.nan)
        elif batch[1] == 1:
            getattr(model, name).mul_(math.nan)
        return summed(model, batch)

    left = run(Statistics(), loss, tmp_path, count=3)
    assert [record.updates[0].outcome for record in left.records] == ["ok", "bad_buffers", "ok"]
    assert left.records[1].updates[0].bad == (name,)


def test_an_infinite_buffer_that_becomes_nan_is_worse(tmp_path: Path) -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        model.running.fill_([math.inf, math.inf, math.nan, math.inf][batch[1]])
        return summed(model, batch)

    left = run(Statistics(), loss, tmp_path, count=4)
    assert [record.updates[0].outcome for record in left.records] == ["bad_buffers", "ok", "bad_buffers", "ok"]


def test_what_was_rolled_back_trips_again_when_it_turns_bad_again(tmp_path: Path) -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        if batch[1] in (1, 2):
            model.running.fill_(math.inf)
        return summed(model, batch)

    policy = Policy(dtype="bfloat16", autocast=False, buffers="rollback")
    model = Statistics()
    left = run(model, loss, tmp_path, count=4, policy=policy)
    assert [record.updates[0].outcome for record in left.records] == ["ok", "bad_buffers", "bad_buffers", "ok"]
    assert bool(torch.isfinite(model.running).all())


def test_a_retry_looks_at_the_buffers_anew(tmp_path: Path) -> None:
    model, tries = Statistics(), []

    def loss(model: Any, batch: Any) -> Tensor:
        tries.append(float(model.running[0]))
        if len(tries) < 3:
            model.running.fill_(math.inf)
        return summed(model, batch)

    left = run(model, loss, tmp_path, count=1, on_phase=lambda phase: "retry" if phase.trip else None)
    assert tries == [1.0, 1.0, 1.0]
    assert left.records[0].updates[0].applied


def test_losses_that_are_written_into_again_are_read_as_they_were(tmp_path: Path) -> None:
    average = torch.zeros(())

    def loss(model: Any, batch: Any) -> dict[str, Tensor]:
        average.fill_(float(batch[1]))
        return {"loss": summed(model, batch), "average": average}

    left = run(nn.Linear(4, 1), loss, tmp_path, count=4, accumulate=4)
    assert left.records[0].updates[0].shown == {"average": 1.5}


def test_losses_of_different_dtypes_share_a_window(tmp_path: Path) -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        value = summed(model, batch)
        return value.double() if batch[1] else value

    left = run(nn.Linear(4, 1), loss, tmp_path, count=2, accumulate=2)
    [record] = left.records[0].updates
    first, second = record.losses
    assert first == pytest.approx(second)


def test_a_nan_loss_of_an_update_without_gradients_leaves_the_scaler_alone(tmp_path: Path) -> None:
    """Nothing was unscaled, so `GradScaler.update` would find no inf checks."""
    model = nn.ModuleDict({"used": nn.Linear(4, 1), "owned": nn.Linear(4, 1)})
    left = run(
        model,
        lambda m, b: m["used"](b[0]).sum() * math.nan,
        tmp_path,
        optimizer=torch.optim.SGD(model["owned"].parameters(), lr=0.1),
        policy=Policy(autocast=False, scaler=Scaler(init_scale=8.0)),
    )
    assert [record.updates[0].outcome for record in left.records] == ["bad_loss", "bad_loss"]
    assert [record.scale_after for record in left.records] == [8.0, 8.0]


def test_an_update_without_gradients_is_said_to_be_skipped_for_that(tmp_path: Path) -> None:
    phases: list[Phase] = []
    model = nn.ModuleDict({"used": nn.Linear(4, 1), "owned": nn.Linear(4, 1)})
    run(
        model,
        lambda m, b: m["used"](b[0]).sum(),
        tmp_path,
        count=1,
        optimizer=torch.optim.SGD(model["owned"].parameters(), lr=0.1),
        on_phase=phases.append,
    )
    assert [phase.note for phase in phases if phase.name == "check_grads"] == ["skipped: no gradient"]


def test_layers_without_a_gradient_keep_their_place_among_the_norms(tmp_path: Path) -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 1), "b": nn.Linear(4, 1), "c": nn.Linear(4, 1)})
    left = run(model, lambda m, b: (m["a"](b[0]) + m["c"](b[0])).sum(), tmp_path, count=1)
    norms = list(left.records[0].updates[0].norms)
    assert [norm < 0 for norm in norms] == [False, False, True, True, False, False]
    assert math.hypot(*(norm for norm in norms if norm >= 0)) == pytest.approx(left.records[0].updates[0].norm)


@pytest.mark.parametrize("limit", [2.0, math.nextafter(2.0, 0.0), math.nextafter(2.0, 3.0), 2.000001, 1.999999])
def test_clipping_at_the_very_limit_is_torchs(limit: float, tmp_path: Path) -> None:
    gradients = []

    def keep(phase: Phase) -> None:
        if phase.name == "clip":
            gradients.append(model.weight.grad.clone())

    torch.manual_seed(0)
    model = nn.Linear(4, 1, bias=False)
    run(model, lambda m, b: (m(b[0]) / 2).sum(), tmp_path, count=1, clip_norm=limit, on_phase=keep)
    twin = nn.Linear(4, 1, bias=False)
    (twin(X) / 2).sum().backward()
    torch.nn.utils.clip_grad_norm_(twin.parameters(), limit)
    assert torch.equal(gradients[0], twin.weight.grad)


def test_how_an_update_was_clipped_is_noted(tmp_path: Path) -> None:
    notes = []
    for index, clip in enumerate(({"clip_norm": 1e-3}, {"clip_norm": 1e9}, {"clip_value": 1e-3}, {})):
        phases: list[Phase] = []
        run(nn.Linear(4, 1), summed, tmp_path / str(index), count=1, on_phase=phases.append, **clip)
        notes += [phase.note for phase in phases if phase.name == "clip"]
    assert notes == ["", "left out", "by value", "left out"]
