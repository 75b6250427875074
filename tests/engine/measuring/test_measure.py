"""FP32 against an accepted policy: paired, on the same work, from the same state, and nothing claimed beyond it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Policy, Project, Scaler, Update
from amptui.engine.course import Stopped
from amptui.engine.evaluate import Evaluated, evaluate
from amptui.engine.measuring import measure as measuring
from amptui.engine.measuring.measure import ARMS, FEWEST_ROUNDS, MOST_ROUNDS, Measurement
from amptui.engine.precision import PrecisionSettings, policy_autocast
from amptui.findings.judgement import ScaleCourse
from tests.engine.benches import Told, bench_of, unchanged
from tests.engine.projects import Net, batches, weighted_loss

SETTLED = ScaleCourse(initial=65536.0, final=1024.0, lowest=1024.0)


def training(loss: Any = weighted_loss, **changes: Any) -> Project:
    torch.manual_seed(1)
    model = Net()
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.01), loss=loss)
    cases = [Case(id=f"c{n}", inputs=torch.randn(2, 6)) for n in range(2)]
    values = {"model": model, "updates": [update], "batches": batches(4), "cases": cases}
    return Project(**{**values, **changes})  # type: ignore[arg-type]


def accepted(bench: Any, policy: Policy) -> list[Evaluated]:
    cases = evaluate(bench.live, lambda: policy_autocast("cpu", policy.dtype, policy.autocast), state=bench.rng)
    bench.start.restore()
    return cases


def measurement(bench: Any, policy: Policy = Policy(), course: ScaleCourse | None = SETTLED) -> Measurement:  # noqa: B008
    return Measurement(bench, policy, course, accepted(bench, policy), trial=7)


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "SHORTEST_BLOCK_S", 0.0)
    monkeypatch.setattr(measuring, "MOST_ROUNDS", FEWEST_ROUNDS + 1)


def test_what_is_told(tmp_path: Path) -> None:
    bench = bench_of(training(), tmp_path)

    told = measurement(bench).run(seconds=60.0)

    assert (told.trial, told.what, told.device, told.clock) == (7, "training step", "cpu", "synchronised clock")
    assert told.rounds + told.left_out == FEWEST_ROUNDS + 1
    assert told.fp32.median > 0.0
    assert told.mixed.median > 0.0
    assert told.speedup.low <= told.speedup.median <= told.speedup.high
    assert told.precision == PrecisionSettings.current().as_text()
    assert (told.cases, told.differs) == (2, None)
    assert [claim.subject for claim in told.claims] == ["time", "memory"]


def test_the_checkpoints_state_is_as_before(tmp_path: Path) -> None:
    bench = bench_of(training(), tmp_path)

    measurement(bench).run(seconds=0.0)

    assert unchanged(bench)


def test_after_the_time_no_round_begins_but_the_fewest_are_run(tmp_path: Path) -> None:
    told = measurement(bench_of(training(), tmp_path)).run(seconds=0.0)

    assert told.rounds == FEWEST_ROUNDS < MOST_ROUNDS


def test_every_arm_runs_the_same_batches_from_the_same_weights(tmp_path: Path) -> None:
    seen: dict[tuple[float, float, torch.dtype], int] = Counter()

    def loss(model: nn.Module, batch: Any) -> Tensor:
        out = model(batch[0])
        seen[float(batch[0].sum()), float(model.enter.weight.detach().sum()), out.dtype] += 1  # type: ignore[operator]
        return out.float().mean()

    bench = bench_of(training(loss), tmp_path)

    measurement(bench).run(seconds=0.0)

    fp32 = {key[:2]: count for key, count in seen.items() if key[2] == torch.float32}
    mixed = {key[:2]: count for key, count in seen.items() if key[2] == torch.float16}
    first = next(iter(fp32))
    assert first in mixed
    assert fp32[first] == 2 * mixed[first], "FP32 is run twice, to know the noise"


def test_the_order_of_the_arms_is_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = []
    block = Measurement._block

    def noted(self: Measurement, arm: measuring.Arm, steps: int) -> tuple[float, bool]:
        orders.append(arm)
        return block(self, arm, steps)

    monkeypatch.setattr(Measurement, "_block", noted)
    measurement(bench_of(training(), tmp_path)).run(seconds=60.0)

    rounds = [tuple(orders[-n : len(orders) - n + 3]) for n in range(3 * (FEWEST_ROUNDS + 1), 0, -3)]
    assert all(set(order) == set(ARMS) for order in rounds)
    assert len(set(rounds)) > 1


def test_neither_hooks_nor_modes_are_on_while_the_clock_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.nn.modules import module as modules
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    found = []

    def loss(model: nn.Module, batch: Any) -> Tensor:
        hooks = [*modules._global_forward_hooks, *modules._global_forward_pre_hooks]
        found.append((len(hooks), _get_current_dispatch_mode(), torch.overrides._get_current_function_mode()))
        return model(batch[0]).float().mean()

    measurement(bench_of(training(loss), tmp_path)).run(seconds=0.0)

    assert set(found) == {(0, None, None)}


def test_a_skipped_update_leaves_its_round_out(tmp_path: Path) -> None:
    course = ScaleCourse(initial=2.0**40, final=2.0**40, lowest=2.0**40)  # overflows in every round
    told = measurement(bench_of(training(), tmp_path), course=course).run(seconds=0.0)

    assert told.left_out >= FEWEST_ROUNDS
    assert told.rounds == 0
    assert told.claims[0].direction == "none"


def test_the_scaler_begins_where_the_trial_ended_and_does_not_grow(tmp_path: Path) -> None:
    policy = Policy(scaler=Scaler(init_scale=2.0**30, growth_interval=1))
    measured = measurement(bench_of(training(), tmp_path), policy)

    assert measured._settings is not None
    assert measured._settings.init_scale == SETTLED.lowest
    assert measured.run(seconds=0.0).left_out == 0


def test_the_projects_own_arithmetic_is_on_for_both(tmp_path: Path) -> None:
    seen = set()

    def loss(model: nn.Module, batch: Any) -> Tensor:
        seen.add(torch.get_float32_matmul_precision())
        return model(batch[0]).float().mean()

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        told = measurement(bench_of(training(loss), tmp_path)).run(seconds=0.0)
    finally:
        torch.set_float32_matmul_precision(before)

    assert seen == {"high"}
    assert told.precision["float32 matmul"] == "high"


def test_an_autocast_of_the_projects_own_is_closed_in_fp32(tmp_path: Path) -> None:
    seen = []

    def loss(model: nn.Module, batch: Any) -> Tensor:
        outside = torch.is_autocast_enabled("cpu")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(batch[0])
        seen.append((outside, out.dtype))
        return out.float().mean()

    measurement(bench_of(training(loss), tmp_path)).run(seconds=0.0)

    assert set(seen) == {(False, torch.float32), (True, torch.bfloat16)}


def test_without_updates_the_cases_are_timed(tmp_path: Path) -> None:
    torch.manual_seed(1)
    project = Project(model=Net(), cases=[Case(id="a", inputs=torch.randn(4, 6))])
    bench = bench_of(project, tmp_path)

    told = measurement(bench, course=None).run(seconds=0.0)

    assert (told.what, told.cases, told.differs) == ("inference", 1, None)
    assert told.rounds == FEWEST_ROUNDS


def test_cases_that_are_not_the_accepted_ones_are_named_and_nothing_is_claimed(tmp_path: Path) -> None:
    bench = bench_of(training(), tmp_path)
    cases = accepted(bench, Policy())
    cases[1].outputs["output"][0] += 1e-3  # type: ignore[index]

    told = Measurement(bench, Policy(), SETTLED, cases, trial=1).run(seconds=0.0)

    assert told.differs == "output output of case c1"
    assert told.claims == ()


def test_it_can_be_ended_between_two_rounds(tmp_path: Path) -> None:
    bench = bench_of(training(), tmp_path)
    measured = measurement(bench)

    def stop() -> None:
        raise Stopped

    object.__setattr__(bench, "between", stop)
    with pytest.raises(Stopped):
        measured.run(seconds=60.0)
    assert unchanged(bench)


def test_progress_is_told(tmp_path: Path) -> None:
    bench = bench_of(training(), tmp_path)
    measurement(bench).run(seconds=0.0)

    assert isinstance(bench.emit, Told)
    assert {event.stage for event in bench.emit.events} == {"measure"}  # type: ignore[attr-defined]
