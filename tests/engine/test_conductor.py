"""The stages in their order, what is refused before its time, and what ends with a stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Policy, Project
from amptui.protocol.commands import (
    Advance,
    Cancel,
    Command,
    FallBack,
    FindCases,
    LockCriteria,
    MeasureSeeds,
    OpenProject,
    Pause,
    RunBaseline,
    RunTrial,
)
from amptui.protocol.events import (
    CheckpointWritten,
    ProjectOpened,
    Refused,
    StageEnded,
    TrialStarted,
    VerdictReached,
)
from tests.engine.conducted import opened_by
from tests.engine.projects import full_project, weighted_loss

# Order.


@pytest.mark.parametrize(
    ("commands", "last"),
    [
        ([LockCriteria()], LockCriteria()),
        ([RunTrial()], RunTrial()),
        ([RunBaseline(), RunTrial()], RunTrial()),
    ],
)
def test_a_stage_before_its_time_is_refused_and_says_what_comes_first(
    commands: list[Command], last: Command, opened: Any
) -> None:
    done = opened(full_project()).do(*commands)
    assert done.refusals == ["order"]
    assert done.one(Refused).hint
    assert not done.all(StageEnded)[-1].completed


@pytest.mark.parametrize("command", [RunBaseline(), LockCriteria(), RunTrial(), FallBack()])
def test_without_a_project_everything_is_refused(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Project(model=nn.Linear(1, 1))  # nothing to judge
    done = opened_by(refused, tmp_path, monkeypatch).do(command)
    assert done.refusals == ["nothing-to-judge", "order"]


def test_an_fp32_region_that_is_no_module_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = opened_by(full_project(policy=Policy(fp32_regions=["haed"])), tmp_path, monkeypatch)
    assert "FP32 region 'haed': the model has no such module" in done.one(Refused).message
    assert not done.all(ProjectOpened)
    assert not done.all(CheckpointWritten)


def test_what_means_nothing_between_stages_does_nothing(opened: Any) -> None:
    done = opened(full_project())
    before = len(done.recorder.events)
    done.do(Pause(), Cancel(), Advance(unit="phase"))
    assert len(done.recorder.events) == before


def test_a_project_that_is_refused_after_its_checkpoint_is_not_taken_for_the_one_before(
    opened: Any, tmp_path: Path
) -> None:
    done = opened(full_project())

    def fails(model: Any, batch: Any) -> Tensor:
        raise ValueError

    loaded = done.conductor.bench.live.project
    object.__setattr__(loaded.updates[0], "loss", fails)
    done.do(OpenProject(spec="test", folder=str(tmp_path)), RunBaseline(), FallBack(), FindCases(), MeasureSeeds())
    assert done.refusals == ["fp32-failed", *["order"] * 4]


# Trials.


def test_trials_under_other_policies_start_from_the_same_checkpoint(opened: Any) -> None:
    done = opened(full_project()).judge()
    done.do(RunTrial(policy={"dtype": "bfloat16"}), RunTrial())
    verdicts = done.all(VerdictReached)
    assert [trial.policy.dtype for trial in done.all(TrialStarted)] == ["float16", "bfloat16", "float16"]
    assert [verdict.trial for verdict in verdicts] == [1, 2, 3]
    assert verdicts[0].rows == verdicts[2].rows, "to the last digit"


def test_a_policy_that_cannot_be_is_refused(opened: Any) -> None:
    done = opened(full_project()).do(RunBaseline(), LockCriteria(), RunTrial(policy={"dtype": "float8"}))
    assert done.refusals == ["project"]
    done.do(RunTrial())
    assert done.one(VerdictReached).trial >= 1


def test_switches_that_user_code_changed_end_with_its_stage(opened: Any) -> None:
    def loss(m: Any, batch: Any) -> Tensor:
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(True)
        return weighted_loss(m, batch)

    given = full_project()
    object.__setattr__(given.updates[0], "loss", loss)
    try:
        done = opened(given)
        assert torch.get_default_dtype() == torch.float32
        done.judge()
        assert torch.get_default_dtype() == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_lack_of_memory_is_told_in_one_sentence(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nprocess 17 has …")

    done = opened(full_project())
    monkeypatch.setattr("amptui.engine.conductor.run_baseline", full)
    done.do(RunBaseline())
    refused = done.one(Refused)
    assert refused.code == "memory"
    assert refused.message == "out of memory: CUDA out of memory. Tried to allocate 9 GiB."
    assert "smaller batches" in refused.hint


def test_a_lack_of_memory_in_the_projects_own_code_says_what_helps(opened: Any) -> None:
    calls = [0]

    def loss(m: Any, batch: Any) -> Tensor:
        calls[0] += 1
        if calls[0] > 10:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return weighted_loss(m, batch)

    given = full_project()
    object.__setattr__(given.updates[0], "loss", loss)
    done = opened(given).do(RunBaseline())
    assert done.one(Refused).code == "fp32-failed"
    assert "smaller batches" in done.one(Refused).hint
