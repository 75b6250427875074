"""The guarded iteration is the plain AMP loop, bit for bit, and withholds what the plain loop would spoil."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Policy, Project, Scaler, Update
from amptui.protocol.facts import PHASES
from tests.engine.projects import (
    Net,
    assert_same_bits,
    batches,
    guarded,
    opened,
    plain_amp_loop,
    state_of,
    weighted_loss,
)

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused adamw": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "fused sgd": lambda p: torch.optim.SGD(p, lr=0.05, fused=True),
    "fused sgd momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
}


def single(make: Callable[[Any], torch.optim.Optimizer], **settings: Any) -> tuple[nn.Module, list[Update]]:
    torch.manual_seed(11)
    model = Net()
    optimizer = make(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
    return model, [Update(optimizer=optimizer, loss=weighted_loss, scheduler=scheduler, **settings)]


@pytest.mark.parametrize(
    "clip", [{}, {"clip_norm": 0.05}, {"clip_norm": 1.0}, {"clip_norm": 1e9}, {"clip_value": 0.01}]
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_buffers_state_and_scale_equal_the_plain_loop(
    optimizer: str, dtype: str, clip: dict[str, float], tmp_path: Path
) -> None:
    # the first batch must not overflow for fused SGD with momentum: there the plain loop itself destroys the weights
    bad = (2, 5, 6) if dtype == "float16" else ()
    data = batches(12, bad=bad)
    scaler = Scaler(init_scale=4096.0, growth_interval=4) if dtype == "float16" else None

    model, updates = single(OPTIMIZERS[optimizer], **clip)
    torch.manual_seed(5)
    grad_scaler = plain_amp_loop(model, updates, data, dtype=getattr(torch, dtype), scaler=scaler)
    expected, rate = state_of(model, updates), updates[0].optimizer.param_groups[0]["lr"]

    twin, twin_updates = single(OPTIMIZERS[optimizer], **clip)
    live = opened(Project(model=twin, updates=twin_updates, batches=data), tmp_path)
    torch.manual_seed(5)
    left = guarded(live, Policy(dtype=dtype, scaler=scaler))

    assert_same_bits(state_of(twin, twin_updates), expected)
    assert twin_updates[0].optimizer.param_groups[0]["lr"] == rate
    applied = [record.updates[0].applied for record in left.records]
    assert applied == [index not in bad for index in range(12)]
    if grad_scaler is not None:
        assert left.run.scaler is not None
        assert left.run.scaler.state_dict() == grad_scaler.state_dict()
        assert left.run.scale == grad_scaler.get_scale(), "the host mirror of the scale"
        assert left.records[-1].growth_tracker == grad_scaler.state_dict()["_growth_tracker"]


@pytest.mark.parametrize("optimizer", ["sgd momentum", "fused adamw"])
def test_accumulation_equals_the_plain_loop_and_skips_the_whole_window(optimizer: str, tmp_path: Path) -> None:
    data = batches(12, bad=(5,))
    scaler = Scaler(init_scale=1024.0)
    model, updates = single(OPTIMIZERS[optimizer], accumulate=3, clip_norm=0.5)
    torch.manual_seed(5)
    plain_amp_loop(model, updates, data, dtype=torch.float16, scaler=scaler)

    twin, twin_updates = single(OPTIMIZERS[optimizer], accumulate=3, clip_norm=0.5)
    live = opened(Project(model=twin, updates=twin_updates, batches=data), tmp_path)
    torch.manual_seed(5)
    left = guarded(live, Policy(scaler=scaler))

    assert_same_bits(state_of(twin, twin_updates), state_of(model, updates))
    assert [record.updates[0].applied for record in left.records] == [True, False, True, True]
    assert left.records[1].updates[0].skipped
    assert len(left.records[1].updates[0].losses) == 3


def two_updates(every: int) -> tuple[dict[str, nn.Module], list[Update]]:
    torch.manual_seed(2)
    model = {"a": Net(), "b": nn.Linear(1, 1)}

    def loss_a(models: dict[str, nn.Module], batch: Any) -> Tensor:
        return weighted_loss(models["a"], batch)

    def loss_b(models: dict[str, nn.Module], batch: Any) -> Tensor:
        # sees the weights that the first update has just changed, and leaves a gradient in them
        return ((models["b"](models["a"](batch[0])) - batch[1]).float() ** 2).mean()

    return model, [
        Update(name="a", optimizer=torch.optim.AdamW(model["a"].parameters(), lr=0.01), loss=loss_a, accumulate=2),
        Update(
            name="b",
            optimizer=torch.optim.SGD(model["b"].parameters(), lr=0.05, momentum=0.9),
            loss=loss_b,
            accumulate=2,
            every=every,
            clip_norm=0.1,
        ),
    ]


@pytest.mark.parametrize("every", [1, 2])
def test_two_updates_share_the_scale_and_skip_each_for_itself(every: int, tmp_path: Path) -> None:
    data = batches(16, bad=(4, 9))
    scaler = Scaler(init_scale=2048.0, growth_interval=3)
    model, updates = two_updates(every)
    torch.manual_seed(5)
    grad_scaler = plain_amp_loop(model, updates, data, dtype=torch.float16, scaler=scaler)

    twin, twin_updates = two_updates(every)
    live = opened(Project(model=twin, updates=twin_updates, batches=data), tmp_path)
    torch.manual_seed(5)
    left = guarded(live, Policy(scaler=scaler))

    assert grad_scaler is not None
    assert_same_bits(state_of(twin, twin_updates), state_of(model, updates))
    assert left.run.scale == grad_scaler.get_scale()
    skipped = {(u.step, u.update) for record in left.records for u in record.updates if u.skipped}
    assert skipped == {(2, "a"), (4, "a")}
    took_part = [len(record.updates) for record in left.records]
    assert took_part == [2 if step % every == 0 else 1 for step in range(8)]


def test_fused_sgd_with_momentum_survives_a_skipped_first_step(tmp_path: Path) -> None:
    """In the plain loop the kernel leaves an uninitialised momentum behind, which the second step applies."""
    model, updates = single(OPTIMIZERS["fused sgd momentum"])
    live = opened(Project(model=model, updates=updates, batches=batches(6, bad=(0,))), tmp_path)
    left = guarded(live, Policy(scaler=Scaler(init_scale=4096.0)))
    assert [record.updates[0].applied for record in left.records] == [False, True, True, True, True, True]
    assert all(bool(parameter.abs().max() < 10.0) for parameter in model.parameters())


def test_phases_come_in_the_documented_order_and_by_their_names(tmp_path: Path) -> None:
    model, updates = single(OPTIMIZERS["adamw"], accumulate=2, clip_norm=0.01)
    live = opened(Project(model=model, updates=updates, batches=batches(2)), tmp_path)
    left = guarded(live, Policy(scaler=Scaler(init_scale=64.0)))
    micro = ["forward", "check_loss", "backward"]
    assert [phase.name for phase in left.phases] == [
        "zero_grad", *micro, *micro, "unscale", "check_grads", "clip", "step", "update_scale", "scheduler",
    ]  # fmt: skip
    assert {phase.name for phase in left.phases} == set(PHASES)


def test_stepping_reads_each_value_as_it_is_shown_and_changes_nothing(tmp_path: Path) -> None:
    states = []
    for stepping in (False, True):
        model, updates = single(OPTIMIZERS["adamw"])
        live = opened(Project(model=model, updates=updates, batches=batches(4, bad=(1,))), tmp_path / str(stepping))
        torch.manual_seed(5)
        left = guarded(live, Policy(scaler=Scaler(init_scale=4096.0)), stepping=stepping)
        forward = [phase for phase in left.phases if phase.name == "forward"]
        assert all(("loss" in phase.values) is stepping for phase in forward)
        states.append(state_of(model, updates))
    assert_same_bits(*states)


def outcomes(left: Any) -> list[str]:
    return [update.outcome for record in left.records for update in record.updates]


def one_layer(loss: Callable[[nn.Module, Any], Any], count: int = 3, **settings: Any) -> tuple[nn.Module, Project]:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss, **settings)
    return model, Project(model=model, updates=[update], batches=[(torch.ones(2, 4), i) for i in range(count)])


def test_without_a_scaler_a_nan_loss_is_withheld_where_the_plain_loop_would_write_nan(tmp_path: Path) -> None:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return model(batch[0]).float().sum() * (math.nan if batch[1] == 1 else 1.0)

    model, project = one_layer(loss)
    left = guarded(opened(project, tmp_path), Policy(dtype="bfloat16"))
    assert outcomes(left) == ["ok", "bad_loss", "ok"]
    [record] = left.records[1].updates
    assert record.withheld
    assert not record.skipped
    assert record.bad[0] == "micro-batch 0"
    assert bool(torch.isfinite(model.weight).all())


def test_a_bad_loss_with_finite_gradients_leaves_the_growth_tracker_as_the_plain_loop_would(tmp_path: Path) -> None:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        value = model(batch[0]).float().sum()
        return value + torch.tensor(math.inf) if batch[1] == 1 else value

    _, project = one_layer(loss)
    left = guarded(opened(project, tmp_path), Policy(scaler=Scaler(init_scale=16.0)))
    assert outcomes(left) == ["ok", "bad_loss", "ok"]
    assert [record.growth_tracker for record in left.records] == [1, 2, 3]
    assert left.records[1].updates[0].withheld


class Times(torch.autograd.Function):
    """The identity, whose backward multiplies the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        return (gradient.double() * ctx.factor).float(), None


def test_a_scale_below_one_hides_an_overflow_that_only_unscaling_makes(tmp_path: Path) -> None:
    # scaled gradient 1e38, found_inf 0, and times 2**20 infinite
    model, project = one_layer(lambda m, b: Times.apply(m(b[0]).float(), 2.0**20 * 1e37).sum(), count=1)
    left = guarded(opened(project, tmp_path), Policy(autocast=False, scaler=Scaler(init_scale=2.0**-20)))
    [record] = left.records[0].updates
    assert record.outcome == "bad_after_unscale"
    assert not record.found_inf
    assert record.withheld
    assert bool(torch.isfinite(model.weight).all())


def test_a_collapsed_scale_writes_nothing(tmp_path: Path) -> None:
    """At 2^-128 and below the inverse is infinite, found_inf stays 0 and the plain loop writes NaN."""
    model, project = one_layer(lambda m, b: m(b[0]).float().sum(), count=1)
    left = guarded(opened(project, tmp_path), Policy(scaler=Scaler(init_scale=2.0**-140)))
    [record] = left.records[0].updates
    assert record.outcome == "bad_after_unscale"
    assert record.withheld
    assert bool(torch.isfinite(model.weight).all())


def test_a_norm_that_overflows_with_finite_gradients_is_told_apart(tmp_path: Path) -> None:
    _, project = one_layer(lambda m, b: Times.apply(m(b[0]).float(), 1e30).sum(), count=1, clip_norm=1.0)
    left = guarded(opened(project, tmp_path), Policy(autocast=False, scaler=None))
    [record] = left.records[0].updates
    assert record.outcome == "norm_overflow"
    assert record.withheld
    assert record.norm == math.inf


def test_buffers_that_turn_bad_trip_once_and_are_named(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))
    data = [(torch.full((2, 4), 1e30 if i == 1 else 1.0) * torch.tensor([[1.0], [2.0]]), i) for i in range(4)]
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda m, b: m(b[0]).float().mean())
    live = opened(Project(model=model, updates=[update], batches=data), tmp_path)
    left = guarded(live, Policy(dtype="bfloat16"))
    assert outcomes(left) == ["ok", "bad_buffers", "ok", "ok"]
    assert left.records[1].updates[0].bad == ("0.running_var",)
    assert not bool(torch.isfinite(model[0].running_var).all()), "kept as the plain loop leaves them"


def test_buffers_are_rolled_back_where_the_policy_says_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))
    data = [(torch.full((2, 4), 1e30 if i == 1 else 1.0) * torch.tensor([[1.0], [2.0]]), i) for i in range(2)]
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda m, b: m(b[0]).float().mean())
    live = opened(Project(model=model, updates=[update], batches=data), tmp_path)
    before: list[Tensor] = []

    def on_phase(phase: Any) -> None:
        if phase.step == 1 and phase.name == "zero_grad":
            before.append(model[0].running_var.clone())

    guarded(live, Policy(dtype="bfloat16", buffers="rollback"), on_phase=on_phase)
    assert torch.equal(model[0].running_var, before[0])


def test_an_infinite_buffer_that_was_there_from_the_start_is_no_fault(tmp_path: Path) -> None:
    model, project = one_layer(lambda m, b: m(b[0]).float().sum())
    model.register_buffer("mask", torch.tensor([0.0, -math.inf]))
    assert outcomes(guarded(opened(project, tmp_path), Policy(dtype="bfloat16"))) == ["ok"] * 3


def test_an_update_without_gradients_is_neither_applied_nor_skipped(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"used": nn.Linear(4, 1), "unused": nn.Linear(4, 1)})

    def loss(m: Any, batch: Any) -> Tensor:
        return m["used"](batch[0]).float().sum()

    updates = [
        Update(name="used", optimizer=torch.optim.SGD(model["used"].parameters(), lr=0.1), loss=loss),
        Update(name="unused", optimizer=torch.optim.SGD(model["unused"].parameters(), lr=0.1), loss=loss),
    ]
    live = opened(Project(model=model, updates=updates, batches=[(torch.ones(2, 4),)] * 2), tmp_path)
    left = guarded(live, Policy(scaler=Scaler(init_scale=16.0)))
    assert outcomes(left) == ["ok", "no_gradient"] * 2
    assert [record.growth_tracker for record in left.records] == [1, 2]
    lone = Project(model=model, updates=updates[1:], batches=[(torch.ones(2, 4),)] * 2)
    alone = guarded(opened(lone, tmp_path / "2"), Policy(scaler=Scaler(init_scale=16.0)))
    assert [record.growth_tracker for record in alone.records] == [0, 0], "nothing was unscaled: no update()"


def test_a_step_hook_that_spoils_gradients_is_caught_behind_the_guard(tmp_path: Path) -> None:
    for fused in (False, True):
        model, project = one_layer(lambda m, b: m(b[0]).float().sum(), count=2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
        project = Project(
            model=model, updates=[Update(optimizer=optimizer, loss=lambda m, b: m(b[0]).float().sum())],
            batches=project.batches,
        )  # fmt: skip
        calls = []

        def spoil(opt: torch.optim.Optimizer, *_: Any, calls: list[int] = calls) -> None:
            calls.append(1)
            if len(calls) == 1:
                opt.param_groups[0]["params"][0].grad.fill_(math.nan)

        optimizer.register_step_pre_hook(spoil)
        left = guarded(opened(project, tmp_path / str(fused)), Policy(scaler=Scaler(init_scale=16.0)))
        assert outcomes(left) == ["bad_before_step", "ok"]
        assert left.records[0].updates[0].bad == ("weight",)
        assert bool(torch.isfinite(model.weight).all())
        assert not hasattr(optimizer, "grad_scale") or optimizer.grad_scale is None


def test_a_retry_puts_buffers_and_rng_back_and_runs_the_window_at_the_new_scale(tmp_path: Path) -> None:
    model, updates = single(OPTIMIZERS["adamw"])
    live = opened(Project(model=model, updates=updates, batches=batches(1, bad=(0,), factor=64.0)), tmp_path)
    torch.manual_seed(5)
    left = guarded(
        live, Policy(scaler=Scaler(init_scale=65536.0)), on_phase=lambda p: "retry" if p.trip is not None else None
    )
    tried = [phase for phase in left.phases if phase.trip is not None]
    assert len(tried) >= 1
    assert left.records[0].updates[0].applied
    assert left.run.scale == 65536.0 * 0.5 ** len(tried)
    assert int(model.norm.num_batches_tracked) == 1, "each retry started from the buffers before it"
    losses = {phase.trip.loss for phase in tried if phase.trip} | {left.records[0].updates[0].loss}
    assert len(losses) == 1, "the same dropout mask each time"


def test_a_loss_mapping_shows_its_other_entries(tmp_path: Path) -> None:
    def loss(m: nn.Module, b: Any) -> dict[str, Any]:
        value = m(b[0]).float().sum()
        return {"loss": value, "twice": value.detach() * 2, "rows": 2, "name": "not a number"}

    _, project = one_layer(loss, count=1)
    [record] = guarded(opened(project, tmp_path), Policy(dtype="bfloat16")).records[0].updates
    assert record.shown == {"twice": pytest.approx(record.loss * 2), "rows": 2.0}


def test_a_plateau_scheduler_gets_the_windows_mean_loss_and_says_so(tmp_path: Path) -> None:
    seen = []

    class Plateau(torch.optim.lr_scheduler.ReduceLROnPlateau):
        def step(self, metrics: Any, epoch: Any = None) -> None:  # type: ignore[override]
            seen.append(metrics)
            super().step(metrics)

    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    update = Update(
        optimizer=optimizer, loss=lambda m, b: m(b[0]).float().sum(), scheduler=Plateau(optimizer), scheduler_every=2
    )
    live = opened(Project(model=model, updates=[update], batches=[(torch.ones(2, 4),)] * 4), tmp_path)
    left = guarded(live, Policy(dtype="bfloat16"))
    assert seen == [left.records[1].updates[0].loss, left.records[3].updates[0].loss]
    assert any("Plateau got the window's mean loss" in phase.note for phase in left.phases if phase.name == "scheduler")


def test_sum_reduction_does_not_divide(tmp_path: Path) -> None:
    norms = {}
    for reduce in ("mean", "sum"):
        _, project = one_layer(lambda m, b: m(b[0]).float().sum(), count=4, accumulate=4, reduce=reduce)
        norms[reduce] = guarded(opened(project, tmp_path / reduce), Policy(dtype="bfloat16")).records[0].updates[0].norm
    assert norms["sum"] == pytest.approx(4 * norms["mean"])
