"""The plain step is the loop that PyTorch's documentation writes: same bits as that loop and as the guarded one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from amptui import Policy, Project, Scaler, Update
from amptui.engine.live import LiveProject
from amptui.engine.measuring.plain_step import PlainLoop
from tests.engine.benches import bench_of
from tests.engine.projects import Net, assert_same_bits, batches, guarded, plain_amp_loop, state_of, weighted_loss


def net() -> Net:
    torch.manual_seed(5)
    model = Net()
    model.drop.p = 0.0  # no random numbers: the plain loop has no tape
    return model


def update_of(model: nn.Module, optimizer: str, **settings: Any) -> Update:
    made: dict[str, Any] = {
        "adamw": lambda: torch.optim.AdamW(model.parameters(), lr=0.01),
        "fused": lambda: torch.optim.AdamW(model.parameters(), lr=0.01, fused=True),
        "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
    }
    return Update(optimizer=made[optimizer](), loss=weighted_loss, **settings)


def run_plain(live: LiveProject, policy: Policy, *, mixed: bool = True) -> PlainLoop:
    loop = PlainLoop(live, policy, mixed, policy.effective_scaler if mixed else None)
    for step in range(live.batches.iterations):
        loop.step(step, list(live.batches.window(step)))
    return loop


@pytest.mark.parametrize("optimizer", ["adamw", "fused", "sgd"])
@pytest.mark.parametrize("settings", [{}, {"clip_norm": 0.05}, {"clip_value": 0.01}, {"accumulate": 2}])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_weights_and_scale_are_those_of_the_documented_loop(
    tmp_path: Path, optimizer: str, settings: dict[str, Any], dtype: str
) -> None:
    policy = Policy(dtype=dtype, scaler=Scaler(init_scale=1024.0) if dtype == "float16" else None)
    data = batches(8, bad=[3] if dtype == "float16" else [])
    model, twin = net(), net()
    update, expected = update_of(model, optimizer, **settings), update_of(twin, optimizer, **settings)
    bench = bench_of(Project(model=model, updates=[update], batches=data), tmp_path, policy)

    loop = run_plain(bench.live, policy)
    scaler = plain_amp_loop(
        twin,
        [expected],
        data,
        dtype=getattr(torch, dtype),
        scaler=policy.effective_scaler,  # type: ignore[arg-type]
    )

    assert_same_bits(state_of(model, [update]), state_of(twin, [expected]))
    if scaler is not None and loop.scaler is not None:
        assert loop.scaler.get_scale() == scaler.get_scale()


def test_without_a_trip_it_is_the_guarded_loop_bit_for_bit(tmp_path: Path) -> None:
    policy = Policy(scaler=Scaler(init_scale=256.0))
    model, twin = net(), net()
    one, other = update_of(model, "adamw", clip_norm=0.1), update_of(twin, "adamw", clip_norm=0.1)
    plain = bench_of(Project(model=model, updates=[one], batches=batches(6)), tmp_path / "plain", policy)
    watched = bench_of(Project(model=twin, updates=[other], batches=batches(6)), tmp_path / "guarded", policy)

    run_plain(plain.live, policy)
    guarded(watched.live, policy)

    assert_same_bits(state_of(model, [one]), state_of(twin, [other]))


def test_fp32_knows_neither_autocast_nor_scaler(tmp_path: Path) -> None:
    seen: list[torch.dtype] = []

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        out = model(batch[0])
        seen.append(out.dtype)
        return out.float().mean()

    model = net()
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
    bench = bench_of(Project(model=model, updates=[update], batches=batches(2)), tmp_path)

    assert run_plain(bench.live, Policy(), mixed=False).scaler is None
    assert set(seen) == {torch.float32}
    run_plain(bench.live, Policy())
    assert seen[-1] == torch.float16


def test_an_update_takes_part_in_its_own_iterations_only(tmp_path: Path) -> None:
    taken: list[str] = []

    def loss_of(name: str) -> Any:
        def loss(model: dict[str, nn.Module], batch: Any) -> torch.Tensor:
            taken.append(name)
            return model[name](batch[0]).float().mean()

        return loss

    models = {"often": nn.Linear(6, 1), "seldom": nn.Linear(6, 1)}
    updates = [
        Update(
            name=name,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            loss=loss_of(name),
            every=1 if name == "often" else 2,
        )
        for name, model in models.items()
    ]
    bench = bench_of(Project(model=models, updates=updates, batches=batches(3)), tmp_path)

    run_plain(bench.live, Policy())

    assert taken == ["often", "seldom", "often", "often", "seldom"]


def test_an_iteration_without_any_update_leaves_the_scaler_alone(tmp_path: Path) -> None:
    model = net()
    update = update_of(model, "sgd", every=2)
    bench = bench_of(Project(model=model, updates=[update], batches=batches(4)), tmp_path)

    loop = run_plain(bench.live, Policy())  # GradScaler.update would raise

    assert loop.scaler is not None
