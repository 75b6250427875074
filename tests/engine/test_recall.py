"""A retained case replayed in the engine: its own weights, batch, RNG and policy, and nothing changed by it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Policy, Project, Scaler, Update
from amptui.engine.recall import recall
from amptui.engine.refusals import Refusal
from amptui.engine.snapshot import Snapshot
from amptui.protocol.events import CaseReplayed, CaseRetained, VerdictReached
from tests.engine.conducted import Conducted, opened_by
from tests.engine.diagnosis.told import Net, batches, trained


def power(h: Tensor) -> Tensor:
    return torch.log1p(h**4)


def retained(project: Project, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Conducted, CaseRetained]:
    conducted = opened_by(project, folder, monkeypatch)
    conducted.judge()
    return conducted, conducted.all(CaseRetained)[0]


def recalled(conducted: Conducted, kept: CaseRetained) -> CaseReplayed:
    bench = conducted.conductor.bench
    assert bench is not None
    told = tuple(f for event in conducted.all(VerdictReached) for f in event.findings)
    return recall(bench.live, bench.start, Path(kept.path), told)


def test_it_fails_where_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conducted, kept = retained(trained(Net(power), batches(b2=40.0)), tmp_path, monkeypatch)
    event = recalled(conducted, kept)
    assert (event.outcome, event.step, event.update) == ("same", 2, "main")
    assert [(f.kind, f.module, f.op) for f in event.findings][:1] == [("overflow", "block", "pow")]
    assert dict(event.variations)["true FP32, no scaling"] == "finite"
    assert dict(event.variations)["as it ran: float16, scale 2^4"] == "not finite"


def test_the_advice_is_the_one_that_the_session_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conducted, kept = retained(trained(Net(power), batches(b2=40.0)), tmp_path, monkeypatch)
    (told,) = (f for e in conducted.all(VerdictReached) for f in e.findings if f.kind == "overflow" and f.op == "pow")
    first = recalled(conducted, kept).findings[0]
    assert "Policy(fp32_regions=['block'])" in told.advice
    assert first.advice == told.advice
    assert first.facts["fp32_regions"] == told.facts["fp32_regions"]


def test_the_live_state_is_the_checkpoints_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Net(nn.Sequential(nn.BatchNorm1d(8), nn.Dropout(0.2)))
    conducted, kept = retained(trained(model, batches(b2=1e7)), tmp_path, monkeypatch)
    bench = conducted.conductor.bench
    assert bench is not None
    bench.start.restore()
    recalled(conducted, kept)
    assert bench.start.differences(Snapshot.take(bench.live.state)) is None


def test_a_mended_module_is_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Net(power)
    conducted, kept = retained(trained(model, batches(b2=40.0)), tmp_path, monkeypatch)
    model.block.function = lambda h: torch.log1p(h.float() ** 4)  # type: ignore[assignment]
    event = recalled(conducted, kept)
    assert (event.outcome, event.findings) == ("fixed", ())


def test_another_fault_is_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Net(power)
    conducted, kept = retained(trained(model, batches(b2=40.0)), tmp_path, monkeypatch)
    model.block.function = lambda h: torch.log(h.float() * 0.0)  # type: ignore[assignment]
    event = recalled(conducted, kept)
    assert event.outcome == "other_place"
    assert event.findings[0].op == "log"
    assert event.findings[0].fp32_ok is False


def test_masks_are_no_fault_of_the_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(h: Tensor) -> Tensor:
        scores = (h @ h.T).masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), float("-inf"))
        return torch.softmax(scores / 1e4, -1) @ h

    conducted, kept = retained(trained(Net(attend), batches(b2=400.0)), tmp_path, monkeypatch)
    event = recalled(conducted, kept)
    assert event.findings[0].op == "mm"
    assert all(f.op != "masked_fill" for f in event.findings)


def test_regions_of_its_policy_are_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Net(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)))
    with torch.no_grad():
        model.block[0].weight.mul_(1e4)  # type: ignore[index]
        model.head.weight.mul_(3e5)
    project = trained(model, batches(b2=100.0), policy={"fp32_regions": ("block.0",)})
    conducted, kept = retained(project, tmp_path, monkeypatch)
    assert recalled(conducted, kept).findings[0].module == "head"


def test_another_shape_is_refused_by_the_tensors_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Net(power)
    conducted, kept = retained(trained(model, batches(b2=40.0)), tmp_path, monkeypatch)
    model.head = nn.Linear(8, 4)
    with pytest.raises(Refusal, match=r"head\.weight of the retained case does not fit"):
        recalled(conducted, kept)


def test_an_update_that_is_gone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conducted, kept = retained(trained(Net(power), batches(b2=40.0)), tmp_path, monkeypatch)
    bench = conducted.conductor.bench
    assert bench is not None
    with pytest.raises(Refusal, match="no update 'main'"):
        recall(dataclasses.replace(bench.live, updates=()), bench.start, Path(kept.path), ())


@dataclasses.dataclass
class Sample:
    """A batch that no file keeps as it is."""

    x: Tensor
    y: Tensor


def test_a_batch_of_the_projects_own_kind_is_filled_with_what_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loss(model: nn.Module, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(model(batch.x).float(), batch.y)

    data = [Sample(b["x"], b["y"]) for b in batches(b2=40.0)]
    model = Net(power)
    project = Project(
        model=model,
        updates=[Update(optimizer=torch.optim.SGD(model.parameters(), lr=1e-3), loss=loss)],
        batches=data,
        policy=Policy(scaler=Scaler(init_scale=16.0)),
    )
    conducted, kept = retained(project, tmp_path, monkeypatch)
    assert recalled(conducted, kept).outcome == "same"
