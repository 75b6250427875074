"""The forecast: FP32 alone names what will overflow, and the loss scale that fits; a trial then shows the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Policy, Project, Scaler, Update
from amptui.engine.forecast import LEAST, WINDOWS, forecast
from amptui.engine.tape import RngTape
from amptui.findings.foreseen import DtypeForecast
from amptui.protocol.events import ForecastMade
from tests.engine.benches import bench_of, unchanged
from tests.engine.projects import guarded

Loss = Callable[[Any, Any], Tensor]


class Net(nn.Module):
    def __init__(self, width: int = 8, gain: float = 1.0) -> None:
        super().__init__()
        self.enter = nn.Linear(6, width)
        self.head = nn.Linear(width, 3)
        with torch.no_grad():
            self.enter.weight.mul_(gain)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.enter(x)))


def data(count: int = 4, *, loud: int | None = None, factor: float = 1.0, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(8, 6, generator=generator) for _ in range(count)]
    if loud is not None:
        drawn[loud] = drawn[loud] * factor
    return drawn


def squared(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).float().pow(2).mean()


def project(model: nn.Module, loss: Loss = squared, batches: Sequence[Any] = (), **changes: Any) -> Project:
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=1e-4), loss=loss)
    return Project(model=model, updates=[update], batches=list(batches) or data(), **changes)


def made(project: Project, folder: Path) -> ForecastMade:
    torch.manual_seed(0)
    return forecast(bench_of(project, folder), RngTape())


def of(event: ForecastMade, dtype: str = "float16") -> DtypeForecast:
    assert event.failed is None
    return next(told for told in event.dtypes if told.dtype == dtype)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


class TestWhatOverflows:
    def test_a_healthy_project_has_no_overflow_and_some_headroom(self, tmp_path: Path) -> None:
        told = of(made(project(Net()), tmp_path))

        assert told.overflows == ()
        forward = [place for place in told.places if place.phase == "forward"]
        assert {place.module for place in forward} >= {"enter", "head"}
        assert all(place.headroom == pytest.approx(65504.0 / place.largest) for place in forward if place.largest)

    def test_the_layer_and_the_batch_are_named(self, tmp_path: Path) -> None:
        told = of(made(project(Net(), batches=data(loud=2, factor=3e5)), tmp_path))

        first = told.overflows[0]
        assert (first.module, first.op, first.why, first.step) == ("enter", "to", "cast", 2)

    def test_a_large_weight_makes_a_result_that_does_not_fit(self, tmp_path: Path) -> None:
        told = of(made(project(Net(gain=4e5)), tmp_path))

        results = [place for place in told.overflows if place.why == "result"]
        assert (results[0].module, results[0].op, results[0].step) == ("enter", "addmm", 0)
        assert results[0].headroom < 1.0

    def test_bfloat16_holds_what_float16_does_not(self, tmp_path: Path) -> None:
        told = of(made(project(Net(gain=4e5)), tmp_path), "bfloat16")

        assert told.overflows == ()
        assert {place.dtype for place in told.places} == {"bfloat16"}

    def test_code_of_the_loss_function_is_called_loss(self, tmp_path: Path) -> None:
        def loss(model: nn.Module, x: Tensor) -> Tensor:
            return (model(x) * 1e4).exp2().clamp(max=1.0).float().mean() + (model(x) * 1e7).sum().float() * 0.0

        told = of(made(project(Net(), loss), tmp_path))

        assert "loss" in {place.module for place in told.overflows}
        assert all(place.line is not None and "test_forecast.py" in place.line for place in told.overflows)

    def test_what_the_project_keeps_in_float32_does_not_overflow(self, tmp_path: Path) -> None:
        told = of(made(project(Net(), lambda m, x: (m(x).float() * 1e7).mean() * 1e-7), tmp_path))

        assert told.overflows == ()

    def test_an_fp32_region_does_not_overflow(self, tmp_path: Path) -> None:
        mended = project(Net(gain=4e5), policy=Policy(fp32_regions=("enter", "head")))

        assert of(made(mended, tmp_path)).overflows == ()

    def test_a_branch_that_only_a_later_batch_takes_is_seen(self, tmp_path: Path) -> None:
        def loss(model: nn.Module, batch: tuple[Tensor, bool]) -> Tensor:
            x, rare = batch
            hidden = model(x)
            if rare:
                hidden = hidden * 1e6
            return hidden.float().mean()

        batches = [(x, step == 2) for step, x in enumerate(data())]
        told = of(made(project(Net(), loss, batches), tmp_path))

        assert [(place.module, place.op, place.step) for place in told.overflows] == [("loss", "mul", 2)]

    def test_a_later_branch_that_is_float32_by_itself_is_no_overflow(self, tmp_path: Path) -> None:
        def loss(model: nn.Module, batch: tuple[Tensor, bool]) -> Tensor:
            x, rare = batch
            hidden = model(x)
            if rare:
                hidden = hidden.float() * 1e6
            return hidden.float().mean()

        batches = [(x, step == 2) for step, x in enumerate(data())]

        assert of(made(project(Net(), loss, batches), tmp_path)).overflows == ()

    def test_an_autocast_of_the_projects_own_with_another_dtype_is_seen(self, tmp_path: Path) -> None:
        def loss(model: nn.Module, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.float16):
                return model(x).float().mean()

        event = made(project(Net(gain=4e5), loss), tmp_path)

        assert of(event, "bfloat16").overflows[0].dtype == "float16"

    def test_cases_come_before_the_stretch_as_in_a_trial(self, tmp_path: Path) -> None:
        cases = [Case(id="calm", inputs=torch.ones(1, 6)), Case(id="loud", inputs=torch.full((1, 6), 1e6))]
        told = of(made(project(Net(), batches=data(loud=0, factor=1e6), cases=cases), tmp_path))

        assert (told.overflows[0].case, told.overflows[0].step) == ("loud", None)

    def test_a_project_that_trains_nothing_has_a_forecast_of_its_cases(self, tmp_path: Path) -> None:
        inference = Project(model=Net(gain=4e5), cases=[Case(id="one", inputs=torch.ones(2, 6))])
        told = of(made(inference, tmp_path))

        assert told.overflows[0].case == "one"
        assert told.initial_scale is None


class Attention(nn.Module):
    """Scores with an additive mask of FP32's lowest number, as many libraries write it."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(x).transpose(-1, -2)
        hidden = torch.zeros_like(mask, dtype=torch.float32).masked_fill(~mask, torch.finfo(torch.float32).min)
        return torch.softmax(scores + hidden.to(scores.dtype), dim=-1)


class TestMasks:
    def cases(self, *masks: list[int]) -> list[Case]:
        x = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0))
        return [
            Case(id=f"mask-{n}", inputs=(x, torch.tensor(mask, dtype=torch.bool)[None, None, :]))
            for n, mask in enumerate(masks)
        ]

    def test_a_mask_that_leaves_something_is_no_overflow(self, tmp_path: Path) -> None:
        told = of(made(Project(model=Attention(), cases=self.cases([1, 1, 0], [1, 0, 0])), tmp_path))

        assert told.overflows == ()

    def test_a_row_that_is_masked_whole_is_named_at_the_softmax(self, tmp_path: Path) -> None:
        told = of(made(Project(model=Attention(), cases=self.cases([1, 1, 0], [0, 0, 0])), tmp_path))

        [place] = told.overflows
        assert (place.op, place.why, place.case) == ("softmax", "row", "mask-1")

    def test_a_mask_of_infinities_is_meant(self, tmp_path: Path) -> None:
        class Causal(Attention):
            def forward(self, x: Tensor, mask: Tensor) -> Tensor:
                scores = self.q(x) @ self.k(x).transpose(-1, -2)
                return torch.softmax(scores.masked_fill(~mask, -math.inf), dim=-1)

        told = of(made(Project(model=Causal(), cases=self.cases([1, 1, 0], [1, 0, 0])), tmp_path))

        assert told.overflows == ()


def skips(project: Project, folder: Path, scale: float) -> tuple[int, int]:
    """Skipped updates and iterations of a trial that starts at `scale`."""
    bench = bench_of(project, folder)
    left = guarded(bench.live, Policy(scaler=Scaler(init_scale=scale)))
    updates = [update for record in left.records for update in record.updates]
    return sum(update.skipped for update in updates), len(updates)


class TestTheLossScale:
    @pytest.mark.parametrize("factor", [1e-3, 1.0, 30.0, 1e4])
    def test_the_scale_that_is_foreseen_skips_nothing(self, tmp_path: Path, factor: float) -> None:
        def loss(model: nn.Module, x: Tensor) -> Tensor:
            return (model(x) * 1.0).float().mean() * factor

        torch.manual_seed(3)
        told = of(made(project(Net(), loss), tmp_path / "forecast"))
        assert told.initial_scale is not None

        torch.manual_seed(3)
        skipped, total = skips(project(Net(), loss), tmp_path / "trial", told.initial_scale)
        assert (skipped, total) == (0, 4)

    @pytest.mark.parametrize("factor", [30.0, 1e4])
    def test_it_is_not_needlessly_low(self, tmp_path: Path, factor: float) -> None:
        def loss(model: nn.Module, x: Tensor) -> Tensor:
            return (model(x) * 1.0).float().mean() * factor

        torch.manual_seed(3)
        told = of(made(project(Net(), loss), tmp_path / "forecast"))
        assert told.initial_scale is not None

        torch.manual_seed(3)
        skipped, _ = skips(project(Net(), loss), tmp_path / "trial", told.initial_scale * 8)
        assert skipped >= 1

    def test_a_loss_in_half_holds_no_scale_above_its_range(self, tmp_path: Path) -> None:
        told = of(made(project(Net(), lambda m, x: m(x).mean() * 1e-3), tmp_path))

        assert told.initial_scale == 2.0**15

    def test_what_limits_it_is_named(self, tmp_path: Path) -> None:
        told = of(made(project(Net(), lambda m, x: m(x).float().mean() * 1e4), tmp_path))

        assert told.limited_by is not None
        assert (told.limited_by.phase, told.limited_by.dtype) == ("backward", "float16")

    def test_an_iteration_whose_forward_overflows_does_not_lower_it(self, tmp_path: Path) -> None:
        calm = of(made(project(Net()), tmp_path / "calm"))
        torch.manual_seed(0)
        loud = of(made(project(Net(), batches=data(loud=3, factor=1e7)), tmp_path / "loud"))

        assert loud.overflows
        assert loud.initial_scale == calm.initial_scale

    def test_gradients_that_fit_at_no_scale_are_counted_and_not_waited_for(self, tmp_path: Path) -> None:
        def loss(model: nn.Module, batch: tuple[Tensor, float]) -> Tensor:
            return model(batch[0]).float().mean() * batch[1]

        batches = [(x, 1e8 if step == 1 else 1.0) for step, x in enumerate(data())]
        told = of(made(project(Net(), loss, batches), tmp_path))

        assert told.beyond_every_scale == 1
        assert told.initial_scale == 2.0**16

    def test_iterations_whose_forward_overflows_are_counted(self, tmp_path: Path) -> None:
        loud = of(made(project(Net(), batches=data(loud=3, factor=1e7)), tmp_path))

        assert (loud.overflowing, loud.beyond_every_scale) == (1, 0)

    def test_no_scale_is_proposed_where_every_iteration_overflows(self, tmp_path: Path) -> None:
        told = of(made(project(Net(gain=4e5)), tmp_path))

        assert (told.initial_scale, told.limited_by, told.scales) == (None, None, ())
        assert told.overflowing == len(data())

    def test_cases_that_overflow_are_no_iterations(self, tmp_path: Path) -> None:
        loud = [Case(id="loud", inputs=torch.full((1, 6), 1e6))]
        told = of(made(project(Net(), cases=loud), tmp_path))

        assert told.overflows
        assert told.overflowing == 0
        assert told.initial_scale is not None

    def test_the_share_that_is_lost_at_the_scale_itself_is_told(self, tmp_path: Path) -> None:
        told = of(made(project(Net(), lambda m, x: (m(x) * 1.0).float().mean() * 30.0), tmp_path))

        assert told.initial_scale in [row.scale for row in told.scales]

    def test_the_share_that_is_lost_falls_with_the_scale(self, tmp_path: Path) -> None:
        told = of(made(project(Net(), lambda m, x: m(x).float().mean() * 1e-6), tmp_path))
        lost = [row.lost for row in told.scales]

        assert lost[0] > 0.5
        assert lost == sorted(lost, reverse=True)
        assert lost[-1] == 0.0

    def test_tiny_gradients_ask_for_more_than_torchs_default(self, tmp_path: Path) -> None:
        told = of(made(project(Net(), lambda m, x: m(x).float().mean() * 1e-12), tmp_path))

        assert told.initial_scale is not None
        assert told.initial_scale > 2.0**16


class TestHowItIsMade:
    def test_state_and_random_numbers_are_as_before(self, tmp_path: Path) -> None:
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
        bench = bench_of(project(model, cases=[Case(id="a", inputs=torch.ones(2, 6))]), tmp_path)

        forecast(bench, RngTape())

        assert unchanged(bench)

    def test_the_stretch_is_the_baselines(self, tmp_path: Path) -> None:
        """The weights move between the windows: the last one is read with what the others have made of them."""

        def growing(model: nn.Module, x: Tensor) -> Tensor:
            return -model(x).float().sum()

        model = Net()
        update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=50.0), loss=growing)
        told = of(made(Project(model=model, updates=[update], batches=data(6)), tmp_path))

        assert told.overflows
        assert (told.overflows[0].step or 0) > 0

    def test_a_long_stretch_is_read_in_even_steps_to_its_end(self, tmp_path: Path) -> None:
        batches = data(2 * WINDOWS + 1, loud=2 * WINDOWS, factor=1e6)
        event = made(project(Net(width=2), batches=batches), tmp_path)

        assert (event.windows, event.iterations) == (WINDOWS, 2 * WINDOWS + 1)
        assert of(event).overflows[0].step == 2 * WINDOWS

    def test_what_takes_long_to_read_is_read_in_fewer_places_to_its_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("amptui.engine.forecast.BUDGET_S", 0.0)
        cases = [Case(id=f"{n}", inputs=torch.ones(2, 6) * (1e6 if n == 8 else 1.0)) for n in range(9)]
        event = made(project(Net(width=2), batches=data(20, loud=19, factor=1e6), cases=cases), tmp_path)

        assert (event.windows, event.iterations, event.cases) == (LEAST, 20, LEAST)
        steps = {place.step for place in of(event).overflows}
        assert 19 in steps or "8" in {place.case for place in of(event).overflows}

    def test_accumulated_micro_batches_are_all_read(self, tmp_path: Path) -> None:
        model = Net()
        update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=squared, accumulate=2)
        told = of(made(Project(model=model, updates=[update], batches=data(4, loud=3, factor=1e6)), tmp_path))

        assert told.overflows[0].step == 1

    def test_a_dtype_in_which_the_code_fails_says_so(self, tmp_path: Path) -> None:
        def loss(model: nn.Module, x: Tensor) -> Tensor:
            return model(x).masked_fill(x[:, :3] > 0, -1e9).clamp(min=-1.0).float().mean()

        told = of(made(project(Net(), loss), tmp_path))

        assert told.failed is not None
        assert told.failed_at is not None
        assert "test_forecast.py" in told.failed_at

    def test_several_updates_are_read_each(self, tmp_path: Path) -> None:
        models = {"g": nn.Linear(6, 6), "d": Net(gain=4e5)}
        updates = [
            Update(
                name=name,
                optimizer=torch.optim.SGD(models[name].parameters(), lr=1e-6),
                loss=lambda m, x, name=name: m[name](x).float().pow(2).mean(),  # type: ignore[misc]
            )
            for name in models
        ]
        told = of(made(Project(model=models, updates=updates, batches=data()), tmp_path))

        assert told.overflows[0].module == "d.enter"
