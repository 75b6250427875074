"""Finding cases: the smallest margins and the extremes among the batches, as a file that a project loads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Project, Update
from amptui.engine.case_search import search
from amptui.engine.refusals import Refusal
from amptui.protocol.commands import FindCases
from amptui.protocol.events import CasesFound
from amptui.protocol.measuring import FoundCase
from tests.engine.benches import bench_of, unchanged


class Scores(nn.Module):
    """Two scores, the input's first two numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def cross(model: nn.Module, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def project(model: nn.Module, loss: Any, batches: Sequence[Any], **changes: Any) -> Project:
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
    values: dict[str, Any] = {"decide": lambda scores: scores.argmax(-1)}
    return Project(model=model, updates=[update], batches=list(batches), **{**values, **changes})


def pairs(*rows: tuple[float, float]) -> tuple[Tensor, Tensor]:
    return torch.tensor(rows), torch.zeros(len(rows), dtype=torch.long)


def searched(project: Project, folder: Path, **command: Any) -> CasesFound:
    asked = FindCases(**command)
    return search(bench_of(project, folder), asked.boundary).told(asked.path)


def by_id(told: CasesFound) -> dict[str, FoundCase]:
    return {found.id: found for found in told.found}


BATCHES = (pairs((3.0, 1.0), (1.0, 1.25)), pairs((0.5, 9.0), (2.0, 1.5)))


def test_the_smallest_margins_are_boundary_cases_with_their_place(tmp_path: Path) -> None:
    told = searched(project(Scores(), cross, BATCHES), tmp_path, boundary=2)

    boundary = [found for found in told.found if found.tag == "boundary"]
    assert [(f.batch, f.sample, f.margin, f.decision) for f in boundary] == [
        (0, 1, 0.25, [1]),
        (1, 1, 0.5, [0]),
    ]
    assert told.samples == 4


def test_the_largest_activation_is_an_edge_case(tmp_path: Path) -> None:
    found = by_id(searched(project(Scores(), cross, BATCHES), tmp_path))["largest-activation"]

    assert (found.tag, found.batch, found.sample, found.largest) == ("edge", 1, 0, 9.0)


def test_an_empty_input_is_made_where_the_batches_have_none(tmp_path: Path) -> None:
    made = by_id(searched(project(Scores(), cross, BATCHES), tmp_path / "made"))["empty"]
    blank = (*BATCHES, pairs((0.0, 0.0), (1.0, 2.0)))
    found = by_id(searched(project(Scores(), cross, blank), tmp_path / "found"))["empty"]

    assert (made.batch, made.sample) == (None, None)
    assert (found.batch, found.sample) == (2, 0)


def test_the_file_holds_the_keywords_of_cases(tmp_path: Path) -> None:
    path = tmp_path / "found.pt"
    told = searched(project(Scores(), cross, BATCHES), tmp_path, path=str(path), boundary=1)

    cases = [Case(**case) for case in torch.load(path, weights_only=True)]
    assert told.path == str(path)
    assert [case.id for case in cases] == [found.id for found in told.found]
    assert torch.equal(cases[0].inputs, torch.tensor([[1.0, 1.25]]))

    judged = project(Scores(), cross, BATCHES, cases=cases)
    assert len(bench_of(judged, tmp_path / "again").live.cases) == len(cases)


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        searched(project(Scores(), cross, BATCHES), tmp_path, path=str(tmp_path / "no" / "found.pt"))

    assert refused.value.code == "write"


class Masked(nn.Module):
    """Means over what the mask leaves; keyword arguments, as many language models take them."""

    def __init__(self, safe: bool = True) -> None:
        super().__init__()
        self.embed, self.head, self.safe = nn.Embedding(9, 4), nn.Linear(4, 2), safe

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        count = mask.sum(1, keepdim=True).float()
        if self.safe:
            count = count.clamp(min=1.0)
        return self.head((self.embed(ids) * mask[..., None]).sum(1) / count)


def sentences() -> list[dict[str, Tensor]]:
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]])
    return [{"ids": torch.arange(12).reshape(3, 4) % 9, "mask": mask, "y": torch.zeros(3, dtype=torch.long)}]


def by_keywords(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(ids=batch["ids"], mask=batch["mask"]), batch["y"])


class TestMasks:
    def test_the_longest_and_the_shortest_go_by_the_mask(self, tmp_path: Path) -> None:
        found = by_id(searched(project(Masked(), by_keywords, sentences()), tmp_path))

        assert (found["longest"].sample, found["shortest"].sample) == (0, 1)

    def test_a_wholly_masked_input_is_made(self, tmp_path: Path) -> None:
        path = tmp_path / "found.pt"
        told = searched(project(Masked(), by_keywords, sentences()), tmp_path, path=str(path))

        cases = {case["id"]: case for case in torch.load(path, weights_only=True)}
        assert by_id(told)["fully-masked"].batch is None
        assert not cases["fully-masked"]["inputs"]["mask"].any()
        assert set(cases["fully-masked"]["inputs"]) == {"ids", "mask"}, "what the model is given, without the target"

    def test_one_that_is_not_finite_in_fp32_is_no_case_and_this_is_said(self, tmp_path: Path) -> None:
        told = searched(project(Masked(safe=False), by_keywords, sentences()), tmp_path)

        assert "fully-masked" not in by_id(told)
        assert any("'fully-masked': FP32 is not finite" in remark for remark in told.remarks)


class TestWhatCannotBeFound:
    def test_without_a_decision_there_is_no_boundary(self, tmp_path: Path) -> None:
        told = searched(project(Scores(), cross, BATCHES, decide=None), tmp_path)

        assert not [found for found in told.found if found.tag == "boundary"]
        assert any("without decide" in remark for remark in told.remarks)

    def test_a_decision_without_a_margin_is_told(self, tmp_path: Path) -> None:
        told = searched(project(Scores(), cross, BATCHES, decide=lambda scores: "same"), tmp_path)

        assert any("tells no margin" in remark for remark in told.remarks)

    def test_samples_that_are_not_finite_are_left_out(self, tmp_path: Path) -> None:
        batches = (*BATCHES, pairs((float("nan"), 1.0), (1.0, 7.0)))
        told = searched(project(Scores(), cross, batches), tmp_path)

        assert any("1 samples are not finite" in remark for remark in told.remarks)
        assert all((found.batch, found.sample) != (2, 0) for found in told.found)

    def test_a_project_without_batches_is_refused(self, tmp_path: Path) -> None:
        inference = Project(model=Scores(), cases=[Case(id="a", inputs=torch.ones(1, 2))])

        with pytest.raises(Refusal, match="no batches"):
            searched(inference, tmp_path)

    def test_batches_of_which_no_inputs_can_be_made_are_refused(self, tmp_path: Path) -> None:
        def outputs(model: nn.Module, inputs: Any) -> Tensor:
            raise KeyError("question")

        with pytest.raises(Refusal, match="no inputs for cases"):
            searched(project(Scores(), cross, BATCHES, outputs=outputs), tmp_path)


def test_outputs_of_the_projects_own_are_given_what_they_take(tmp_path: Path) -> None:
    def outputs(model: nn.Module, inputs: tuple[Tensor, Tensor]) -> Tensor:
        x, _labels = inputs
        return model(x)

    told = searched(project(Scores(), cross, BATCHES, outputs=outputs), tmp_path, boundary=1)

    assert by_id(told)["boundary-1"].margin == 0.25


def test_the_checkpoints_state_is_as_before(tmp_path: Path) -> None:
    bench = bench_of(project(Scores(), cross, BATCHES), tmp_path)

    search(bench, FindCases().boundary)

    assert unchanged(bench)
