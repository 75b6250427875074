"""The guarded trial: cases and stretch under a policy, held against the baseline, whatever happens on the way."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Policy, Project, Scaler, Update
from amptui.engine.evaluate import Evaluated
from amptui.protocol.events import (
    CodeFailed,
    FinalCaseRun,
    GuardTripped,
    IterationDone,
    Refused,
    StageEnded,
    TrialCaseRun,
    TrialDone,
    VerdictReached,
)
from tests.engine.conducted import Conducted, opened_by
from tests.engine.projects import Net, batches, weighted_loss

X = torch.ones(2, 4)


def squared(model: Any, batch: Any) -> Tensor:
    return model(batch[0]).float().pow(2).mean()


def project(loss: Any = squared, model: Any = None, count: int = 8, rate: float = 0.01, **how: Any) -> Project:
    torch.manual_seed(0)
    model = model or nn.Linear(4, 1)
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=rate), loss=loss)
    data = [(torch.full((2, 4), 0.1 * (index + 1)), index) for index in range(count)]
    return Project(model=model, updates=[update], batches=data, **how)


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def judge(given: Project, at_end: Any = None, **trial: Any) -> tuple[VerdictReached, Conducted]:
        """`at_end` is called when the trial is done and nothing has been put back yet."""
        done = opened_by(given, tmp_path, monkeypatch)
        assert not done.all(Refused), done.all(Refused)
        send = done.recorder.send

        def listened(event: Any) -> int:
            if isinstance(event, TrialDone) and at_end is not None:
                at_end()
            return send(event)

        done.recorder.send = listened  # type: ignore[method-assign]
        done.judge(**trial)
        assert done.all(VerdictReached), done.all(Refused)
        return done.one(VerdictReached), done

    return judge


def half(*names: str) -> Any:
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32


# What is accepted.


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_healthy_project_is_accepted(dtype: str, judged: Any) -> None:
    torch.manual_seed(1)
    model = Net()
    update = Update(optimizer=torch.optim.AdamW(model.parameters(), lr=0.001), loss=weighted_loss)
    given = Project(
        model=model,
        updates=[update],
        batches=batches(20),
        cases=[Case(id="a", inputs=torch.randn(3, 6))],
        policy=Policy(dtype=dtype, scaler=Scaler(init_scale=1024.0) if dtype == "float16" else None),
    )
    verdict, done = judged(given)
    assert verdict.verdict == "accept", verdict.words
    assert verdict.findings == () or all(f.severity == "notice" for f in verdict.findings)
    assert len([event for event in done.all(IterationDone) if event.run == "trial"]) == 20


def test_cases_alone_and_updates_alone_are_judged_by_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = Project(model=nn.Linear(4, 1), cases=[Case(id="a", inputs=X)], policy=Policy(dtype="bfloat16"))
    for index, given in enumerate((cases, project(policy=Policy(dtype="bfloat16")), project(count=1))):
        done = opened_by(given, tmp_path / str(index), monkeypatch).judge()
        assert done.one(VerdictReached).verdict == "accept", done.one(VerdictReached).words


def test_the_projects_own_switches_are_on_in_the_trial_alone(judged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, str]] = []

    def loss(m: Any, batch: Any) -> Tensor:
        seen.append((torch.is_autocast_enabled("cpu"), torch.backends.cuda.matmul.fp32_precision))
        return squared(m, batch)

    torch.set_float32_matmul_precision("high")
    try:
        judged(project(loss, count=2))
    finally:
        torch.set_float32_matmul_precision("highest")
    assert ("ieee" in {precision for on, precision in seen if not on}) is True
    trial = [precision for on, precision in seen if on]
    assert set(trial) == {"tf32"}


# Skips.


def test_a_scale_that_settles_is_a_notice_with_the_scale_that_fits(judged: Any) -> None:
    given = project(
        lambda m, b: squared(m, b) * 300.0,
        count=30,
        rate=1e-5,
        policy=Policy(scaler=Scaler(init_scale=2.0**14, growth_interval=100)),
    )
    verdict, done = judged(given)
    trips = done.all(GuardTripped)
    assert trips
    assert verdict.verdict == "accept", verdict.words
    [notice] = [f for f in verdict.findings if f.kind == "scaler"]
    assert notice.severity == "notice"
    [counts] = verdict.counts
    assert counts.applied == 30 - len(trips)
    assert verdict.scaler is not None
    assert verdict.scaler.lowest == 2.0**14 / 2 ** len(trips)
    assert notice.facts["fitting_scale"] == 2.0**8
    assert "finite at 2^8" in notice.evidence[0]


def test_the_first_gradients_are_compared_at_the_scale_that_fits(judged: Any) -> None:
    verdict, done = judged(
        project(
            lambda m, b: squared(m, b) * 300.0, count=30, rate=1e-5, policy=Policy(scaler=Scaler(init_scale=2.0**14))
        )
    )
    assert done.all(GuardTripped)[0].record.step == 0
    rows = [row for row in verdict.rows if row.update == "main" and "gradient" in row.what]
    assert rows
    assert all(row.passed for row in rows), "not against the infinite gradients of the first try"


def test_too_few_applied_updates_are_a_fault(judged: Any) -> None:
    def loss(m: Any, batch: Any) -> Tensor:
        return squared(m, batch) * (1e9 if batch[1] % 2 and half() == torch.float16 else 1.0)

    verdict, _ = judged(project(loss, count=16))
    assert verdict.verdict == "reject"
    assert any(row.criterion == "updates" and row.passed is False for row in verdict.rows)


def test_what_the_plain_loop_would_have_written_without_a_scaler_is_state_damage(judged: Any) -> None:
    def loss(m: Any, batch: Any) -> Tensor:
        bad = batch[1] == 3 and half() == torch.bfloat16
        return squared(m, batch) * (math.inf if bad else 1.0)

    given = project(loss, policy=Policy(dtype="bfloat16"))
    before = given.model.weight.detach().clone()
    ended: list[Tensor] = []
    verdict, _ = judged(given, at_end=lambda: ended.append(given.model.weight.detach().clone()))
    assert verdict.verdict == "reject"
    [counts] = verdict.counts
    assert (counts.withheld, counts.skipped, counts.applied) == (1, 0, 7)
    damage = [f for f in verdict.findings if f.kind == "state_damage"]
    assert [(f.stage, f.step) for f in damage] == [("weights", 3)]
    assert bool(torch.isfinite(ended[0]).all())
    assert not torch.equal(before, ended[0]), "the other updates were applied"


@pytest.mark.parametrize("buffers", ["keep", "rollback"])
def test_poisoned_buffers_are_damage_and_rolled_back_where_the_policy_says_so(buffers: Any, judged: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    def loss(m: Any, batch: Any) -> Tensor:
        spread = batch[0] * torch.tensor([[1.0], [2.0]])
        if batch[1] == 2 and half() == torch.float16:
            spread = spread.half() * 60000 * 60000
        return m(spread).float().pow(2).mean()

    policy = Policy(scaler=Scaler(init_scale=16.0), buffers=buffers)
    finite: list[bool] = []
    verdict, _ = judged(
        project(loss, model, policy=policy),
        at_end=lambda: finite.append(bool(torch.isfinite(model[1].running_mean).all())),
    )
    assert finite == [buffers == "rollback"]
    assert any(f.kind == "state_damage" and f.stage == "buffer" for f in verdict.findings) or buffers == "rollback"


# Regions.


def test_an_fp32_region_mends_what_half_cannot_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Squares(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * 300) ** 2 / 1e5

    verdicts = []
    for index, regions in enumerate(((), ("1",))):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), Squares(), nn.Linear(4, 1))
        given = Project(
            model=model,
            cases=[Case(id="a", inputs=torch.full((2, 4), 2.0))],
            policy=Policy(fp32_regions=regions),
        )
        done = opened_by(given, tmp_path / str(index), monkeypatch).judge()
        verdicts.append(done.one(VerdictReached).verdict)
    assert verdicts == ["reject", "accept"]


def test_a_region_without_effect_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 1), "spare": nn.Linear(4, 1)})
    given = project(lambda m, b: squared(m["used"], b), model, policy=Policy(dtype="bfloat16", fp32_regions=["spare"]))
    done = opened_by(given, tmp_path, monkeypatch).judge()
    assert "never called" in done.all(Refused)[-1].message
    assert not done.all(VerdictReached)
    assert not done.all(StageEnded)[-1].completed
    assert "forward" not in vars(model["spare"]), "and nothing is left of it"


def test_code_that_fails_before_its_region_is_reached_is_what_is_told(judged: Any) -> None:
    model = nn.ModuleDict({"first": nn.Linear(4, 1), "second": nn.Linear(4, 1)})

    def loss(m: Any, batch: Any) -> Tensor:
        out = m["first"](batch[0])
        if out.dtype == torch.bfloat16:
            raise TypeError("no half here")
        return out.sum() + m["second"](batch[0]).sum()

    verdict, _ = judged(project(loss, model, policy=Policy(dtype="bfloat16", fp32_regions=("second",))))
    assert verdict.verdict == "reject"
    assert "no half here" in verdict.words


# Code that fails under the policy.


def failing(phase: str, error: Any = None) -> dict[str, Any]:
    """One of the project's functions, which fails where autocast was on."""

    def outputs(model: Any, x: Tensor) -> Tensor:
        out = model(x)
        if phase == "outputs" and out.dtype != torch.float32:
            raise error or RuntimeError("picky outputs")
        return out

    def decide(out: Tensor) -> int:
        if phase == "decide" and out.dtype != torch.float32:
            raise error or RuntimeError("picky decide")
        return 0

    def quality(rows: Any) -> float:
        if phase == "quality" and rows[0].outputs.dtype != torch.float32:
            raise error or RuntimeError("picky quality")
        return 1.0

    return {"outputs": outputs, "decide": decide, "quality": quality}


@pytest.mark.parametrize("phase", ["outputs", "decide", "quality"])
@pytest.mark.parametrize("updates", [True, False])
def test_a_function_that_fails_under_the_policy_is_a_reject_with_its_line(
    phase: str, updates: bool, judged: Any
) -> None:
    functions = failing(phase)
    given = project(cases=[Case(id="a", inputs=X)], policy=Policy(dtype="bfloat16"), **functions)
    if not updates:
        given = Project(model=given.model, cases=given.cases, policy=given.policy, **functions)
    verdict, done = judged(given)
    assert verdict.verdict == "reject"
    assert f"picky {phase}" in verdict.words
    told = done.all(CodeFailed)[0]
    assert told.under == "trial"
    assert told.where is not None
    assert told.where.startswith(__file__)
    [fault] = [f for f in verdict.findings if f.severity == "fault"]
    assert fault.stage == "error"
    assert fault.fp32_ok is True


@pytest.mark.parametrize("error", [SystemExit(0), SystemExit("bye"), RecursionError("deep"), MemoryError()])
def test_whatever_a_loss_raises_under_the_policy_the_trial_is_judged(error: BaseException, judged: Any) -> None:
    def loss(m: Any, batch: Any) -> Tensor:
        out = m(batch[0])
        if out.dtype == torch.bfloat16 and batch[1] == 2:
            raise error
        return out.float().sum()

    verdict, done = judged(project(loss, policy=Policy(dtype="bfloat16")))
    assert verdict.verdict == "reject"
    assert type(error).__name__ in verdict.words
    assert not done.one(TrialDone).completed
    assert done.one(CodeFailed).step == 2


def test_escapes_in_an_exception_do_not_reach_the_terminal(judged: Any) -> None:
    def loss(m: Any, batch: Any) -> Tensor:
        out = m(batch[0])
        if out.dtype == torch.bfloat16:
            raise ValueError("\x1b]0;owned\x07\x1b[2J")
        return out.float().sum()

    verdict, done = judged(project(loss, policy=Policy(dtype="bfloat16")))
    assert "\x1b" not in verdict.words
    assert "\x1b" not in done.one(CodeFailed).message
    assert not any("\x1b" in text for f in verdict.findings for text in (*f.evidence, f.advice))


def test_a_loss_without_gradient_under_the_policy_is_placed_at_the_loss_function(judged: Any) -> None:
    def loss(m: Any, batch: Any) -> Tensor:
        out = m(batch[0])
        return out.float().sum().detach() if out.dtype == torch.bfloat16 else out.sum()

    _, done = judged(project(loss, policy=Policy(dtype="bfloat16")))
    assert done.one(CodeFailed).where == f"{__file__}:{loss.__code__.co_firstlineno}"


def test_a_hook_that_raises_is_the_projects_failure(judged: Any) -> None:
    model = nn.Linear(4, 1)

    def hook(gradient: Tensor) -> None:
        if torch.isnan(gradient).any():
            raise ArithmeticError("hook saw NaN")

    model.weight.register_hook(hook)

    def loss(m: Any, batch: Any) -> Tensor:
        out = m(batch[0])
        return out.float().sum() * (math.nan if out.dtype == torch.bfloat16 else 1.0)

    verdict, done = judged(project(loss, model, policy=Policy(dtype="bfloat16")))
    assert verdict.verdict == "reject"
    assert done.one(CodeFailed).message == "hook saw NaN"


def test_what_a_replay_raises_does_not_end_the_trial(judged: Any) -> None:
    """In FP32 the project checks its own loss; under the policy it does not get that far."""
    calls: list[bool] = []

    def loss(m: Any, batch: Any) -> Tensor:
        out = m(batch[0])
        calls.append(out.dtype == torch.float32)
        if (
            batch[1] == 2
            and calls.count(False) > 2
            and out.dtype == torch.float32
            and True in calls[calls.index(False) :]
        ):
            raise SystemExit("refuses a second look")
        return out.float().pow(2).mean() * (math.nan if out.dtype == torch.bfloat16 and batch[1] == 2 else 1.0)

    verdict, done = judged(project(loss, policy=Policy(dtype="bfloat16")))
    assert done.one(TrialDone).completed
    assert not done.all(CodeFailed), "the project's code did not fail under the policy"
    [counts] = verdict.counts
    assert (counts.applied, counts.withheld) == (7, 1)


# Cases and outputs.


def test_outputs_that_come_and_go_with_the_policy_are_differences(judged: Any) -> None:
    def outputs(model: Any, x: Tensor) -> dict[str, Tensor]:
        out = model(x)
        return {"scores": out, ("half" if out.dtype != torch.float32 else "full"): out}

    given = Project(
        model=nn.Linear(4, 1), cases=[Case(id="a", inputs=X)], outputs=outputs, policy=Policy(dtype="bfloat16")
    )
    verdict, done = judged(given)
    assert verdict.verdict == "reject"
    names = [difference.name for difference in done.one(TrialCaseRun).differences]
    assert names == ["scores", "full (only in the baseline)", "half (only in the trial)"]


def test_final_cases_are_judged_by_finiteness(judged: Any) -> None:
    def loss(m: Any, batch: Any) -> Tensor:
        return squared(m, batch)

    def outputs(model: Any, x: Tensor) -> Tensor:
        out = model(x)
        trained = bool(model.weight.ne(start).any())
        return out * math.nan if trained and out.dtype == torch.bfloat16 else out

    given = project(loss, cases=[Case(id="a", inputs=X)], outputs=outputs, policy=Policy(dtype="bfloat16"))
    start = given.model.weight.detach().clone()
    verdict, done = judged(given)
    assert verdict.verdict == "reject"
    assert any(row.criterion == "finite" and row.passed is False and row.case == "a" for row in verdict.rows)
    assert {event.run for event in done.all(FinalCaseRun)} == {"baseline", "trial"}


def test_cases_whose_forward_edits_its_inputs_are_compared_fairly(judged: Any) -> None:
    def outputs(model: Any, x: Tensor) -> Tensor:
        return model(x.mul_(0.5))

    given = Project(
        model=nn.Linear(4, 1), cases=[Case(id="a", inputs=X)], outputs=outputs, policy=Policy(dtype="bfloat16")
    )
    verdict, _ = judged(given)
    assert verdict.verdict == "accept", verdict.words


def test_a_quality_that_edits_its_rows_does_not_change_what_is_compared(judged: Any) -> None:
    def quality(rows: Any) -> float:
        for row in rows:
            row.outputs.fill_(7.0)
        return 1.0

    verdict, _ = judged(
        Project(model=nn.Linear(4, 1), cases=[Case(id="a", inputs=X)], quality=quality, policy=Policy(dtype="bfloat16"))
    )
    assert verdict.verdict == "accept", verdict.words


def test_the_stretch_can_be_repeated(judged: Any) -> None:
    verdict, done = judged(project(count=3, policy=Policy(dtype="bfloat16")), extend=2)
    assert verdict.counts[0].iterations == 6
    assert [e.record.step for e in done.all(IterationDone) if e.run == "trial"] == list(range(6))


def test_evidence_of_the_first_try_is_kept(judged: Any) -> None:
    verdict, done = judged(project(policy=Policy(dtype="bfloat16"), cases=[Case(id="a", inputs=X)]))
    assert isinstance(done.conductor.baseline.cases[0], Evaluated)
    assert verdict.trial == 1
