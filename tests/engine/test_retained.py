"""Retained cases: the first of each kind, in files that torch reads safely and that replay the failure."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from amptui import Policy, Project, Scaler, Update
from amptui.engine import rng
from amptui.engine.course import run_stretch
from amptui.engine.iteration import GuardedRun, Phase
from amptui.engine.retained import KEPT_IN_ALL, Retention
from amptui.engine.tape import RngTape
from amptui.protocol.events import CaseRetained
from amptui.session.folder import SessionFolder
from tests.engine.projects import Net, batches, opened, weighted_loss


def kept(project: Project, folder: Path, policy: Policy, *, again: bool = False) -> list[CaseRetained]:
    told: list[Any] = []
    session = SessionFolder.open(folder / "session") if again else SessionFolder.create(folder / "session")
    retention = Retention(session, told.append)
    live = opened(project, folder / "batches")
    run = GuardedRun(live, policy, mixed=True, tape=RngTape())

    def on_phase(phase: Phase) -> None:
        if phase.trip is not None:
            retention.keep(run, phase.trip)

    run_stretch(run, live.batches.iterations, on_phase=on_phase, on_record=lambda record: None)
    return [event for event in told if isinstance(event, CaseRetained)]


def net(**how: Any) -> Project:
    torch.manual_seed(1)
    model = Net()
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.01), loss=weighted_loss, **how)
    return Project(model=model, updates=[update], batches=batches(6, bad=(1, 2, 4)))


def test_the_first_of_each_kind_is_kept(tmp_path: Path) -> None:
    found = kept(net(), tmp_path, Policy(scaler=Scaler(init_scale=1024.0)))
    assert [(case.step, case.outcome) for case in found] == [(1, "bad_gradient")]
    assert found[0].bytes == Path(found[0].path).stat().st_size
    assert Path(found[0].path).stat().st_mode & 0o077 == 0, "a user's data is the user's alone"


def test_the_file_replays_the_failure_without_amptui(tmp_path: Path) -> None:
    [case] = kept(net(), tmp_path, Policy(scaler=Scaler(init_scale=1024.0)))
    content = torch.load(case.path, weights_only=True)
    assert (content["step"], content["update"], content["outcome"]) == (1, "main", "bad_gradient")
    assert json.loads(content["policy"])["dtype"] == "float16"

    model = Net()
    model.load_state_dict({**content["parameters"], **content["buffers"]})
    rng.restore(rng.RngState.from_plain(content["rng"]["0"]))
    x, y, weight = content["batches"][0]
    with torch.autocast("cpu", dtype=torch.float16):
        loss = weighted_loss(model, (x, y, weight))
    (loss * content["scale"]).backward()
    assert any(not bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)
    model.zero_grad()
    rng.restore(rng.RngState.from_plain(content["rng"]["0"]))
    weighted_loss(model, (x, y, weight)).backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)


def test_weights_and_buffers_are_those_before_the_failing_forward(tmp_path: Path) -> None:
    [case] = kept(net(), tmp_path, Policy(scaler=Scaler(init_scale=1024.0)))
    content = torch.load(case.path, weights_only=True)
    assert int(content["buffers"]["norm.num_batches_tracked"]) == 1, "one healthy iteration had run"


def test_all_micro_batches_of_a_window_are_kept(tmp_path: Path) -> None:
    [case] = kept(net(accumulate=3), tmp_path, Policy(scaler=Scaler(init_scale=1024.0)))
    content = torch.load(case.path, weights_only=True)
    assert len(content["batches"]) == 3
    assert set(content["rng"]) == {"0", "1", "2"}


@dataclasses.dataclass
class Sample:
    x: Tensor


def test_batches_of_foreign_objects_keep_their_tensors(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)

    def loss(m: Any, batch: Any) -> Tensor:
        return m(batch.x).float().sum() * float("nan")

    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
    project = Project(model=model, updates=[update], batches=[Sample(torch.ones(2, 4))])
    [case] = kept(project, tmp_path, Policy(dtype="bfloat16"))
    content = torch.load(case.path, weights_only=True)
    assert torch.equal(content["batches"][0]["tensors"][0], torch.ones(2, 4))


def test_a_second_trial_keeps_its_own_beside_those_of_the_first(tmp_path: Path) -> None:
    policy = Policy(scaler=Scaler(init_scale=1024.0))
    [first] = kept(net(), tmp_path, policy)
    [second] = kept(net(), tmp_path, policy, again=True)
    assert first.id != second.id
    assert Path(first.path).exists()
    assert Path(second.path).exists()


def test_not_more_than_so_many_are_kept_in_all(tmp_path: Path) -> None:
    names = [f"part{index}" for index in range(KEPT_IN_ALL + 3)]
    model = nn.ModuleDict({name: nn.Linear(4, 1) for name in names})
    updates = [
        Update(
            name=name,
            optimizer=torch.optim.SGD(model[name].parameters(), lr=0.1),
            loss=lambda m, b, name=name: m[name](b[0]).sum() * float("nan"),
        )
        for name in names
    ]
    project = Project(model=model, updates=updates, batches=[(torch.ones(2, 4),)])
    found = kept(project, tmp_path, Policy(dtype="bfloat16"))
    assert len(found) == KEPT_IN_ALL
    assert len({case.path for case in found}) == KEPT_IN_ALL
