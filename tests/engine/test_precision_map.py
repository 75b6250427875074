"""The map of precision: which op ran in which dtype, and what autocast's casts wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Policy, Project, Update
from amptui.engine.precision_map import cast_seconds, precision_map, watch_case, watch_training
from amptui.engine.snapshot import Snapshot
from amptui.engine.tape import RngTape
from amptui.engine.watched_ops import OpKey
from tests.engine.benches import bench_of

FP16, BF16 = Policy(), Policy(dtype="bfloat16")


class Mixed(nn.Module):
    """A layer that autocast makes half, and a sum of squares that the project asks for in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return (self.enter(x).float() ** 2).sum(1)


def mixed(**changes: object) -> Project:
    torch.manual_seed(0)
    model = Mixed()
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda m, x: m(x).mean())
    values = {"model": model, "updates": [update], "batches": [torch.randn(8, 6) for _ in range(3)]}
    return Project(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("policy", "half"), [(FP16, "float16"), (BF16, "bfloat16")])
def test_ops_are_counted_by_module_and_dtype(tmp_path: Path, policy: Policy, half: str) -> None:
    told = precision_map(bench_of(mixed(), tmp_path), policy, RngTape(), trial=3)
    modules = {module.path: module for module in told.modules}

    assert (told.trial, told.dtype, told.failed) == (3, half, None)
    assert set(modules["enter"].ops) == {half}
    assert set(modules[""].ops) == {"float32"}
    assert set(modules["loss"].ops) == {"float32"}
    assert told.ops == {half: modules["enter"].ops[half], "float32": told.ops["float32"]}
    assert "ops ran in half" in told.words


def test_casts_are_counted_with_the_bytes_that_they_write(tmp_path: Path) -> None:
    told = precision_map(bench_of(mixed(), tmp_path), FP16, RngTape(), trial=1)
    enter = next(module for module in told.modules if module.path == "enter")

    inputs, weight, bias = 8 * 6 * 2, 6 * 4 * 2, 4 * 2
    gradients = 2 * (weight + bias)  # back to float32
    assert enter.cast_bytes == inputs + weight + bias + gradients
    assert enter.casts == 5
    assert told.cast_bytes == sum(module.cast_bytes for module in told.modules)


def test_casts_of_the_projects_own_are_told_apart(tmp_path: Path) -> None:
    told = precision_map(bench_of(mixed(), tmp_path), FP16, RngTape(), trial=1)

    assert told.own_casts == 1
    assert {module.path: module.own_casts for module in told.modules}[""] == 1


def test_without_autocast_nothing_is_half_and_this_is_said(tmp_path: Path) -> None:
    told = precision_map(bench_of(mixed(), tmp_path), Policy(autocast=False), RngTape(), trial=1)

    assert set(told.ops) == {"float32"}
    assert told.casts == 0
    assert told.words.endswith("ran in float32: autocast is off")


def test_an_fp32_region_is_seen_to_be_float32(tmp_path: Path) -> None:
    told = precision_map(bench_of(mixed(), tmp_path), Policy(fp32_regions=("enter",)), RngTape(), trial=1)

    assert set(told.ops) == {"float32"}


def test_a_project_that_trains_nothing_is_mapped_by_its_first_case(tmp_path: Path) -> None:
    torch.manual_seed(0)
    project = Project(model=Mixed(), cases=[Case(id="a", inputs=torch.randn(2, 6))])

    told = precision_map(bench_of(project, tmp_path), FP16, RngTape(), trial=1)

    assert {module.path for module in told.modules} == {"enter", ""}
    assert told.ops["float16"] == 1


def test_weights_that_a_trial_has_changed_stay_as_they_are(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda m, x: m(x).float().mean())
    bench = bench_of(mixed(model=model, updates=[update], cases=[Case(id="a", inputs=torch.ones(2, 6))]), tmp_path)
    with torch.no_grad():
        model[0].weight.add_(1.0)
    moved = Snapshot.take(bench.live.state)

    watch_training(bench, FP16, RngTape())
    watch_case(bench, FP16)

    assert moved.differences(Snapshot.take(bench.live.state)) is None
    assert all(p.grad is None for p in model.parameters())


def test_code_that_fails_in_the_dtype_is_named_and_what_ran_before_is_known(tmp_path: Path) -> None:
    def loss(model: nn.Module, x: Tensor) -> Tensor:
        hidden = model.enter(x)  # type: ignore[operator]
        return hidden.mean() + torch.zeros(8, 4).index_add_(0, torch.arange(8), hidden).sum()

    model = Mixed()
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
    bench = bench_of(mixed(model=model, updates=[update]), tmp_path)

    told = precision_map(bench, FP16, RngTape(), trial=1)

    assert told.failed is not None
    assert "same scalar type" in told.failed
    assert told.ops["float16"] >= 1


def test_an_op_is_known_by_its_place_and_by_how_often_it_ran_there(tmp_path: Path) -> None:
    found = watch_training(bench_of(mixed(), tmp_path), FP16, RngTape())
    [linear] = [key for key in found.dtypes if key.phase == "forward" and key.module == "enter"]

    assert (linear.op, found.dtype_of(linear, 0)) == ("addmm", "float16")
    assert found.dtype_of(linear, 5) == "float16", "all that was seen there was float16"
    assert found.dtype_of(OpKey("forward", "enter", "never", None), 0) is None


def test_casts_are_timed_on_cuda_only() -> None:
    assert cast_seconds({(torch.float32, torch.float16, 100): 3}, torch.device("cpu")) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_casts_take_time_on_cuda() -> None:
    seconds = cast_seconds({(torch.float32, torch.float16, 1 << 20): 3}, torch.device("cuda"))

    assert seconds is not None
    assert 0.0 < seconds < 1.0
