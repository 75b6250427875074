"""Decisions: plain, with a margin, and equal where they mean the same."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Project
from amptui.engine import rng
from amptui.engine.decisions import (
    DecisionRefused,
    decisions_agree,
    default_margin,
    plain,
    same_decision,
    tied_choices,
)
from amptui.engine.evaluate import Evaluated, evaluate
from amptui.engine.failures import UserCodeError
from tests.engine.projects import opened

X = torch.arange(4.0)


def decided(folder: Path, **how: Any) -> Evaluated:
    project = Project(model=nn.Identity(), cases=[Case(id="a", inputs=X.clone())], **how)
    [one] = evaluate(opened(project, folder), nullcontext, state=rng.capture())
    return one


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (torch.tensor([1, 2]), [1, 2]),
        (torch.tensor(True), True),
        (torch.tensor([1 + 2j]), ["(1+2j)"]),
        (np.int64(3), 3),
        (np.array([1.0, math.inf]), [1.0, math.inf]),
        (np.array([], dtype="float32"), []),
        ([1.0, 2, -math.inf], [1.0, 2, -math.inf]),
        (0.25, 0.25),
        ({"price": 0.25}, {"price": 0.25}),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), ["datetime.date(2020, 1, 1)"]),
        ({"b": {2, 1}, "a": (1,)}, {"b": [1, 2], "a": [1]}),
        (b"x", "b'x'"),
        (None, None),
        ("text", "text"),
    ],
)
def test_decisions_become_plain_values(value: Any, expected: Any) -> None:
    assert plain(value) == expected


@pytest.mark.parametrize(
    ("returned", "decision", "margin"),
    [
        (lambda o: (1, 0.5), 1, 0.5),
        (lambda o: (1, torch.tensor(0.5)), 1, 0.5),
        (lambda o: (1, np.float32(0.5)), 1, 0.5),
        (lambda o: (1, None), 1, None),
        (lambda o: (1, 2), [1, 2], None),
        (lambda o: "cat", "cat", None),
        (lambda o: bool(o[0] > 1), False, None),
        (lambda o: int(o.argmax()), 3, 1.0),
        (lambda o: o.argmax(), 3, 1.0),
    ],
)
def test_a_decision_may_bring_its_margin(returned: Any, decision: Any, margin: Any, tmp_path: Path) -> None:
    one = decided(tmp_path, decide=returned)
    assert (one.decision, one.margin) == (decision, margin)


def test_decide_gets_the_outputs_untouched(tmp_path: Path) -> None:
    seen: list[Any] = []

    def outputs(model: Any, x: Tensor) -> dict[str, Any]:
        return {"scores": x.half(), "extra": "kept"}

    decided(tmp_path, outputs=outputs, decide=seen.append)
    assert seen[0]["scores"].dtype == torch.float16
    assert seen[0]["extra"] == "kept"


@pytest.mark.parametrize(
    ("scores", "decision", "margin"),
    [
        ([[1.0, 3.0, 2.5]], [1], 0.5),
        ([[1.0, 3.0], [5.0, 4.75]], [1, 0], 0.25),
        ([[1.0, 3.0]], 1, 2.0),
        ([1.0, 3.0], 1, 2.0),
        ([1.0, 1.0], 0, 0.0),
        ([1.0, 3.0], 0, None),
        ([1.0, -math.inf], 0, None),
        ([1.0, math.nan], 0, None),
        ([[7.0]], [0], None),
        ([1.0, 3.0], True, None),
        ([[1.0, 3.0]], {"label": 1}, 2.0),
    ],
)
def test_the_margin_is_the_gap_of_the_two_largest_where_the_decision_is_the_argmax(
    scores: Any, decision: Any, margin: float | None
) -> None:
    assert default_margin({"output": torch.tensor(scores)}, decision) == margin


def test_a_decision_about_nothing_has_no_margin() -> None:
    assert default_margin({"scores": torch.empty(0, 5)}, []) is None


def test_ties_are_the_candidates_with_exactly_the_largest_score() -> None:
    scores = {"output": torch.tensor([[2.0, 1.0, 2.0], [0.0, 3.0, 2.9999]])}
    ties = tied_choices(scores, [0, 1])
    assert ties == [[0, 2], [1]]
    assert decisions_agree([0, 1], [2, 1], ties)
    assert not decisions_agree([0, 1], [1, 1], ties)
    assert not decisions_agree([0, 1], [2, 2], ties)
    assert not decisions_agree([0, 1], [2, 1], None), "without ties the baseline's own choice must stand"
    assert tied_choices(scores, "cat") is None


def test_nan_decides_like_nan() -> None:
    assert same_decision([1.0, {"x": math.nan}], [1.0, {"x": float("nan")}])
    assert decisions_agree([math.nan], [float("nan")], None)
    assert not same_decision([math.nan], [1.0])
    assert not same_decision([1, 2], [1])
    assert not same_decision({"a": 1}, {"b": 1})


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (object(), "object, which cannot be compared"),
        ([1, lambda: 0], "function, which cannot be compared"),
        (torch.tensor([0.25, 0.75]), "a tensor of float32 fractions"),
        (np.array([[0.25, 0.75]], dtype="float32"), "float32 fractions in a NumPy ndarray"),
        (np.array([math.nan, 0.25], dtype="longdouble"), "fractions in a NumPy ndarray"),
        (np.float32(0.25), "float32 fractions in a NumPy float32"),
        (np.float64(0.25), "float64 fractions in a NumPy float64"),
        ([0.25, 0.75], "a list with fractions"),
        ((1, 0.25, math.nan), "a tuple with fractions"),
        ({"scores": [[1.0, 2.0], [1.0, 2.5]]}, "a list with fractions"),
        (["cat", 0.97], "a list with fractions"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_what_to_return(returned: object, said: str) -> None:
    with pytest.raises(DecisionRefused, match=said) as refused:
        plain(returned)
    assert "argmax(-1).tolist()" in str(refused.value)


@pytest.mark.parametrize("scores", [lambda o: o.tolist(), lambda o: o.numpy(), lambda o: tuple(o.tolist())])
def test_raw_scores_for_a_decision_are_a_failure_of_decide_in_that_case(scores: Any, tmp_path: Path) -> None:
    with pytest.raises(UserCodeError) as failed:
        decided(tmp_path, decide=lambda o: scores(o / 3))
    assert (failed.value.phase, failed.value.case) == ("decide", "a")
    assert "fractions" in failed.value.message


def test_whole_numbers_in_a_float_tensor_are_a_decision() -> None:
    assert plain(torch.tensor([0.0, 1.0, float("inf")])) == [0.0, 1.0, float("inf")]
