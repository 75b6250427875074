"""Trial against baseline, tensor by tensor: what counts as a difference and how large it is."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from amptui.engine.compare import compare_gradients, compare_outputs, largest_difference
from amptui.findings.evidence import TensorDifference

INF, NAN = math.inf, math.nan


def compared(baseline: Tensor, trial: Tensor, *, atol: float = 0.0, rtol: float = 0.0) -> TensorDifference:
    return compare_outputs("scores", baseline, trial, atol=atol, rtol=rtol)


def t(*values: float) -> Tensor:
    return torch.tensor(values)


def test_the_worst_element_is_named_with_both_its_values() -> None:
    baseline = torch.zeros(2, 3)
    trial = baseline.clone()
    trial[1, 2] = 0.5
    found = compared(baseline, trial, atol=0.1)
    assert (found.measured, found.largest, found.limit) == (0.5, 0.5, 0.1)
    assert (found.place, found.baseline, found.trial) == ((1, 2), 0.0, 0.5)
    assert (found.elements, found.beyond, found.nonfinite) == (6, 1, 0)


def test_the_relative_tolerance_belongs_to_the_baselines_size() -> None:
    found = compared(t(100.0, 1.0), t(101.0, 1.5), rtol=0.01)
    assert found.place == (1,), "0.5 beyond 0.01 is worse than 1 within 1"
    assert found.measured == pytest.approx(0.49)
    assert found.largest == 1.0


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-1e3, 1e3, width=32), st.floats(-1e3, 1e3, width=32)), min_size=1, max_size=8),
    st.floats(0, 10),
    st.floats(0, 1),
)
def test_it_passes_exactly_where_every_element_is_within_atol_and_rtol(
    pairs: list[tuple[float, float]], atol: float, rtol: float
) -> None:
    baseline, trial = (torch.tensor(side, dtype=torch.float64) for side in zip(*pairs, strict=True))
    found = compared(baseline, trial, atol=atol, rtol=rtol)
    excess = [abs(b - a) - rtol * abs(a) for a, b in zip(baseline.tolist(), trial.tolist(), strict=True)]
    assert (found.measured <= atol) == all(e <= atol or a == b for e, (a, b) in zip(excess, pairs, strict=True))
    assert found.beyond == sum(e > atol and a != b for e, (a, b) in zip(excess, pairs, strict=True))


@pytest.mark.parametrize(
    ("baseline", "trial", "measured", "nonfinite"),
    [
        (t(INF), t(INF), 0.0, 0),
        (t(-INF, 1.0), t(-INF, 1.0), 0.0, 0),
        (t(INF), t(-INF), INF, 1),
        (t(1.0), t(INF), INF, 1),
        (t(INF), t(1.0), INF, 0),
        (t(1.0), t(NAN), INF, 1),
        (t(NAN), t(NAN), INF, 1),
        (t(NAN), t(1.0), INF, 0),
        (t(INF), t(NAN), INF, 1),
    ],
)
@pytest.mark.parametrize("rtol", [0.0, 0.5])
def test_the_same_infinity_is_no_difference_and_everything_else_not_finite_is_an_infinite_one(
    baseline: Tensor, trial: Tensor, measured: float, nonfinite: int, rtol: float
) -> None:
    found = compared(baseline, trial, atol=1e9, rtol=rtol)
    assert found.measured == measured
    assert found.nonfinite == nonfinite
    assert found.beyond == (1 if measured == INF else 0)


def test_other_shapes_are_told() -> None:
    found = compared(torch.ones(2, 3), torch.ones(3, 2))
    assert found.measured == INF
    assert "(2, 3) became (3, 2)" in found.name
    assert found.elements == found.beyond == 6


@pytest.mark.parametrize(
    ("baseline", "trial", "measured", "place"),
    [
        (torch.tensor(1.0), torch.tensor(1.5), 0.5, ()),
        (torch.empty(0, 3), torch.empty(0, 3), 0.0, ()),
        (torch.tensor([True, False]), torch.tensor([True, True]), 1.0, (1,)),
        (torch.tensor([1, 5]), torch.tensor([1, 9]), 4.0, (1,)),
        (torch.tensor([2**60]), torch.tensor([2**60 + 1]), 1.0, (0,)),
        (torch.tensor([1 + 1j, 2 + 2j]), torch.tensor([1 + 1j, 2 + 5j]), 3.0, (1,)),
        (torch.tensor([1.0, 2.0]), torch.tensor([1.0 + 0j, 2.0 + 1j]), 1.0, (1,)),
        (torch.ones(2), torch.ones(2).half(), 0.0, (0,)),
        (torch.ones(2), torch.ones(2).bfloat16() * 1.5, 0.5, (0,)),
        (torch.tensor([1e300], dtype=torch.float64), torch.tensor([-1e300], dtype=torch.float64), 2e300, (0,)),
        (torch.eye(2).to_sparse(), (torch.eye(2) * 2).to_sparse(), 1.0, (0, 0)),
    ],
)
def test_every_dtype_and_shape_can_be_compared(
    baseline: Tensor, trial: Tensor, measured: float, place: tuple[int, ...]
) -> None:
    found = compared(baseline, trial)
    assert found.measured == measured
    assert found.place == place


def test_two_equal_runs_that_are_not_finite_do_not_differ() -> None:
    assert largest_difference(t(NAN, INF, 1.0), t(NAN, INF, 1.0)) == 0.0
    assert largest_difference(t(NAN, 1.0), t(1.0, NAN)) == INF
    assert largest_difference(t(NAN, 1.0), t(NAN, 3.0)) == 2.0
    assert largest_difference(torch.ones(2), torch.ones(3)) == INF


# Gradients.


def gradients(baseline: list[Tensor | None], trial: list[Tensor | None], limit: float = 0.1) -> TensorDifference:
    names = [f"layer{index}" for index in range(len(baseline))]
    return compare_gradients(names, baseline, trial, limit=limit, update="main")


def test_the_layer_that_moved_most_relative_to_its_own_norm_is_named() -> None:
    found = gradients([t(3.0, 4.0), t(10.0)], [t(3.0, 4.5), t(10.5)])
    assert found.name == "gradient layer0"
    assert found.measured == pytest.approx(0.1)
    assert (found.baseline, found.largest, found.update) == (5.0, 0.5, "main")
    assert found.elements == 2


def test_a_layer_that_is_nearly_zero_beside_the_others_is_judged_by_the_whole() -> None:
    found = gradients([t(100.0), t(1e-7)], [t(100.0), t(2e-7)])
    assert found.measured < 1e-6


def test_a_missing_gradient_is_all_of_it() -> None:
    assert gradients([t(2.0), t(3.0)], [None, t(3.0)]).measured == 1.0
    assert gradients([None, None], [None, None]).measured == 0.0
    assert gradients([None], [t(1.0)]).measured == INF
    assert gradients([None], [t(0.0)]).measured == 0.0


@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_gradient_that_is_not_finite_is_beyond_every_limit(bad: float) -> None:
    found = gradients([t(1.0), t(1.0)], [t(1.0), t(bad)], limit=1e9)
    assert (found.measured, found.name, found.beyond, found.nonfinite) == (INF, "gradient layer1", 1, 1)


def test_the_largest_gradients_are_no_overflow() -> None:
    huge = torch.tensor([1e200], dtype=torch.float64)
    assert gradients([huge], [huge * 1.5]).measured == pytest.approx(0.5)


def test_half_gradients_are_compared_in_full() -> None:
    assert gradients([torch.full((1000,), 200.0)], [torch.full((1000,), 200.0).half()]).measured == 0.0
