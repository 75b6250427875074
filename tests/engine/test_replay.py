"""A failing iteration once more: the scale that fits is exact, and nothing live is changed."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from amptui import Policy, Project, Scaler, Update
from amptui.engine import rng
from amptui.engine.failures import UserCodeError
from amptui.engine.iteration import GuardedRun
from amptui.engine.live import LiveProject
from amptui.engine.plain_values import same_bits
from amptui.engine.precision import PrecisionSettings
from amptui.engine.replay import fitting_scale, replay, untouched
from amptui.engine.snapshot import Snapshot
from amptui.engine.switches import Switches
from amptui.engine.tape import RngTape
from tests.engine.projects import Net, batches, opened, weighted_loss


class PrivateGenerator:
    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(1)

    def get_state(self) -> Tensor:
        return self.generator.get_state()

    def set_state(self, state: Tensor) -> None:
        self.generator.set_state(state)


class Contrastive(nn.Module):
    """A net with a momentum encoder, whose parameters its forward changes itself."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()
        self.momentum = nn.Linear(6, 1)
        self.momentum.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        self.momentum.weight.data.mul_(0.9)
        return self.net(x) + self.momentum(x)


def everything_changing() -> tuple[Project, dict[str, Any]]:
    """A loss that touches all that a forward may touch."""
    torch.manual_seed(3)
    model, average, private = Contrastive(), nn.Linear(6, 1), PrivateGenerator()

    def loss(m: Any, batch: Any) -> Tensor:
        x, y, weight = batch
        with torch.no_grad():
            average.weight.mul_(0.5)
        noise = torch.rand(8, 1, generator=private.generator) + random.random() + np.random.rand()
        m.net.drop.train()
        x.mul_(1.0)
        torch.set_grad_enabled(True)
        return ((m(x) + noise - y).float() ** 2).mean() * weight

    update = Update(optimizer=torch.optim.SGD(model.net.parameters(), lr=0.1, momentum=0.9), loss=loss)
    extra = {"average": average, "private": private}
    return Project(model=model, updates=[update], batches=batches(2), extra_state=extra), extra


def running(live: LiveProject, **policy: Any) -> GuardedRun:
    return GuardedRun(live, Policy(**policy), mixed=True, tape=RngTape())


@pytest.mark.parametrize("how", [{"fp32": True}, {"scale": 1.0}, {}])
@pytest.mark.parametrize("fails", [False, True])
def test_a_replay_leaves_nothing_changed(how: dict[str, Any], fails: bool, tmp_path: Path) -> None:
    project, extra = everything_changing()
    live = opened(project, tmp_path)
    live.self_changing.update({"momentum.weight", "extra:average.weight"})  # as preflight finds them
    update = live.updates[0]
    run = running(live, scaler=Scaler(init_scale=8.0))
    for parameter in update.parameters:
        parameter.grad = torch.full_like(parameter, 7.0)
    if fails:
        live.project.model.register_forward_hook(lambda *_: 1 / 0)
    live.project.model.net.drop.eval()
    before, switches, precision = Snapshot.take(live.state), Switches.current(), PrecisionSettings.current()
    average = extra["average"].weight.clone()
    scaler, optimizer = run.scaler.state_dict(), copy.deepcopy(update.update.optimizer.state_dict())  # type: ignore[union-attr]

    if fails:
        with pytest.raises(UserCodeError):
            replay(run, update, 0, **how)
    else:
        replay(run, update, 0, **how)

    assert before.differences(Snapshot.take(live.state)) is None, "weights, buffers, flags, extra state, generators"
    assert not live.project.model.net.drop.training
    assert all(bool((p.grad == 7.0).all()) for p in update.parameters if p.grad is not None)
    assert run.scaler is not None
    assert run.scaler.state_dict() == scaler
    assert update.update.optimizer.state_dict()["state"] == optimizer["state"] == {}
    assert Switches.current() == switches
    assert PrecisionSettings.current() == precision
    assert torch.equal(average, extra["average"].weight), "modules of extra_state too"


def test_without_a_restored_generator_the_course_after_a_replay_would_be_another(tmp_path: Path) -> None:
    project, _ = everything_changing()
    live = opened(project, tmp_path)
    before = rng.capture()
    with untouched(live):
        torch.rand(3), random.random(), np.random.rand()
    assert rng.capture() == before


def test_a_replay_gives_the_runs_own_gradients_bit_for_bit(tmp_path: Path) -> None:
    torch.manual_seed(1)
    model = Net()
    update = Update(
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0), loss=weighted_loss, accumulate=2, clip_norm=1e9
    )
    live = opened(Project(model=model, updates=[update], batches=batches(4)), tmp_path)
    run = running(live, scaler=Scaler(init_scale=1000.0))  # no power of two: unscaling rounds
    phases = run.iteration(0)
    for phase in phases:
        if phase.name == "check_grads":
            break
    lived = [parameter.grad.clone() for parameter in live.updates[0].parameters if parameter.grad is not None]
    again = replay(run, live.updates[0], 0)
    assert all(same_bits(mine, its) for mine, its in zip(lived, again.gradients, strict=True) if its is not None)
    assert len(again.losses) == 2
    assert again.finite


def test_in_true_fp32_the_policy_and_the_scaler_play_no_part(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    seen: list[torch.dtype] = []

    def loss(m: Any, batch: Any) -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            out = m(batch[0])
        seen.append(out.dtype)
        return out.float().sum()

    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
    live = opened(Project(model=model, updates=[update], batches=[(torch.ones(2, 4),)]), tmp_path)
    found = replay(running(live, scaler=Scaler(init_scale=2.0**120)), live.updates[0], 0, fp32=True)
    assert seen == [torch.float32]
    assert found.gradients[0] is not None
    assert torch.equal(found.gradients[0], torch.full((1, 4), 2.0))


def test_what_the_project_raises_in_a_replay_is_its_failure(tmp_path: Path) -> None:
    def loss(m: Any, batch: Any) -> Tensor:
        raise SystemExit(1)

    model = nn.Linear(4, 1)
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
    live = opened(Project(model=model, updates=[update], batches=[(torch.ones(2, 4),)]), tmp_path)
    with pytest.raises(UserCodeError):
        replay(running(live), live.updates[0], 0)


@pytest.mark.parametrize("factor", [1.0, 3.7, 40.0, 1000.0, 6e4, 1.2e5])
@pytest.mark.parametrize("initial", [65536.0, 2.0**20, 3000.0, 1.5])
def test_the_scale_that_fits_is_the_largest_power_of_two_below_the_runs(
    factor: float, initial: float, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    update = Update(
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda m, b: (m(b[0]).float() * factor).sum()
    )
    live = opened(Project(model=model, updates=[update], batches=[(torch.ones(1, 4),)]), tmp_path)
    run = running(live, scaler=Scaler(init_scale=initial))
    powers = [2.0**k for k in range(64) if 2.0**k <= initial]
    fits = [scale for scale in powers if replay(run, live.updates[0], 0, scale=scale).gradients_finite]
    if replay(run, live.updates[0], 0).gradients_finite:
        return  # nothing failed, so nothing is to be found
    assert fitting_scale(run, live.updates[0], 0) == (max(fits) if fits else None)


def test_where_no_scale_helps_none_is_named(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda m, b: (m(b[0]) * 1e30).sum())
    live = opened(Project(model=model, updates=[update], batches=[(torch.ones(1, 4),)]), tmp_path)
    assert fitting_scale(running(live, scaler=Scaler()), live.updates[0], 0) is None
    assert fitting_scale(running(live, dtype="bfloat16"), live.updates[0], 0) is None, "there is no scaler"


def test_a_default_dtype_of_the_projects_own_changes_no_scale(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda m, b: m(b[0]).float().sum())
    live = opened(Project(model=model, updates=[update], batches=[(torch.ones(2, 4),)]), tmp_path)
    run = running(live, scaler=Scaler(init_scale=1000.0))
    expected = replay(run, live.updates[0], 0)
    torch.set_default_dtype(torch.float64)
    try:
        found = replay(run, live.updates[0], 0)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(same_bits(a, b) for a, b in zip(expected.gradients, found.gradients, strict=True) if a is not None)
