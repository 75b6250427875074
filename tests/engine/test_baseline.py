"""The FP32 baseline: true FP32, its noise and randomness, and the proof that it repeats."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Project, Update
from amptui.engine import rng
from amptui.engine.baseline import Baseline, another_state, run_baseline
from amptui.protocol.commands import Cancel, RunBaseline
from amptui.protocol.events import BaselineCaseRun, BaselineDone, Cancelled, Refused, RepeatProved
from tests.engine.conducted import Conducted, opened_by
from tests.engine.projects import Net, batches, weighted_loss

X = torch.ones(2, 4)


def squared(model: Any, batch: Any) -> Tensor:
    return model(batch[0]).float().pow(2).mean()


def project(loss: Any = None, model: Any = None, count: int = 4, **how: Any) -> Project:
    torch.manual_seed(0)
    model = model or nn.Linear(4, 1)
    update = Update(
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        loss=loss or (lambda m, b: m(b[0]).float().pow(2).mean()),
    )
    data = [(torch.full((2, 4), float(index + 1)), index) for index in range(count)]
    return Project(model=model, updates=[update], batches=data, **how)


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(given: Project, **how: Any) -> tuple[Baseline, Conducted]:
        done = opened_by(given, tmp_path, monkeypatch, **how)
        assert not done.all(Refused), done.all(Refused)
        assert done.conductor.bench is not None
        return run_baseline(done.conductor.bench), done

    return run


def test_a_steady_project_has_neither_noise_nor_randomness(ran: Any) -> None:
    baseline, done = ran(project(cases=[Case(id="a", inputs=X)], decide=lambda o: int(o.argmax())))
    assert baseline.noise == {"a": {}}
    assert baseline.randomness == {"a": {}}
    assert baseline.reasons == ()
    assert done.one(BaselineDone).finite
    proof = done.one(RepeatProved)
    assert (proof.repeatable, proof.iterations) == (True, 3)


def test_dropout_batchnorm_and_shuffling_repeat_bit_for_bit(ran: Any) -> None:
    def loss(m: Any, batch: Any) -> Tensor:
        return weighted_loss(m, batch) * (1.0 + random.random() + np.random.rand())

    torch.manual_seed(1)
    model = Net()
    update = Update(optimizer=torch.optim.AdamW(model.parameters(), lr=0.01), loss=loss)
    _, done = ran(Project(model=model, updates=[update], batches=batches(4)))
    assert done.one(RepeatProved).repeatable


def test_everything_is_as_before_when_it_is_done(ran: Any) -> None:
    torch.manual_seed(1)
    model = Net()
    update = Update(optimizer=torch.optim.AdamW(model.parameters(), lr=0.01), loss=weighted_loss)
    given = Project(model=model, updates=[update], batches=batches(4))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    _, done = ran(given)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not update.optimizer.state
    assert done.conductor.bench is not None
    assert rng.capture() == done.conductor.bench.rng


def test_it_is_true_fp32_under_an_autocast_and_switches_of_the_projects_own(ran: Any) -> None:
    seen: set[torch.dtype] = set()

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def loss(m: Any, batch: Any) -> Tensor:
        out = m(batch[0])
        seen.add(out.dtype)
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"
        return out.float().pow(2).mean()

    torch.set_float32_matmul_precision("high")
    try:
        _, done = ran(project(loss))
        assert torch.get_float32_matmul_precision() == "high"
        seen.clear()  # preflight has probed both dtypes
        run_baseline(done.conductor.bench)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert seen == {torch.float32}


# Randomness.


def test_a_case_that_draws_random_numbers_is_random_and_not_noisy(ran: Any) -> None:
    given = Project(
        model=nn.Linear(4, 50),
        cases=[Case(id="dropped", inputs=X), Case(id="steady", inputs=X * 0)],
        outputs=lambda m, x: nn.functional.dropout(m(x) * x.sum(), training=True),
        decide=lambda o: bool(o.sum() > 1),
    )
    baseline, done = ran(given)
    assert baseline.noise == {"dropped": {}, "steady": {}}
    assert list(baseline.randomness["dropped"]) == ["output"]
    assert baseline.randomness["steady"] == {}
    assert baseline.reasons == ("1 case depends on the RNG state, such as 'dropped'",)
    assert [bool(case.randomness) for case in done.all(BaselineCaseRun)] == [True, False]


@pytest.mark.parametrize("seed", range(4))
def test_a_decision_that_is_drawn_between_two_is_found_out(seed: int, ran: Any) -> None:
    """From one other random state alone every second one would be missed."""
    random.seed(seed)
    given = Project(model=nn.Linear(4, 2), cases=[Case(id="a", inputs=X)], decide=lambda _: int(torch.randint(2, ())))
    baseline, _ = ran(given)
    assert baseline.random_decisions == {"a"}


@pytest.mark.parametrize("draw", [random.random, np.random.rand, lambda: float(torch.rand(()))])
def test_every_generator_counts(draw: Any, ran: Any) -> None:
    given = Project(model=nn.Identity(), cases=[Case(id="a", inputs=X)], outputs=lambda m, x: m(x) + draw())
    baseline, _ = ran(given)
    assert baseline.randomness["a"]


def test_what_differs_between_two_equal_runs_is_noise(ran: Any) -> None:
    calls: list[int] = []

    def outputs(model: Any, x: Tensor) -> Tensor:
        calls.append(1)
        return model(x) + len(calls) * 1e-3

    baseline, _ = ran(Project(model=nn.Identity(), cases=[Case(id="a", inputs=X)], outputs=outputs))
    assert baseline.noise["a"]["output"] == pytest.approx(1e-3, rel=1e-3)
    assert baseline.evidence.outputs["output"].noise == baseline.noise["a"]["output"]


def test_a_decision_that_changes_without_its_numbers_is_random(ran: Any) -> None:
    given = Project(model=nn.Identity(), cases=[Case(id="a", inputs=X)], decide=lambda o: random.random())
    baseline, _ = ran(given)
    assert baseline.random_decisions == {"a"}


def test_nan_in_fp32_is_not_taken_for_randomness(ran: Any) -> None:
    given = Project(
        model=nn.Identity(),
        cases=[Case(id="a", inputs=X)],
        outputs=lambda m, x: x / 0 - x / 0,
        decide=lambda o: float("nan"),
    )
    baseline, done = ran(given)
    assert baseline.randomness == {"a": {}}
    assert baseline.random_decisions == frozenset()
    assert baseline.reasons == ("1 case is not finite in FP32 before the stretch, such as 'a'",)
    assert not done.one(BaselineDone).finite


def test_another_state_shares_nothing_and_leaves_the_present_one() -> None:
    state = rng.capture()
    other = another_state(state)
    assert rng.capture() == state
    assert not torch.equal(other.torch_cpu, state.torch_cpu)
    assert other.python != state.python
    assert other.numpy is not None
    assert other.first_difference(state) is not None
    assert another_state(state) == other, "the same other one each time"


# The proof.


def forgetful(where: str) -> Project:
    """A project with a state that nobody restores."""
    counter = [0]
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    model.register_buffer("note", torch.zeros(1))

    def loss(m: Any, batch: Any) -> Tensor:
        counter[0] += 1
        x = batch[0] * torch.tensor([[1.0], [2.0]])
        value = m(x).float().pow(2).mean()
        if where == "loss":
            return value + counter[0]
        if where == "gradient":
            return value + (m[2].weight.sum() - m[2].weight.sum().detach()) * counter[0]
        m.note.fill_(counter[0])
        return value

    return project(loss, model)


@pytest.mark.parametrize(
    ("where", "named"),
    [("loss", "loss of main"), ("gradient", "gradient 2.weight"), ("buffer", "buffer note")],
)
def test_the_first_thing_that_does_not_repeat_is_named(where: str, named: str, ran: Any) -> None:
    baseline, done = ran(forgetful(where))
    proof = done.one(RepeatProved)
    assert not proof.repeatable
    assert (proof.difference, proof.step) == (named, 0)
    assert "extra_state" in proof.advice
    assert baseline.reasons == (f"two FP32 runs from the checkpoint differ, first in {named}",)


def test_a_state_that_extra_state_names_repeats(ran: Any) -> None:
    class Counter:
        count = 0

        def state_dict(self) -> dict[str, int]:
            return {"count": self.count}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.count = state["count"]

    counter = Counter()

    def loss(m: Any, batch: Any) -> Tensor:
        counter.count += 1
        return m(batch[0]).float().pow(2).mean() + counter.count

    _, done = ran(project(loss, extra_state={"counter": counter}))
    assert done.one(RepeatProved).repeatable


def test_a_gradient_that_comes_and_goes_is_a_difference(ran: Any) -> None:
    calls: list[int] = []
    model = nn.ModuleDict({"a": nn.Linear(4, 1), "b": nn.Linear(4, 1)})

    def loss(m: Any, batch: Any) -> Tensor:
        calls.append(1)
        return m["a"](batch[0]).mean() + (m["b"](batch[0]).mean() if len(calls) % 2 else 0.0)

    update = Update(optimizer=torch.optim.SGD(model["b"].parameters(), lr=0.1), loss=loss)
    baseline, done = ran(Project(model=model, updates=[update], batches=[(X,)] * 3))
    assert not done.one(RepeatProved).repeatable
    assert baseline.evidence.counts[0].without_gradient > 0


def test_process_wide_switches_that_a_loss_changes_end_with_its_run(ran: Any) -> None:
    def loss(m: Any, batch: Any) -> Tensor:
        value = m(batch[0]).float().pow(2).mean() + torch.rand(())
        torch.manual_seed(batch[1])
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(2)
        return value

    try:
        _, done = ran(project(loss))
        assert done.one(RepeatProved).repeatable
        assert torch.get_default_dtype() == torch.float32
        assert torch.get_num_threads() == 1
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_num_threads(1)


# Baselines that decide nothing.


def test_a_stretch_that_is_not_finite_is_run_to_its_end_and_said(ran: Any) -> None:
    def loss(m: Any, batch: Any) -> Tensor:
        return m(batch[0]).float().pow(2).mean() * (float("nan") if batch[1] == 2 else 1.0)

    baseline, _ = ran(project(loss))
    assert baseline.evidence.first_bad == {"main": 2}
    assert baseline.reasons == ("the FP32 stretch is not finite: main at step 2",)
    [counts] = baseline.evidence.counts
    assert (counts.iterations, counts.applied, counts.withheld) == (4, 3, 1)


def test_the_first_gradients_are_kept_for_the_trial(ran: Any) -> None:
    baseline, _ = ran(project())
    assert set(baseline.first.gradients) == {"main"}
    assert [None if g is None else tuple(g.shape) for g in baseline.first.gradients["main"]] == [(1, 4), (1,)]
    assert baseline.losses["main"][0] == pytest.approx(baseline.first.losses["main"])


def test_a_project_of_cases_alone_has_no_stretch(ran: Any) -> None:
    baseline, _ = ran(Project(model=nn.Linear(4, 1), cases=[Case(id="a", inputs=X)], quality=lambda rows: 0.5))
    assert baseline.final_cases == []
    assert (baseline.evidence.quality, baseline.evidence.quality_before) == (0.5, 0.5)


def test_a_project_without_cases_is_judged_by_its_stretch(ran: Any) -> None:
    baseline, _ = ran(project(count=1))
    assert baseline.cases == []
    assert baseline.evidence.outputs == {}
    assert baseline.evidence.quality is None


@pytest.mark.parametrize("phase", ["outputs", "decide", "quality"])
def test_code_that_fails_in_fp32_is_named_with_its_case(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise SystemExit("not today")

    given = Project(model=nn.Identity(), cases=[Case(id="a", inputs=X)], **{phase: fails})
    done = opened_by(given, tmp_path, monkeypatch)
    done.do(RunBaseline())
    refused = done.all(Refused)[0]
    assert refused.code == "fp32-failed"
    assert refused.message.startswith(phase)
    assert "SystemExit: not today" in refused.message


def test_the_user_may_end_it_between_two_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    done = opened_by(Project(model=nn.Identity(), cases=[Case(id="a", inputs=X)]), tmp_path, monkeypatch)

    def cancel(*_: Any) -> None:
        calls.append(1)
        done.inbox.put(Cancel())

    handle = done.conductor.bench.live.project.model.register_forward_hook(cancel)  # type: ignore[union-attr]
    done.do(RunBaseline())
    assert len(done.all(Cancelled)) == 1
    assert len(calls) == 1
    handle.remove()
    done.do(RunBaseline())
    assert done.conductor.baseline is not None, "and it can be run again"
