"""A history keeps recent steps exactly, everything in outline, and stays small."""

from __future__ import annotations

import itertools
import math
import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from amptui.ui.raster.columns import MINUS_INF, NAN, PLUS_INF, Values, columns
from amptui.ui.series import CAPACITY, Outcomes, Series

VALUES = st.one_of(st.floats(), st.none())


@given(values=st.lists(VALUES, max_size=300), first=st.integers(0, 300), more=st.integers(0, 300))
def test_a_short_history_draws_exactly_as_the_list_does(values: list[float | None], first: int, more: int) -> None:
    series = Series()
    for step, value in enumerate(values):
        series.append(step, value)
    assert columns(series, first, first + more, 512) == columns(Values(values), first, first + more, 512)


def long_series(count: int, special: dict[int, float]) -> Series:
    series = Series()
    for step in range(count):
        series.append(step, special.get(step, 1.0))
    return series


@settings(max_examples=40, deadline=None)
@given(
    place=st.integers(0, 8_999),
    value=st.sampled_from([9.0, math.nan, math.inf, -math.inf]),
    around=st.integers(0, 4000),
)
def test_no_spike_is_lost_at_any_age_or_zoom(place: int, value: float, around: int) -> None:
    series = long_series(9_000, {place: value})
    for first, last in ((0, 8_999), (max(0, place - around), min(8_999, place + around)), (place, place)):
        drawn = columns(series, first, last, 160)
        if math.isfinite(value):
            assert max(column.high for column in drawn) == value
        else:
            bit = NAN if math.isnan(value) else (PLUS_INF if value > 0 else MINUS_INF)
            assert any(column.lost & bit for column in drawn)


def test_every_step_of_the_range_is_covered_once_and_in_order() -> None:
    series = long_series(50_000, {})
    for first, last in ((0, 49_999), (1000, 1100), (49_000, 49_999), (123, 40_000)):
        buckets = list(series.buckets(first, last, 160))
        assert buckets[0].first <= first
        assert buckets[-1].last >= last
        for before, after in itertools.pairwise(buckets):
            assert after.first == before.last + 1


def test_the_most_recent_steps_are_exact() -> None:
    series = long_series(50_000, {})
    exact = list(series.buckets(50_000 - 500, 49_999, 500))
    assert [bucket.first for bucket in exact] == list(range(50_000 - 500, 50_000))


def test_memory_and_drawing_do_not_grow_with_the_run() -> None:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    series = long_series(40_000, {})
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert used < 400_000
    assert sum(1 for _ in series.buckets(0, 39_999, 480)) <= 4 * 480 + CAPACITY // 4


def test_the_same_step_again_widens_and_an_earlier_one_starts_over_from_there() -> None:
    series = Series()
    for step in range(10):
        series.append(step, float(step))
    series.append(9, 50.0)
    assert columns(series, 9, 9, 1)[0][:2] == (9.0, 50.0)
    series.append(4, -1.0)
    assert (series.first, series.last, series.value) == (0, 4, -1.0)
    assert [column.high for column in columns(series, 0, 4, 5)] == [0.0, 1.0, 2.0, 3.0, -1.0]


def test_a_long_history_rewound_goes_on() -> None:
    series = long_series(30_000, {})
    series.append(20_000, 7.0)
    for step in range(20_001, 20_500):
        series.append(step, 2.0)
    assert series.last == 20_499
    assert max(column.high for column in columns(series, 0, 20_499, 160)) == 7.0
    assert series.extremes()[:2] == (1.0, 7.0)


def test_rewound_to_nothing_it_is_empty() -> None:
    series = Series()
    series.append(5, 1.0)
    series.rewind(0)
    assert (series.first, series.last, series.value) == (None, None, None)
    series.append(0, 3.0)
    assert series.extremes()[:2] == (3.0, 3.0)


def test_sparse_steps_keep_their_places() -> None:
    series = Series()
    for step in range(0, 50, 5):
        series.append(step, float(step))
    drawn = columns(series, 0, 49, 50)
    assert [index for index, column in enumerate(drawn) if column.has_value] == list(range(0, 50, 5))


def test_outcomes_show_the_newest_exactly_and_the_worst_of_many() -> None:
    outcomes = Outcomes()
    assert outcomes.recent(5) == []
    for step in range(5000):
        outcomes.append(step, "withheld" if step == 1234 else "applied")
    outcomes.append(5000, "skipped")
    assert outcomes.recent(3) == ["applied", "applied", "skipped"]
    overview = outcomes.over(0, 5000, 50)
    assert 1 <= overview.count("withheld") <= 2  # an old one may straddle two places
    assert overview[-1] == "skipped"
    assert set(overview[:-1]) == {"applied", "withheld"}
