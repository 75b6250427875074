"""The way back to the FP32 checkpoint, bit for bit, from wherever a session stands."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from amptui import Project
from amptui.engine import rng
from amptui.engine.snapshot import Snapshot
from amptui.protocol.commands import Cancel, FallBack, LockCriteria, RunBaseline, RunTrial
from amptui.protocol.events import CheckpointWritten, FellBack
from tests.engine.projects import full_project, weighted_loss


@pytest.mark.parametrize("after", ["opening", "baseline", "trial", "failing trial", "cancelled trial"])
def test_fall_back_restores_everything_bit_for_bit(after: str, opened: Any) -> None:
    given = full_project(bad=(2, 5) if after == "failing trial" else ())
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
    given = full_project()
    done = opened(given)
    path = done.conductor.folder.path / done.conductor.record.path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.chmod(0o600)
    path.write_bytes(bytes(content))
    with torch.no_grad():
        given.model.head.bias.fill_(3.0)
    done.do(FallBack())
    assert done.refusals == ["checkpoint"]
    assert float(given.model.head.bias) == 3.0
    assert not done.all(FellBack)


def test_bit_for_bit_is_not_said_where_the_repeat_proof_failed(opened: Any) -> None:
    calls = [0]

    def loss(m: Any, batch: Any) -> Tensor:
        calls[0] += 1
        return weighted_loss(m, batch) + calls[0]

    given = full_project()
    object.__setattr__(given.updates[0], "loss", loss)
    done = opened(given).do(RunBaseline(), FallBack())
    assert not done.one(FellBack).proven
