"""Plots: axes that hold what is drawn, gaps where a value is not finite, and the same in words."""

from __future__ import annotations

import itertools
import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amptui.report.axes import Axis, axis_for, step_ticks
from amptui.report.plots import Curve, Lines, Strip, Strips, described, fitting_scale
from amptui.report.svg import svg

NAN, INF = math.nan, math.inf


def lines(*values: float, scale: str = "linear", **more: object) -> Lines:
    return Lines("a plot", scale, [Curve("trial", range(len(values)), values)], **more)  # type: ignore[arg-type]


def drawn(plot: Lines | Strips) -> ElementTree.Element:
    return ElementTree.fromstring(svg(plot, "k"))


def runs(plot: Lines) -> list[list[tuple[float, float]]]:
    """Every unbroken line, as its points in the picture."""
    found = []
    for line in drawn(plot).iter("polyline"):
        found.append([tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()])
    return found  # type: ignore[return-value]


def crosses(plot: Lines) -> list[tuple[float, float]]:
    """The middle of every ×, the one in the legend left out."""
    middles = []
    for path in drawn(plot).iter("path"):
        numbers = list(map(float, re.findall(r"[\d.]+", path.attrib["d"])))
        middles.append(((numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2))
    return middles[:-1]


# What is drawn.


def test_a_line_is_not_joined_across_what_is_not_finite() -> None:
    plot = lines(1.0, 2.0, NAN, 2.0, 1.0, INF, 3.0)
    assert [len(run) for run in runs(plot)] == [2, 2]
    assert len(list(drawn(plot).iter("circle"))) == 1, "a point between gaps is a dot"
    assert len(crosses(plot)) == 2


def test_crosses_are_at_the_edge_where_the_value_left() -> None:
    plot = lines(1.0, NAN, INF, -INF, 2.0)
    (_, nan_y), (_, inf_y), (_, low_y) = sorted(crosses(plot))
    assert nan_y == inf_y < 40
    assert low_y > 180


def test_a_plot_without_a_finite_value_has_its_crosses_and_no_line() -> None:
    plot = lines(NAN, NAN, scale="log10")
    assert runs(plot) == []
    assert len(crosses(plot)) == 2


def test_a_short_spike_among_many_iterations_is_drawn() -> None:
    values = [1.0] * 50_000
    values[31_234], values[31_235] = 100.0, -50.0
    [run] = runs(lines(*values))
    assert len(run) < 3000
    highest, lowest = min(y for _, y in run), max(y for _, y in run)
    assert highest < 40
    assert lowest > 180


def test_many_values_that_are_not_finite_are_one_cross_a_column() -> None:
    assert len(crosses(lines(1.0, *[NAN] * 50_000, 1.0))) < 700


def test_a_value_holds_until_the_next_one_on_stairs() -> None:
    [run] = runs(lines(4.0, 4.0, 1.0, scale="log2", stairs=True))
    slanting = [(a, b) for a, b in itertools.pairwise(run) if a[0] != b[0] and a[1] != b[1]]
    assert slanting == [], "lines are level or upright"


@given(st.lists(st.floats(), max_size=40), st.sampled_from(["linear", "log10", "log2"]))
def test_every_plot_is_well_formed_and_stays_in_its_frame(values: list[float], scale: str) -> None:
    plot = lines(*values, scale=scale, limit=("limit", 1.0))
    assert drawn(plot).tag == "svg"
    for run in runs(plot):
        for x, y in run:
            assert 69 <= x <= 709
            assert 25 <= y <= 197
    assert described(plot)


def test_strips_tell_skipped_from_withheld_by_shape_and_keep_the_worst_of_a_column() -> None:
    taken = ["applied"] * 5000
    taken[17], taken[18], taken[4000] = "skipped", "withheld", "no gradient"
    bars = [rect.attrib["class"] for rect in drawn(Strips("updates", [Strip("main", range(5000), taken)])).iter("rect")]
    legend, shown = bars[:4], bars[4:]
    assert legend == ["applied", "skipped", "withheld", "no-gradient"]
    assert len(shown) <= 320
    assert "withheld" in shown
    assert "no-gradient" in shown
    assert "skipped" not in shown, "withheld in the same column is worse"


def test_a_picture_has_its_title_and_its_description() -> None:
    picture = drawn(lines(1.0, 2.0))
    assert picture.attrib["role"] == "img"
    title, description = picture.find("title"), picture.find("desc")
    assert title is not None
    assert description is not None
    assert picture.attrib["aria-labelledby"] == f"{title.attrib['id']} {description.attrib['id']}"
    assert title.text == "a plot"
    assert description.text == described(lines(1.0, 2.0))


# In words.


def test_a_curve_in_words() -> None:
    said = described(lines(2.0, NAN, 0.5, 8.0, 1.0))
    assert said == "Trial: 2 at iteration 0, 1 at 4; lowest 0.5 at 2, highest 8 at 3; not finite at iteration 1."
    assert described(lines(2.0, 2.0)) == "Trial: 2 throughout."
    assert described(lines(NAN)) == "Trial: no value is finite."
    assert described(lines()) == "Trial: no values."
    assert "2^16" in described(lines(65536.0, 32768.0, scale="log2"))


def test_a_limit_in_words() -> None:
    assert described(lines(2.0, 2.0, limit=("limit of clipping", 1.5))).endswith(
        "The line at 1.5 is the limit of clipping."
    )


def test_strips_in_words() -> None:
    strips = Strips("u", [Strip("a", range(3), ["applied"] * 3), Strip("b", range(6), ["skipped"] * 5 + ["applied"])])
    assert described(strips) == (
        "a: applied in all 3 iterations. b: skipped at iterations 0, 1, 2, 3 and 1 more, applied in 1."
    )


# Axes.


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([1.0, 29.0], "linear"),
        ([1.0, 30.0], "log10"),
        ([0.0, 1e9], "linear"),
        ([-1.0, 1e9], "linear"),
        ([NAN], "linear"),
    ],
)
def test_far_apart_positive_values_are_drawn_on_a_logarithmic_axis(values: list[float], scale: str) -> None:
    assert fitting_scale([Curve("c", range(len(values)), values)]) == scale


def test_powers_of_two_are_written_as_such() -> None:
    axis = axis_for([2.0**-3, 2.0**2], "log2")
    assert [label for _, label in axis.ticks()] == ["2⁻³", "2⁻²", "2⁻¹", "2⁰", "2¹", "2²"]


def test_within_a_few_decades_a_logarithmic_axis_has_values_between_them() -> None:
    assert [label for _, label in axis_for([0.02, 0.6], "log10").ticks()] == ["0.02", "0.05", "0.1", "0.2", "0.5"]
    assert [label for _, label in axis_for([1e-3, 1e2], "log10").ticks()][:2] == ["10⁻³", "10⁻²"]


def test_zero_lies_at_the_bottom_of_a_logarithmic_axis() -> None:
    assert axis_for([0.0, 1.0, 100.0], "log10").place(0.0) == 0.0


@given(st.lists(st.floats(-1e300, 1e300), min_size=1), st.sampled_from(["linear", "log10", "log2"]))
def test_ticks_are_few_in_order_and_within_the_axis(values: list[float], scale: str) -> None:
    axis = axis_for([abs(v) for v in values] if scale != "linear" else values, scale)  # type: ignore[arg-type]
    places = [place for place, _ in axis.ticks()]
    assert places == sorted(places)
    assert len(places) <= 10
    assert all(0.0 <= place <= 1.0 for place in places)


@pytest.mark.parametrize(
    "ends", [(1.0, 1.0000001), (5e-324, 1e-310), (-1e308, 1e308), (1.7e308, 1.7e308), (1e-30, 1e30), (0.0, 0.0)]
)
def test_extreme_ranges_have_an_axis(ends: tuple[float, float]) -> None:
    for scale in ("log10", "log2"):
        axis_for(ends, scale).ticks()  # type: ignore[arg-type]
    axis = axis_for(ends, "linear")
    assert isinstance(axis, Axis)
    assert axis.bottom < axis.top
    assert axis.place(ends[0]) <= axis.place(ends[1])
    axis.ticks()


def test_iterations_are_whole_numbers() -> None:
    assert step_ticks(0, 0) == [0]
    assert step_ticks(0, 2) == [0, 1, 2]
    assert step_ticks(0, 39) == [0, 10, 20, 30]
