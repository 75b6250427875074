"""What is refused by name before anything runs, and what is only remarked on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Policy, Project, Scaler, Update
from amptui.protocol.commands import RunBaseline
from amptui.protocol.events import CheckpointWritten, Probed, Refused, Remarked, StageEnded
from tests.engine.conducted import Conducted, opened_by

X = torch.ones(2, 4)


def loss(model: Any, batch: Any) -> Tensor:
    return model(batch[0]).float().sum()


def project(**changes: Any) -> Project:
    model = changes.pop("model", None) or nn.Linear(4, 1)
    optimizer = changes.pop("optimizer", None) or torch.optim.SGD(model.parameters(), lr=0.1)
    update = Update(optimizer=optimizer, loss=changes.pop("loss", loss))
    return Project(model=model, updates=[update], batches=changes.pop("batches", [(X,)] * 3), **changes)


def refused(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **given: Any) -> Refused:
    done = opened_by(project, tmp_path, monkeypatch, **given)
    refusal = done.one(Refused)
    assert not done.one(StageEnded).completed
    assert refusal.message
    assert refusal.hint, "every refusal says what to do"
    return refusal


class Fast16(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1).half()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.half()).float()


def shared_parameter() -> Project:
    model = nn.Linear(4, 1)
    updates = [
        Update(name=name, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss) for name in ("one", "two")
    ]
    return Project(model=model, updates=updates, batches=[(X,)])


def outside_parameter() -> Project:
    model, head = nn.Linear(4, 1), nn.Linear(1, 1)
    return project(model=model, optimizer=torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1))


def sparse() -> Project:
    model = nn.Embedding(5, 3, sparse=True)
    return project(model=model, loss=lambda m, b: m(b[0]).sum(), batches=[(torch.tensor([1, 2]),)])


def sparse_by_function() -> Project:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Parameter(torch.ones(5, 3))

        def forward(self, ids: Tensor) -> Tensor:
            return nn.functional.embedding(ids, self.rows, sparse=True)

    return project(model=Table(), loss=lambda m, b: m(b[0]).sum(), batches=[(torch.tensor([1, 2]),)])


def step_in_backward() -> Project:
    model = nn.Linear(4, 1)
    hidden = torch.optim.SGD(model.parameters(), lr=0.1)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _p: hidden.step())
    return project(model=model)


def own_scaler() -> Project:
    scaler = torch.amp.GradScaler("cpu")
    return project(loss=lambda m, b: scaler.scale(m(b[0]).sum()))


def own_backward() -> Project:
    def calling_backward(model: Any, batch: Any) -> Tensor:
        total = model(batch[0]).sum()
        total.backward()
        return total

    return project(loss=calling_backward)


REFUSED: dict[str, tuple[Callable[[], Project], str | None]] = {
    "half-parameters": (lambda: project(model=Fast16()), "dtype"),
    "shared-parameter": (shared_parameter, "loop_order"),
    "parameter-outside-model": (outside_parameter, "loop_order"),
    "closure": (lambda: project(optimizer=None, model=None) and lbfgs(), "loop_order"),
    "sparse-gradient": (sparse, "dtype"),
    "step-in-backward": (step_in_backward, "loop_order"),
    "scaler-in-loss": (own_scaler, "loop_order"),
    "loop-in-loss": (own_backward, "loop_order"),
    "no-batches": (lambda: project(batches=[]), None),
    "nothing-to-judge": (lambda: Project(model=nn.Linear(1, 1)), None),
    "case-ids": (
        lambda: Project(model=nn.Linear(4, 1), cases=[Case(id="a", inputs=X), Case(id="a", inputs=X)]), None,
    ),
    "case-type": (lambda: Project(model=nn.Linear(4, 1), cases=[X]), None),  # type: ignore[list-item]
    "model-type": (lambda: Project(model=3, cases=[Case(id="a", inputs=X)]), None),  # type: ignore[arg-type]
    "optimizer-type": (lambda: project(optimizer=object()), None),
}  # fmt: skip


def lbfgs() -> Project:
    model = nn.Linear(4, 1)
    return project(model=model, optimizer=torch.optim.LBFGS(model.parameters()))


@pytest.mark.parametrize("code", REFUSED)
def test_each_refusal_has_its_own_code_message_and_mend(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, kind = REFUSED[code]
    refusal = refused(make(), tmp_path, monkeypatch)
    assert refusal.code == code
    assert [finding.kind for finding in refusal.findings] == ([kind] if kind else [])
    if kind:
        assert refusal.where is not None
        assert refusal.where.startswith(__file__), "the user's file:line"


def test_sparse_gradients_of_a_functional_embedding_are_found_by_running_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refused(sparse_by_function(), tmp_path, monkeypatch).code == "sparse-gradient"


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda m, b: m(b[0]), "shape (2, 1)"),
        (lambda m, b: m(b[0]).sum().item(), "float"),
        (lambda m, b: m(b[0]).sum().detach(), "needs no gradient"),
        (lambda m, b: {"total": m(b[0]).sum()}, "key 'loss'"),
        (lambda m, b: m(b[0]).sum().int(), "dtype torch.int32"),
        (lambda m, b: None, "NoneType"),
    ],
)
def test_a_loss_that_cannot_drive_backward_is_refused(
    returned: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = refused(project(loss=returned), tmp_path, monkeypatch)
    assert refusal.code == "loss"
    assert words in refusal.message


def test_code_that_fails_in_fp32_is_told_with_the_users_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: Any, batch: Any) -> Tensor:
        raise KeyError("labels")

    refusal = refused(project(loss=broken), tmp_path, monkeypatch)
    assert refusal.code == "fp32-failed"
    assert "KeyError" in refusal.message
    assert refusal.where == f"{__file__}:{broken.__code__.co_firstlineno + 1}"


def test_a_device_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(project(), tmp_path, monkeypatch, device="cuda:63").code == "device"
    assert refused(project(), tmp_path / "2", monkeypatch, device="nonsense").code == "device"


def remarks(done: Conducted) -> set[str]:
    assert not done.all(Refused), done.all(Refused)
    return {remark.code for remark in done.all(Remarked)}


class OwnAutocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layer(x).float()


def test_autocast_inside_the_project_is_remarked_on_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = opened_by(project(model=OwnAutocast()), tmp_path, monkeypatch)
    [remark] = [r for r in done.all(Remarked) if r.code == "own-autocast"]
    line = OwnAutocast.forward.__code__.co_firstlineno + 1
    assert remark.where == f"{__file__}:{line}"


def entered(model: Any, batch: Any) -> Tensor:
    torch.autocast("cpu", dtype=torch.bfloat16).__enter__()
    return loss(model, batch).float()


def switched(model: Any, batch: Any) -> Tensor:
    torch.set_autocast_enabled("cpu", True)
    return loss(model, batch).float()


SWITCH = torch.set_autocast_enabled


def switched_by_a_name(model: Any, batch: Any) -> Tensor:
    SWITCH("cpu", True)
    return loss(model, batch).float()


@pytest.mark.parametrize(("leaving", "line"), [(entered, 1), (switched, 1), (switched_by_a_name, 0)])
def test_autocast_that_a_loss_leaves_on_is_refused_with_its_line(
    leaving: Any, line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = opened_by(project(loss=leaving), tmp_path, monkeypatch)
    refused = done.one(Refused)
    assert refused.code == "autocast-left-on"
    assert refused.where == f"{__file__}:{leaving.__code__.co_firstlineno + line}"
    assert "with torch.autocast(" in refused.hint
    [finding] = refused.findings
    assert (finding.kind, finding.stage, finding.line) == ("autocast_state", "forward", refused.where)
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_that_outputs_leaves_on_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def outputs(model: Any, inputs: Any) -> Tensor:
        torch.set_autocast_enabled("cpu", True)
        return model(inputs).float()

    case = Case(id="a", inputs=X)
    done = opened_by(project(cases=[case], outputs=outputs), tmp_path, monkeypatch)
    assert done.one(Refused).where == f"{__file__}:{outputs.__code__.co_firstlineno + 1}"


def test_autocast_that_is_left_on_in_a_later_iteration_alone_is_refused_in_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves_on = False

    def late(model: Any, batch: Any) -> Tensor:
        if leaves_on:
            torch.set_autocast_enabled("cpu", True)
        return loss(model, batch).float()

    done = opened_by(project(loss=late), tmp_path, monkeypatch)
    assert not done.all(Refused)
    leaves_on = True
    done.do(RunBaseline())
    assert done.one(Refused).code == "autocast-left-on"


def test_deprecated_autocast_is_remarked_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def old(model: Any, batch: Any) -> Tensor:
        with torch.cpu.amp.autocast():
            return loss(model, batch)

    with pytest.warns(FutureWarning):
        done = opened_by(project(loss=old), tmp_path, monkeypatch)
    assert {"deprecated-autocast", "own-autocast"} <= remarks(done)


def test_values_made_half_by_hand_are_remarked_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def halved(model: Any, batch: Any) -> Tensor:
        return model(batch[0]).half().float().sum()

    done = opened_by(project(loss=halved), tmp_path, monkeypatch)
    [remark] = [r for r in done.all(Remarked) if r.code == "hard-coded-half"]
    assert remark.where == f"{__file__}:{halved.__code__.co_firstlineno + 1}"


def test_loose_parameters_eval_mode_and_a_remainder_are_remarked_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 1), "loose": nn.Linear(4, 1)}).eval()
    update = Update(
        optimizer=torch.optim.SGD(model["used"].parameters(), lr=0.1),
        loss=lambda m, b: m["used"](b[0]).sum(),
        accumulate=2,
    )
    done = opened_by(Project(model=model, updates=[update], batches=[(X,)] * 5), tmp_path, monkeypatch)
    assert {"parameter-in-no-optimizer", "eval-mode", "remainder"} <= remarks(done)


def test_a_scaler_without_updates_is_said_to_do_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference = Project(model=nn.Linear(4, 1), cases=[Case(id="a", inputs=X)], policy=Policy(scaler=Scaler()))
    assert "scaler-without-updates" in remarks(opened_by(inference, tmp_path, monkeypatch))


def test_a_quiet_project_gets_no_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert remarks(opened_by(project(), tmp_path, monkeypatch)) == set()


def test_the_dtypes_are_probed_by_running_and_the_failing_line_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def picky(model: Any, batch: Any) -> Tensor:
        out = model(batch[0])
        if out.dtype == torch.float16:
            raise RuntimeError("\"picky\" not implemented for 'Half'")
        return out.float().sum()

    done = opened_by(project(loss=picky), tmp_path, monkeypatch)
    probes = {probe.dtype: probe for probe in done.all(Probed)}
    assert not probes["float16"].supported
    assert "not implemented for 'Half'" in (probes["float16"].error or "")
    assert probes["float16"].where == f"{__file__}:{picky.__code__.co_firstlineno + 3}"
    assert probes["bfloat16"].supported


def test_nothing_that_preflight_runs_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rng = torch.get_rng_state()
    done = opened_by(project(model=model), tmp_path, monkeypatch)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), rng)
    assert done.one(CheckpointWritten).tensors > 0
