"""The stages in their order: what is refused, what is locked, and the way back, bit for bit."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Criteria, Policy, Project, Scaler, Update
from amptui.engine import rng
from amptui.engine.snapshot import Snapshot
from amptui.findings import criteria as proposing
from amptui.protocol.commands import (
    Advance,
    Cancel,
    Command,
    FallBack,
    LockCriteria,
    OpenProject,
    Pause,
    RunBaseline,
    RunTrial,
)
from amptui.protocol.events import (
    CheckpointWritten,
    CriteriaLocked,
    CriteriaProposed,
    FellBack,
    ProjectOpened,
    Refused,
    StageEnded,
    TrialStarted,
    VerdictReached,
)
from tests.engine.conducted import Conducted, opened_by
from tests.engine.projects import Net, batches, weighted_loss


def project(bad: tuple[int, ...] = (), **how: Any) -> Project:
    """A net with dropout, BatchNorm, momentum and a schedule: everything that a way back must bring back."""
    torch.manual_seed(4)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    update = Update(
        optimizer=optimizer,
        loss=weighted_loss,
        scheduler=torch.optim.lr_scheduler.StepLR(optimizer, 2),
    )
    how.setdefault("policy", Policy(scaler=Scaler(init_scale=1024.0)))
    return Project(
        model=model,
        updates=[update],
        batches=batches(8, bad=bad),
        cases=[Case(id="a", inputs=torch.randn(3, 6))],
        **how,
    )


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def open_(given: Project) -> Conducted:
        done = opened_by(given, tmp_path, monkeypatch)
        assert not done.all(Refused), done.all(Refused)
        return done

    return open_


def refusals(done: Conducted) -> list[str]:
    return [refused.code for refused in done.all(Refused)]


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
    done = opened(project()).do(*commands)
    assert refusals(done) == ["order"]
    assert done.one(Refused).hint
    assert not done.all(StageEnded)[-1].completed


@pytest.mark.parametrize("command", [RunBaseline(), LockCriteria(), RunTrial(), FallBack()])
def test_without_a_project_everything_is_refused(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Project(model=nn.Linear(1, 1))  # nothing to judge
    done = opened_by(refused, tmp_path, monkeypatch).do(command)
    assert refusals(done) == ["nothing-to-judge", "order"]


def test_an_fp32_region_that_is_no_module_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = opened_by(project(policy=Policy(fp32_regions=["haed"])), tmp_path, monkeypatch)
    assert "FP32 region 'haed': the model has no such module" in done.one(Refused).message
    assert not done.all(ProjectOpened)
    assert not done.all(CheckpointWritten)


def test_what_means_nothing_between_stages_does_nothing(opened: Any) -> None:
    done = opened(project())
    before = len(done.recorder.events)
    done.do(Pause(), Cancel(), Advance(unit="phase"))
    assert len(done.recorder.events) == before


def test_a_project_that_is_refused_after_its_checkpoint_is_not_taken_for_the_one_before(
    opened: Any, tmp_path: Path
) -> None:
    done = opened(project())

    def fails(model: Any, batch: Any) -> Tensor:
        raise ValueError

    loaded = done.conductor.bench.live.project
    object.__setattr__(loaded.updates[0], "loss", fails)
    done.do(OpenProject(spec="test", folder=str(tmp_path)), RunBaseline(), FallBack())
    assert refusals(done) == ["fp32-failed", "order", "order"]


# Criteria.


def test_the_proposal_is_locked_unless_other_criteria_are_given(opened: Any) -> None:
    done = opened(project()).do(RunBaseline(), LockCriteria())
    assert done.one(CriteriaLocked).criteria == done.one(CriteriaProposed).criteria
    assert done.one(CriteriaLocked).revision == 1


def test_what_the_project_wrote_down_is_kept_in_the_proposal(opened: Any) -> None:
    done = opened(project(criteria=Criteria(atol=0.5, applied_share=0.25))).do(RunBaseline())
    proposed = done.one(CriteriaProposed)
    assert (proposed.criteria.atol, proposed.criteria.applied_share) == (0.5, 0.25)
    given = {proposal.name for proposal in proposed.proposals if proposal.given}
    assert "applied_share" in given
    assert any("atol" in name for name in given)
    assert all(p.reason for p in proposed.proposals)


def test_what_the_user_wrote_before_the_lock_is_locked_as_theirs_beside_what_was_proposed(opened: Any) -> None:
    done = opened(project()).do(RunBaseline())
    proposed = done.one(CriteriaProposed)
    done.do(LockCriteria(criteria=replace(proposed.criteria, applied_share=0.5)))
    by_name = {proposal.name: proposal for proposal in done.one(CriteriaLocked).proposals}
    share = by_name.pop("applied_share")
    assert (share.value, share.writer, share.proposed) == (0.5, "you", proposed.criteria.applied_share)
    assert {proposal.writer for proposal in by_name.values()} == {"amptui"}


def test_after_a_trial_a_change_needs_a_reason_and_is_a_new_revision(opened: Any) -> None:
    done = opened(project()).judge()
    stricter = Criteria(atol=1e-9, rtol=0.0)
    done.do(LockCriteria(criteria=stricter), LockCriteria(criteria=stricter, reason="  "))
    assert refusals(done) == ["reason", "reason"]
    done.do(LockCriteria(criteria=stricter, reason=" the product needs it "), RunTrial())
    first, second = done.all(CriteriaLocked)
    assert (first.revision, first.after_trial, first.reason) == (1, False, "")
    assert (second.revision, second.after_trial, second.reason) == (2, True, "the product needs it")
    assert first.digest == proposing.digest(first.criteria) != second.digest
    assert [trial.revision for trial in done.all(TrialStarted)] == [1, 2]
    assert [verdict.verdict for verdict in done.all(VerdictReached)] == ["accept", "reject"]


# Trials.


def test_trials_under_other_policies_start_from_the_same_checkpoint(opened: Any) -> None:
    done = opened(project()).judge()
    done.do(RunTrial(policy={"dtype": "bfloat16"}), RunTrial())
    verdicts = done.all(VerdictReached)
    assert [trial.policy.dtype for trial in done.all(TrialStarted)] == ["float16", "bfloat16", "float16"]
    assert [verdict.trial for verdict in verdicts] == [1, 2, 3]
    assert verdicts[0].rows == verdicts[2].rows, "to the last digit"


def test_a_policy_that_cannot_be_is_refused(opened: Any) -> None:
    done = opened(project()).do(RunBaseline(), LockCriteria(), RunTrial(policy={"dtype": "float8"}))
    assert refusals(done) == ["project"]
    done.do(RunTrial())
    assert done.one(VerdictReached).trial >= 1


# The way back.


@pytest.mark.parametrize("after", ["opening", "baseline", "trial", "failing trial", "cancelled trial"])
def test_fall_back_restores_everything_bit_for_bit(after: str, opened: Any) -> None:
    given = project(bad=(2, 5) if after == "failing trial" else ())
    done = opened(given)
    bench = done.conductor.bench
    start = Snapshot.take(bench.live.state)
    assert bench.start.differences(start) is None
    if after == "baseline":
        done.do(RunBaseline())
    elif after in ("trial", "failing trial"):
        done.judge()
    elif after == "cancelled trial":
        done.do(RunBaseline(), LockCriteria())
        done.inbox.put(Cancel())
        done.do(RunTrial(attended=True))
    spoil(given)
    done.do(FallBack())
    back = done.one(FellBack)
    assert back.verified == done.one(CheckpointWritten).tensors, "one count for what is saved and what is compared"
    assert back.proven
    assert start.differences(Snapshot.take(bench.live.state)) is None
    assert rng.capture() == bench.rng
    done.do(FallBack())
    assert done.all(FellBack)[-1].proven, "as often as one likes"


def spoil(given: Project) -> None:
    """All that a training run could leave behind."""
    update = given.updates[0]
    with torch.no_grad():
        for tensor in (*given.model.parameters(), *given.model.buffers()):
            tensor.fill_(math.nan if tensor.is_floating_point() else 99)
    given.model.eval()
    given.model.head.requires_grad_(False)
    update.optimizer.param_groups[0]["lr"] = 7.0
    update.optimizer.state.clear()
    update.scheduler.last_epoch = 55
    torch.rand(3)


def test_a_damaged_checkpoint_changes_nothing(opened: Any) -> None:
    given = project()
    done = opened(given)
    path = done.conductor.folder.path / done.conductor.record.path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.chmod(0o600)
    path.write_bytes(bytes(content))
    with torch.no_grad():
        given.model.head.bias.fill_(3.0)
    done.do(FallBack())
    assert refusals(done) == ["checkpoint"]
    assert float(given.model.head.bias) == 3.0
    assert not done.all(FellBack)


def test_bit_for_bit_is_not_said_where_the_repeat_proof_failed(opened: Any) -> None:
    calls = [0]

    def loss(m: Any, batch: Any) -> Tensor:
        calls[0] += 1
        return weighted_loss(m, batch) + calls[0]

    given = project()
    object.__setattr__(given.updates[0], "loss", loss)
    done = opened(given).do(RunBaseline(), FallBack())
    assert not done.one(FellBack).proven


def test_switches_that_user_code_changed_end_with_its_stage(opened: Any) -> None:
    def loss(m: Any, batch: Any) -> Tensor:
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(True)
        return weighted_loss(m, batch)

    given = project()
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

    done = opened(project())
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

    given = project()
    object.__setattr__(given.updates[0], "loss", loss)
    done = opened(given).do(RunBaseline())
    assert done.one(Refused).code == "fp32-failed"
    assert "smaller batches" in done.one(Refused).hint
