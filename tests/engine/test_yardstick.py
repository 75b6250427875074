"""Other seeds: what they change in FP32, measured on the same late batches, from the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Project, Update
from amptui.engine.baseline import Baseline, run_baseline
from amptui.engine.bench import Bench
from amptui.engine.course import Stopped
from amptui.engine.yardstick import measure_seeds
from amptui.findings.gain import SeedSpread
from amptui.protocol.events import SeedsMeasured
from tests.engine.benches import bench_of, unchanged
from tests.engine.projects import batches


def project(loss: Any, *, dropout: float = 0.0, count: int = 8, **changes: Any) -> Project:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(dropout), nn.Linear(8, 1))
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.05), loss=loss)
    values: dict[str, Any] = {
        "model": model,
        "updates": [update],
        "batches": batches(count),
        "cases": [Case(id="a", inputs=torch.ones(1, 6), target=torch.zeros(1))],
        "quality": lambda rows: float(rows[0].outputs.mean()),
    }
    return Project(**{**values, **changes})


def distance(model: nn.Module, batch: Any) -> Tensor:
    return (model(batch[0]) - batch[1]).pow(2).mean()


def measured(project: Project, folder: Path, seeds: int = 3) -> tuple[Bench, Baseline, SeedsMeasured]:
    bench = bench_of(project, folder)
    baseline = run_baseline(bench)
    return bench, baseline, measure_seeds(bench, baseline, seeds)


def of(told: SeedsMeasured, what: str) -> SeedSpread:
    return next(spread for spread in told.spreads if spread.what == what)


def test_loss_and_quality_of_every_seed_stand_beside_the_baselines(tmp_path: Path) -> None:
    _, baseline, told = measured(project(distance, dropout=0.5), tmp_path)

    loss, quality = of(told, "loss of main"), of(told, "quality")
    assert told.seeds == 3
    assert loss.baseline == baseline.evidence.late_loss["main"]
    assert quality.baseline == baseline.evidence.quality
    assert len(set(loss.others)) == len(set(quality.others)) == 3


def test_the_checkpoints_state_is_as_before(tmp_path: Path) -> None:
    bench, _, _ = measured(project(distance, dropout=0.5), tmp_path)

    assert unchanged(bench)


def test_the_same_seeds_give_the_same_figures(tmp_path: Path) -> None:
    one = measured(project(distance, dropout=0.5), tmp_path / "one")[2]
    two = measured(project(distance, dropout=0.5), tmp_path / "two")[2]

    assert one.spreads == two.spreads


def test_the_late_batches_keep_their_place_and_the_early_ones_change_theirs(tmp_path: Path) -> None:
    order: list[float] = []

    def loss(model: nn.Module, batch: Any) -> Tensor:
        order.append(float(batch[0].sum()))
        return distance(model, batch)

    bench = bench_of(project(loss), tmp_path)
    baseline = run_baseline(bench)
    first = order[-8:]
    order.clear()
    measure_seeds(bench, baseline, 2)
    runs = order[:8], order[8:]

    for run in runs:
        assert sorted(run) == sorted(first), "every batch once"
        assert run[-2:] == first[-2:]
    assert runs[0] != runs[1]
    assert runs[0] != first


def test_windows_of_micro_batches_stay_together(tmp_path: Path) -> None:
    order: list[float] = []

    def loss(model: nn.Module, batch: Any) -> Tensor:
        order.append(float(batch[0].sum()))
        return distance(model, batch)

    model = nn.Linear(6, 1)
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.05), loss=loss, accumulate=2)
    bench = bench_of(Project(model=model, updates=[update], batches=batches(8)), tmp_path)
    baseline = run_baseline(bench)
    windows = {tuple(order[-8:][n : n + 2]) for n in range(0, 8, 2)}
    order.clear()
    measure_seeds(bench, baseline, 1)

    assert {tuple(order[n : n + 2]) for n in range(0, 8, 2)} == windows


def test_without_a_quality_there_is_none(tmp_path: Path) -> None:
    _, _, told = measured(project(distance, quality=None), tmp_path)

    assert [spread.what for spread in told.spreads] == ["loss of main"]


def test_it_can_be_ended(tmp_path: Path) -> None:
    bench = bench_of(project(distance), tmp_path)
    baseline = run_baseline(bench)

    def stop() -> None:
        raise Stopped

    object.__setattr__(bench, "between", stop)
    with pytest.raises(Stopped):
        measure_seeds(bench, baseline, 1)
    assert unchanged(bench)
