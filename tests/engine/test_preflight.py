"""What is found by running one window before anything is promised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Project, Update
from amptui.protocol.events import Refused, Remarked
from tests.engine.conducted import opened_by
from tests.engine.test_replay import everything_changing

X = torch.ones(2, 4)


def one(model: Any, loss: Any, **how: Any) -> Project:
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
    return Project(model=model, updates=[update], batches=[(X,)] * 3, **how)


def test_parameters_that_a_forward_changes_itself_are_known_and_no_step_in_backward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, _ = everything_changing()
    done = opened_by(project, tmp_path, monkeypatch)
    assert not done.all(Refused)
    assert done.conductor.bench is not None
    assert done.conductor.bench.live.self_changing == {"momentum.weight", "extra:average.weight"}


def test_a_forward_that_normalises_trained_weights_in_place_is_no_step_in_backward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        with torch.no_grad():
            model.weight.div_(model.weight.norm() * 2)
        return model(batch[0]).sum()

    done = opened_by(one(nn.Linear(4, 1), loss), tmp_path, monkeypatch)
    assert not done.all(Refused)
    assert done.conductor.bench is not None
    assert done.conductor.bench.live.self_changing == {"weight"}


def test_a_parameter_that_is_nan_from_the_start_is_no_step_in_backward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(4, 1)
    with torch.no_grad():
        model.bias.fill_(float("nan"))
    done = opened_by(one(model, lambda m, b: m(b[0]).sum()), tmp_path, monkeypatch)
    assert not done.all(Refused)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_a_loss_that_is_float16_without_autocast_is_refused(
    half: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = opened_by(one(nn.Linear(4, 1), lambda m, b: m(b[0]).sum().to(half)), tmp_path, monkeypatch)
    assert [refused.code for refused in done.all(Refused)] == (["half-loss"] if half is torch.float16 else [])


def test_an_autocast_opened_for_cases_alone_is_remarked_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def outputs(model: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    project = Project(model=nn.Linear(4, 1), cases=[Case(id="a", inputs=X)], outputs=outputs)
    done = opened_by(project, tmp_path, monkeypatch)
    assert [remark.code for remark in done.all(Remarked)] == ["own-autocast"]


def test_a_loss_that_ends_the_process_later_ends_only_what_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def loss(model: Any, batch: Any) -> Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise SystemExit(0)
        return model(batch[0]).sum()

    done = opened_by(one(nn.Linear(4, 1), loss), tmp_path, monkeypatch)
    assert done.conductor.bench is not None, "remarks and probes lose what they asked, not the session"


def test_a_model_without_values_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(4, 1))
    shapeless = nn.Sequential(nn.LazyLinear(1))
    for index, (model, code, name) in enumerate(
        ((empty, "meta-device", "0.weight"), (shapeless, "lazy-parameters", "0.weight"))
    ):
        project = Project(model=model, cases=[Case(id="a", inputs=X)])
        refused = opened_by(project, tmp_path / str(index), monkeypatch).one(Refused)
        assert refused.code == code
        assert name in refused.message


def test_extra_state_that_cannot_be_put_back_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = one(nn.Linear(4, 1), lambda m, b: m(b[0]).sum(), extra_state={"sampler": object()})
    refused = opened_by(project, tmp_path, monkeypatch).one(Refused)
    assert refused.code == "state"
    assert "extra:sampler" in refused.message
