"""Labels are short, differ from each other and sit at least two rows apart; limits contain the data."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amptui.ui.raster.axis import LABEL, Axis, Scale, axis, ticks

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(a=FINITE, b=FINITE, rows=st.integers(0, 40))
def test_a_linear_axis_contains_its_values_and_its_labels_never_collide(a: float, b: float, rows: int) -> None:
    low, high = min(a, b), max(a, b)
    made = axis(low, high, "linear")
    assert made.low <= low
    assert high <= made.high
    assert made.low < made.high
    check_ticks(made, rows)


@given(
    a=st.floats(min_value=0, allow_infinity=False),
    b=st.floats(min_value=0, allow_infinity=False),
    rows=st.integers(0, 40),
    scale=st.sampled_from(["log", "log2"]),
)
def test_a_logarithmic_axis_contains_its_positive_values(a: float, b: float, rows: int, scale: Scale) -> None:
    low, high = min(a, b), max(a, b)
    made = axis(low, high, scale)
    for value in (low, high):
        assert 0.0 <= made.fraction(value) <= 1.0
    if low > 0:
        logarithm = math.log2 if scale == "log2" else math.log10
        assert made.low <= logarithm(low) <= logarithm(high) <= made.high
    check_ticks(made, rows)


def check_ticks(made: Axis, rows: int) -> None:
    marks = ticks(made, rows)
    assert len(marks) <= max(rows, 0)
    labels = [label for _, label in marks]
    assert all(0 < len(label) <= LABEL for label in labels)
    places = [row for row, _ in marks]
    assert all(0 <= row < rows for row in places)
    assert places == sorted(set(places))
    if rows > 2:
        assert all(after - before >= 2 for before, after in itertools.pairwise(places))
    assert len(set(labels)) == len(labels)


@given(a=FINITE, b=FINITE, value=FINITE)
def test_a_larger_value_never_lies_lower(a: float, b: float, value: float) -> None:
    made = axis(min(a, b), max(a, b), "linear")
    assert made.fraction(min(a, value)) <= made.fraction(max(a, value))


@pytest.mark.parametrize(
    ("low", "high", "scale", "labels"),
    [
        (0.42, 2.31, "linear", ["2.5", "2", "1", "0"]),
        (32768.0, 65536.0, "log2", ["2^16", "2^15"]),
        (1e-8, 3.0, "log", ["10", "1e-4", "1e-8"]),
        (2.31001, 2.31002, "linear", ["2.31002", "2.31001"]),
        (1.0 + 1e-12, 1.0 + 2e-12, "linear", ["+2e-12", "1"]),
        (0.0, 0.0, "linear", ["1", "0"]),
    ],
)
def test_labels_read_well(low: float, high: float, scale: Scale, labels: list[str]) -> None:
    rows = 8 if len(labels) > 2 else 3
    found = [label for _, label in ticks(axis(low, high, scale), rows)]
    assert [found[0], found[-1]] == [labels[0], labels[-1]]
