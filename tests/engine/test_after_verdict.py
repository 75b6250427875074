"""Behind the verdict, as the conductor runs it: the forecast, a map for each trial, and then what is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Criteria, Policy, Project, Scaler, Update
from amptui.engine.measuring import measure as measuring
from amptui.protocol.commands import (
    FindCases,
    LockCriteria,
    Measure,
    MeasureSeeds,
    ProposeCriteria,
    RunBaseline,
    RunTrial,
)
from amptui.protocol.events import (
    CasesFound,
    CriteriaLocked,
    CriteriaProposed,
    ForecastMade,
    Measured,
    PrecisionMapped,
    Progressed,
    Refused,
    SeedsMeasured,
    StageStarted,
    VerdictReached,
)
from tests.engine.conducted import Conducted, opened_by
from tests.engine.projects import Net, batches, weighted_loss


def project(**changes: Any) -> Project:
    torch.manual_seed(1)
    model = Net()
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=1e-4), loss=weighted_loss)
    values: dict[str, Any] = {
        "model": model,
        "updates": [update],
        "batches": batches(4),
        "cases": [Case(id="a", inputs=torch.ones(2, 6))],
        "criteria": Criteria(atol=1.0, rtol=1.0, outputs={"gradient": 1.0}),
        "policy": Policy(scaler=Scaler(init_scale=1024.0)),
    }
    return Project(**{**values, **changes})


@pytest.fixture(autouse=True)
def _few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "SHORTEST_BLOCK_S", 0.0)


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Conducted:
    conducted = opened_by(project(), tmp_path, monkeypatch)
    return conducted.do(RunBaseline(), LockCriteria(), RunTrial(), RunTrial(policy={"dtype": "bf16"}, planned=True))


def test_the_forecast_is_there_before_the_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conducted = opened_by(project(), tmp_path, monkeypatch).do(RunBaseline())

    told = conducted.one(ForecastMade)
    assert told.failed is None
    assert [forecast.dtype for forecast in told.dtypes] == ["float16", "bfloat16"]
    assert conducted.state.forecast == told


def test_every_trial_is_judged_under_the_same_criteria_and_mapped(judged: Conducted) -> None:
    verdicts = judged.all(VerdictReached)

    assert [verdict.verdict for verdict in verdicts] == ["accept", "accept"]
    assert [mapped.dtype for mapped in judged.all(PrecisionMapped)] == ["float16", "bfloat16"]
    assert {trial.started.revision for trial in judged.state.trials} == {1}


def test_a_planned_policy_is_no_intervention_and_a_late_idea_is_one(judged: Conducted) -> None:
    judged.do(RunTrial(policy={"fp32_regions": ["head"]}))

    assert [verdict.interventions for verdict in judged.all(VerdictReached)] == [0, 0, 1]


def test_a_late_idea_is_confirmed_by_one_more_unattended_run(judged: Conducted) -> None:
    late = RunTrial(policy={"fp32_regions": ["head"]})
    judged.do(late, late)

    assert [verdict.interventions for verdict in judged.all(VerdictReached)][2:] == [1, 0]


def test_every_accepted_trial_can_be_measured(judged: Conducted) -> None:
    judged.do(Measure(trial=1, seconds=0.0), Measure(seconds=0.0))

    assert [(told.trial, told.policy.dtype) for told in judged.all(Measured)] == [(1, "float16"), (2, "bfloat16")]
    assert all(told.differs is None for told in judged.all(Measured))
    assert (judged.all(StageStarted)[-1].stage, judged.all(StageStarted)[-1].task) == ("measure", "time")


def test_other_seeds_are_measured_once_for_all(judged: Conducted) -> None:
    judged.do(MeasureSeeds(seeds=2))

    assert judged.one(SeedsMeasured).seeds == 2


def test_a_trial_after_a_measurement_is_what_it_would_have_been(judged: Conducted) -> None:
    before = judged.all(VerdictReached)[0]
    judged.do(Measure(seconds=0.0), MeasureSeeds(seeds=1), FindCases(), RunTrial())
    after = judged.all(VerdictReached)[-1]

    assert after.rows == before.rows
    assert after.counts == before.counts


def test_a_rejected_trial_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = project(criteria=Criteria(atol=0.0, rtol=0.0))
    conducted = opened_by(strict, tmp_path, monkeypatch).judge().do(Measure(), Measure(trial=1), Measure(trial=9))

    assert conducted.one(VerdictReached).verdict == "reject"
    assert not conducted.all(Measured)
    assert [refused.code for refused in conducted.all(Refused)] == ["not-accepted", "not-accepted", "order"]


def test_a_refused_measurement_leaves_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def loss(model: nn.Module, batch: Any) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > limit:
            raise OSError("the disk is gone")
        return weighted_loss(model, batch)

    limit = 10**9
    model = Net()
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=1e-4), loss=loss)
    conducted = opened_by(project(model=model, updates=[update]), tmp_path, monkeypatch).judge()
    limit = calls
    conducted.do(Measure())

    refused = conducted.one(Refused)
    assert refused.code == "measurement-failed"
    assert "OSError: the disk is gone" in refused.message
    assert conducted.state.verdict is not None


@pytest.mark.parametrize("command", [Measure(), MeasureSeeds()])
def test_nothing_is_measured_before_there_is_a_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Any
) -> None:
    conducted = opened_by(project(), tmp_path, monkeypatch).do(command)

    assert conducted.one(Refused).code in ("order", "not-accepted")


def test_cases_are_found_in_an_opened_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conducted = opened_by(project(), tmp_path, monkeypatch).do(FindCases())

    assert conducted.one(CasesFound).samples == 32
    assert conducted.state.found_cases == conducted.one(CasesFound)


def test_what_was_found_is_written_without_another_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conducted = opened_by(project(), tmp_path, monkeypatch).do(FindCases())
    looks = len(conducted.all(Progressed))
    conducted.do(FindCases(path=str(tmp_path / "found.pt")))

    first, second = conducted.all(CasesFound)
    assert (first.found, second.path) == (second.found, str(tmp_path / "found.pt"))
    assert [case["id"] for case in torch.load(tmp_path / "found.pt", weights_only=True)] == [c.id for c in first.found]
    assert len(conducted.all(Progressed)) == looks
    assert not conducted.do(FindCases(boundary=1)).all(Refused)
    assert len(conducted.all(Progressed)) > looks


def test_criteria_are_proposed_once_more_until_they_are_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = project(criteria=None, policy=Policy())
    conducted = opened_by(given, tmp_path, monkeypatch).do(ProposeCriteria(dtype="bfloat16"))
    assert conducted.one(Refused).message == "there is no baseline yet"

    conducted.do(RunBaseline(), ProposeCriteria(dtype="bfloat16"), LockCriteria(), ProposeCriteria(dtype="float16"))
    fine, coarse = conducted.all(CriteriaProposed)
    assert (fine.dtype, coarse.dtype) == ("float16", "bfloat16")
    assert coarse.criteria.rtol != fine.criteria.rtol or coarse.criteria.outputs != fine.criteria.outputs
    assert conducted.one(CriteriaLocked).criteria == coarse.criteria
    assert conducted.all(Refused)[-1].message == "the criteria are locked"


def test_criteria_are_proposed_for_the_coarsest_dtype_that_will_be_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def proposed(folder: str, **given: Any) -> Criteria:
        conducted = opened_by(project(criteria=None, policy=Policy()), tmp_path / folder, monkeypatch, **given)
        state = conducted.do(RunBaseline()).state
        assert state.proposed is not None
        return state.proposed.criteria

    own = proposed("own")
    assert own == proposed("fp16", criteria_dtype="float16")
    assert own != proposed("bf16", criteria_dtype="bfloat16")
