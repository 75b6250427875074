"""The measured figure of a row is told in its own unit, and so is its limit."""

from __future__ import annotations

import math

import pytest

from amptui.findings.judgement import Row
from amptui.report.told_rows import OF_LIMIT, limit, made_of, measured, of_limit, of_limit_text, unit_notes


def test_progress_is_a_share_of_the_baselines_loss_and_says_so() -> None:
    row = Row(criterion="progress", passed=None, baseline=0.4765, trial=0.4763, measured=-0.0003988, limit=0.1)
    assert measured(row) == "below by 0.04 %"
    assert limit(row) == "10 %"


def test_other_figures_stay_in_the_unit_of_their_limit() -> None:
    row = Row(criterion="difference", passed=False, what="output y", measured=0.25, limit=0.125)
    assert (measured(row), limit(row)) == ("0.25", "0.125")
    assert measured(Row(criterion="finite", passed=True)) == ""


@pytest.mark.parametrize(
    ("beyond_rtol", "atol", "said"),
    [
        (0.000117, 0.00508, "2.3 %"),
        (0.00508, 0.00508, "100 %"),
        (math.nextafter(0.00508, 1.0), 0.00508, "over 100 %"),
        (0.0, 0.0, "0 %"),
        (1e-9, 0.0, "inf"),
        (math.inf, 0.5, "inf"),
        (math.nan, 0.5, "nan"),
    ],
)
def test_of_limit_reads_as_passed_up_to_100_percent_and_only_then(beyond_rtol: float, atol: float, said: str) -> None:
    assert of_limit_text(beyond_rtol, atol) == said
    assert (of_limit(beyond_rtol, atol) <= 100.0) is (beyond_rtol <= atol)
    assert "up to 100 % passes" in OF_LIMIT


def test_only_the_kinds_that_are_shown_are_explained() -> None:
    gradient = Row(criterion="difference", passed=False, what="gradient of w of main, iteration 0", measured=0.5)
    progress = Row(criterion="progress", passed=None, measured=0.02)
    (about_gradient,) = unit_notes([gradient])
    assert "layer's norm" in about_gradient
    assert len(unit_notes([gradient, progress, progress])) == 2


def test_rows_of_several_kinds_are_counted_apart() -> None:
    decided = [Row(criterion="decision", passed=True, case=f"c{n}", what="decision") for n in range(25)]
    total = Row(criterion="decision", passed=True, what="changed decisions in 25 cases")
    assert made_of([*decided, total]) == "25 cases, the number of changes"

    def finite(case: str | None, what: str) -> Row:
        return Row(criterion="finite", passed=True, case=case, what=what)

    before = [finite(f"c{n}", "output y before the stretch") for n in range(25)]
    after = [finite(f"c{n}", "outputs after the stretch") for n in range(25)]
    stretch = finite(None, "loss, gradients and buffers of main over the stretch")
    assert made_of([*before, stretch, *after]) == (
        "25 outputs of cases, 25 cases after the stretch, 1 update over the stretch"
    )
    assert made_of(before) == "", "one kind needs no words"
