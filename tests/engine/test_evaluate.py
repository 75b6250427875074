"""Cases: evaluated without changing anything, their outputs named, their decisions and figures plain."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Project
from amptui.engine import rng
from amptui.engine.evaluate import (
    Evaluated,
    OutputsRefused,
    eval_mode,
    evaluate,
    figures,
    named_outputs,
    nonfinite_outputs,
    quality,
)
from amptui.engine.failures import UserCodeError
from amptui.engine.live import LiveProject
from tests.engine.projects import opened

X = torch.arange(4.0)


def live(folder: Path, model: Any = None, cases: Sequence[Case] | None = None, **how: Any) -> LiveProject:
    return opened(Project(model=model or nn.Identity(), cases=cases or [Case(id="a", inputs=X.clone())], **how), folder)


def evaluated(project: LiveProject, **how: Any) -> list[Evaluated]:
    return evaluate(project, nullcontext, state=rng.capture(), **how)


# How the model is run.


class Mixed(nn.Module):
    """Some parts train, some are frozen in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.BatchNorm1d(2).eval()
        self.drop = nn.Dropout(0.5)
        self.inner = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(2).eval())

    def forward(self, x: Tensor) -> Tensor:
        assert not any(module.training for module in self.modules())
        return self.drop(x)


def test_cases_run_in_eval_mode_and_each_modules_own_mode_is_put_back(tmp_path: Path) -> None:
    model = Mixed()
    before = [module.training for module in model.modules()]
    [one] = evaluated(live(tmp_path, model))
    assert torch.equal(one.outputs["output"], X), "dropout was off"
    assert [module.training for module in model.modules()] == before


@pytest.mark.parametrize("ending", [ValueError, KeyboardInterrupt])
def test_modes_are_put_back_also_after_exceptions(ending: type[BaseException]) -> None:
    model = Mixed()
    before = [module.training for module in model.modules()]
    with pytest.raises(ending), eval_mode({"": model}):
        raise ending
    assert [module.training for module in model.modules()] == before


class Merging(nn.Module):
    """Adapters of this kind merge their weights in eval mode and take them out again in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.adapter = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
        self.merged = False

    def train(self, mode: bool = True) -> Merging:
        super().train(mode)
        if mode == self.merged:
            with torch.no_grad():
                self.weight.add_(self.adapter, alpha=-1.0 if mode else 1.0)
            self.merged = not mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


@pytest.mark.parametrize("outer", [lambda m: m, nn.Sequential, lambda m: nn.Sequential(nn.Dropout().eval(), m)])
def test_a_module_that_does_more_in_eval_mode_undoes_it(outer: Callable[[nn.Module], nn.Module]) -> None:
    model = Merging()
    with eval_mode({"": outer(model)}):
        assert model.merged
        assert float(model.weight) == 2.0
    assert not model.merged
    assert float(model.weight) == 1.0
    assert model.training


class FrozenStatistics(nn.BatchNorm1d):
    """Ignores training mode, as detection backbones do."""

    def train(self, mode: bool = True) -> FrozenStatistics:
        return super().train(False)  # type: ignore[return-value]


def test_a_module_that_never_trains_stays_as_it_was() -> None:
    model = nn.Sequential(FrozenStatistics(2), nn.Dropout()).train()
    with eval_mode({"": model}):
        pass
    assert [module.training for module in model.modules()] == [True, False, True]


def test_no_gradient_is_recorded_unless_the_project_wants_one(tmp_path: Path) -> None:
    def forces(model: Any, x: Tensor) -> Tensor:
        assert not torch.is_grad_enabled()
        with torch.enable_grad():
            place = x.requires_grad_()
            return torch.autograd.grad((model(place) ** 2).sum(), place)[0]

    [one] = evaluated(live(tmp_path, nn.Linear(4, 1), outputs=forces))
    assert not one.outputs["output"].requires_grad


def test_each_case_starts_from_the_same_random_state(tmp_path: Path) -> None:
    cases = [Case(id="a", inputs=X), Case(id="b", inputs=X)]
    one, other = evaluated(live(tmp_path, cases=cases, outputs=lambda m, x: torch.rand(3)))
    assert torch.equal(one.outputs["output"], other.outputs["output"])


def test_inputs_are_handed_out_fresh(tmp_path: Path) -> None:
    def spoil(model: Any, x: Tensor) -> Tensor:
        return x.mul_(-1.0)

    project = live(tmp_path, outputs=spoil)
    for _ in range(2):
        assert torch.equal(evaluated(project)[0].outputs["output"], -X)
    mine = torch.ones(2)
    project = live(tmp_path / "2", cases=[Case(id="a", inputs=mine)], outputs=spoil)
    mine.zero_()
    assert torch.equal(evaluated(project)[0].outputs["output"], -torch.ones(2)), "frozen when the project was opened"


def test_outputs_are_what_they_were_when_they_came_out(tmp_path: Path) -> None:
    model = nn.Identity()
    model.register_buffer("held", torch.zeros(4))

    def held(model: Any, x: Tensor) -> Tensor:
        return model.held.add_(1.0)

    def decide(output: Tensor) -> int:
        return int(output.sub_(100.0).argmax())  # edits what it gets

    cases = [Case(id="a", inputs=X), Case(id="b", inputs=X)]
    found = evaluated(live(tmp_path, model, cases, outputs=held, decide=decide))
    assert [float(e.outputs["output"][0]) for e in found] == [1.0, -98.0]


class Keywords(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a - b


@pytest.mark.parametrize(
    "inputs",
    [
        {"b": torch.ones(1), "a": torch.zeros(1)},
        collections.UserDict(b=torch.ones(1), a=torch.zeros(1)),
        (torch.zeros(1), torch.ones(1)),
    ],
    ids=["dict", "mapping-like class", "tuple"],
)
def test_a_mapping_becomes_keywords_and_a_tuple_positions(inputs: Any, tmp_path: Path) -> None:
    [one] = evaluated(live(tmp_path, Keywords(), [Case(id="a", inputs=inputs)]))
    assert one.outputs["output"].tolist() == [-1.0]


def test_a_list_is_one_argument(tmp_path: Path) -> None:
    [one] = evaluated(live(tmp_path, cases=[Case(id="a", inputs=[X])]))
    assert list(one.outputs) == ["output.0"]


def test_a_mapping_of_models_needs_outputs(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError) as failed:
        evaluated(live(tmp_path, {"a": nn.Identity()}))
    assert isinstance(failed.value.original, OutputsRefused)
    assert "outputs=lambda" in failed.value.message


def test_a_case_that_fails_is_told_and_the_others_are_evaluated(tmp_path: Path) -> None:
    def outputs(model: Any, x: Tensor) -> Tensor:
        if x[0] > 0:
            raise SystemExit("no")
        return x

    cases = [Case(id=name, inputs=torch.full((1,), value)) for name, value in (("a", 0.0), ("b", 1.0), ("c", 0.0))]
    failures: list[UserCodeError] = []
    done: list[int] = []
    found = evaluated(live(tmp_path, cases=cases, outputs=outputs), on_failure=failures.append, on_case=done.append)
    assert [e.case.id for e in found] == ["a", "c"]
    assert [e.index for e in found] == [0, 2]
    assert [(f.case, f.phase) for f in failures] == [("b", "outputs")]
    assert done == [0, 1, 2]


# Names of outputs.


class Fields(collections.namedtuple("Fields", "logits hidden")):
    pass


@dataclasses.dataclass
class Prediction:
    boxes: Tensor
    cache: Any = None


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        (X, ["output"]),
        ({"logits": X, "loss": None, "note": "text"}, ["logits"]),
        ({"a": {"b": X, "c": [X, X]}}, ["a.b", "a.c.0", "a.c.1"]),
        ((X, X), ["output.0", "output.1"]),
        ([{"boxes": X}], ["output.0.boxes"]),
        (Fields(X, X), ["logits", "hidden"]),
        (Prediction(X), ["boxes"]),
        (collections.UserDict(logits=X), ["logits"]),
        ({3: X}, ["3"]),
    ],
)
def test_outputs_of_any_nesting_get_names(raw: Any, names: list[str]) -> None:
    assert list(named_outputs(raw)) == names


@pytest.mark.parametrize("raw", [None, 3.0, {}, [], {"a": None}, "text"])
def test_outputs_without_a_tensor_are_refused(raw: Any) -> None:
    with pytest.raises(OutputsRefused, match="without a tensor"):
        named_outputs(raw)


def test_sparse_outputs_are_made_dense() -> None:
    assert torch.equal(named_outputs(torch.eye(2).to_sparse())["output"], torch.eye(2))


# Figures.


def one(output: Tensor, target: Any = None) -> Any:
    [facts] = figures(Evaluated(Case(id="a", inputs=X, target=target), 0, {"output": output})).outputs
    return facts


def test_extremes_are_those_of_the_finite_values() -> None:
    facts = one(torch.tensor([1.0, -2.0, math.inf, -math.inf, math.nan, math.nan]))
    assert (facts.lowest, facts.highest) == (-2.0, 1.0)
    assert (facts.nan, facts.positive_inf, facts.negative_inf) == (2, 1, 1)
    assert (one(torch.tensor([math.nan])).lowest, one(torch.empty(0)).highest) == (None, None)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16, torch.bfloat16, torch.complex64])
def test_every_dtype_has_extremes(dtype: torch.dtype) -> None:
    facts = one(torch.tensor([0, 1]).to(dtype))
    assert (facts.lowest, facts.highest) == (0.0, 1.0)
    assert facts.dtype == str(dtype).removeprefix("torch.")


TARGETS: list[Any] = [
    torch.zeros(200),
    torch.zeros(200, 1).half(),
    np.zeros(200, dtype=np.float32),
    [0.0] * 200,
    {"output": torch.zeros(200), "other": torch.ones(3)},
]


@pytest.mark.parametrize("target", TARGETS, ids=["tensor", "column", "array", "list", "by name"])
def test_with_a_target_of_numbers_errors_are_recorded(target: Any) -> None:
    facts = one(torch.arange(1.0, 201.0), target)
    assert facts.error_mean == pytest.approx(100.5)
    assert facts.error_p99 == 198.0, "the smallest error that 99 % do not exceed"
    assert facts.error_max == 200.0


@pytest.mark.parametrize("target", [3, True, torch.tensor([1, 2]), [1, 2], "cat", torch.zeros(3), np.array([1, 2]), []])
def test_labels_and_targets_of_another_size_give_no_errors(target: Any) -> None:
    assert one(torch.tensor([1.0, 2.0]), target).error_max is None


def test_a_number_is_a_target_for_a_single_value() -> None:
    assert one(torch.tensor([1.5]), 1.0).error_max == 0.5
    assert one(torch.tensor(1.5), np.float64(1.0)).error_max == 0.5


def test_outputs_that_are_not_finite_are_named() -> None:
    outputs = {
        "a": torch.ones(1),
        "b": torch.tensor(math.nan),
        "c": torch.tensor([1]),
        "d": torch.tensor([1j * math.inf]),
    }
    assert nonfinite_outputs(Evaluated(Case(id="a", inputs=X), 0, outputs)) == ("b", "d")


# Quality.


def test_quality_gets_rows_that_it_may_edit(tmp_path: Path) -> None:
    seen: list[Any] = []

    def score(rows: Sequence[Any]) -> float:
        seen.extend(rows)
        for row in rows:
            row.outputs.zero_()
            row.target["y"].zero_()
        return 0.5

    target = {"y": torch.ones(1)}
    project = live(
        tmp_path, cases=[Case(id="a", inputs=X, target=target, tag="edge")], quality=score, decide=lambda o: [1, 2]
    )
    results = evaluated(project)
    assert quality(project, results) == 0.5
    assert (seen[0].id, seen[0].tag, seen[0].decision) == ("a", "edge", [1, 2])
    assert torch.equal(results[0].outputs["output"], X)
    assert bool(target["y"].all())


def test_quality_gets_a_mapping_where_outputs_gave_one(tmp_path: Path) -> None:
    kinds = []
    for outputs in (None, lambda m, x: {"output": x}):
        project = live(tmp_path, outputs=outputs, quality=lambda rows: kinds.append(type(rows[0].outputs)) or 1.0)
        quality(project, evaluated(project))
    assert kinds == [Tensor, dict]


@pytest.mark.parametrize("returned", [None, "good", [1.0], torch.ones(3)])
def test_a_quality_that_is_no_number_is_the_projects_failure(returned: Any, tmp_path: Path) -> None:
    project = live(tmp_path, quality=lambda rows: returned)
    with pytest.raises(UserCodeError) as failed:
        quality(project, evaluated(project))
    assert failed.value.phase == "quality"


def test_without_quality_or_cases_there_is_none(tmp_path: Path) -> None:
    project = live(tmp_path)
    assert quality(project, evaluated(project)) is None
    assert quality(live(tmp_path, quality=lambda rows: 1.0), []) is None
