"""A plot shows every spike and every value that is not finite, in exactly the cells that it was given."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amptui.text import display_width, safe_text
from amptui.ui.raster.axis import Scale
from amptui.ui.raster.columns import Bucket, Values
from amptui.ui.raster.frame import Limit
from amptui.ui.raster.glyphs import ASCII, UNICODE, Glyphs
from amptui.ui.raster.line import Line, plain
from amptui.ui.raster.plot import Picture, Trace, raster
from amptui.ui.series import Series

HOSTILE = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1.7976931348623157e308, -1.7976931348623157e308, 65504.0, 2.0**-149]),
    st.none(),
)
SCALES = st.sampled_from(["linear", "log", "log2"])
GLYPHS = st.sampled_from([UNICODE, ASCII])


def plot(
    values: list[float | None],
    width: int = 46,
    height: int = 8,
    *,
    scale: Scale = "linear",
    glyphs: Glyphs = UNICODE,
    held: bool = False,
    previous: Picture | None = None,
    limits: tuple[Limit, ...] = (),
    steps: bool = False,
) -> Picture:
    trace = Trace(source=Values(values), held=held)
    return raster(
        [trace],
        width,
        height,
        scale=scale,
        last=max(0, len(values) - 1),
        glyphs=glyphs,
        previous=previous,
        limits=limits,
        steps=steps,
    )


def text(picture: Picture) -> list[str]:
    return [plain(line) for line in picture.lines]


def cells(picture: Picture) -> list[str]:
    """The rows beside the axis."""
    return [row[6:] for row in text(picture)]


def roles_of(line: Line, character: str) -> set[str]:
    return {role for part, role in line if character in part}


@given(
    series=st.lists(st.lists(HOSTILE, max_size=60), max_size=3),
    width=st.integers(0, 60),
    height=st.integers(0, 14),
    scale=SCALES,
    glyphs=GLYPHS,
    held=st.booleans(),
    first=st.integers(-5, 5),
    last=st.integers(-5, 80),
    limits=st.lists(st.builds(Limit, st.floats(), st.text(max_size=12)), max_size=2),
    steps=st.sampled_from([None, True, False]),
)
def test_any_values_fill_exactly_the_cells_given(
    series: list[list[float | None]],
    width: int,
    height: int,
    scale: Scale,
    glyphs: Glyphs,
    held: bool,
    first: int,
    last: int,
    limits: list[Limit],
    steps: bool | None,
) -> None:
    traces = [
        Trace(source=Values(values), role="trial" if index == 0 else "baseline", dashed=index > 0, held=held)
        for index, values in enumerate(series)
    ]
    picture = raster(
        traces, width, height, scale=scale, glyphs=glyphs, first=first, last=last, limits=limits, steps=steps
    )
    assert len(picture.lines) == (height if width > 0 else 0)
    assert all(display_width(row) == width for row in text(picture))
    assert all(safe_text(row, limit=9999) == row for row in text(picture))


@given(data=st.data(), count=st.integers(2, 3000), glyphs=GLYPHS, dashed=st.booleans())
def test_a_single_spike_among_thousands_reaches_the_top_row(
    data: st.DataObject, count: int, glyphs: Glyphs, dashed: bool
) -> None:
    place = data.draw(st.integers(0, count - 1))
    values = [1.0] * count
    values[place] = 10.0
    trace = Trace(source=Values(values), dashed=dashed)
    picture = raster([trace], 46, 8, last=count - 1, glyphs=glyphs)
    column = int(place * (39 if glyphs is ASCII else 79) / (count - 1)) // (1 if glyphs is ASCII else 2)
    reach = 1 if dashed else 0  # a dash may end one cell before, at the same height
    assert cells(picture)[0][max(0, column - reach) : column + 1 + reach].strip()


@given(place=st.integers(0, 999), value=st.sampled_from([math.inf, -math.inf, math.nan]), glyphs=GLYPHS, scale=SCALES)
def test_a_single_value_that_is_not_finite_shows_a_cross_in_its_column(
    place: int, value: float, glyphs: Glyphs, scale: Scale
) -> None:
    values = [2.0 + index % 7 for index in range(1000)]
    values[place] = value
    picture = raster([Trace(source=Values(values))], 46, 8, last=999, glyphs=glyphs, scale=scale, steps=False)
    column = int(place * (39 if glyphs is ASCII else 79) / 999) // (1 if glyphs is ASCII else 2)
    rows = [number for number, row in enumerate(cells(picture)) if row[column] == glyphs.lost]
    assert rows
    if value == math.inf:
        assert rows == [0]
    if value == -math.inf:
        assert rows == [7]
    assert "bad" in roles_of(picture.lines[rows[0]], glyphs.lost)


def test_nan_shows_where_the_line_broke_off_and_the_line_is_not_joined_across() -> None:
    picture = plot([8.0, 8.0, math.nan, 0.0, 0.0], width=46, height=9)
    rows = cells(picture)
    crosses = [(number, row.index("×")) for number, row in enumerate(rows) if "×" in row]
    assert crosses == [(0, 19)]
    assert not any(row[11:29].replace("×", "").strip() for row in rows)


def test_a_gap_is_neither_joined_nor_marked() -> None:
    rows = cells(plot([8.0, 8.0, None, 0.0, 0.0], width=46, height=9))
    assert not any(row[11:29].strip() for row in rows)


def test_few_values_are_joined_by_a_line_without_holes() -> None:
    rows = cells(plot([0.0, 10.0], width=46, height=10))
    assert all(any(row[column] != " " for row in rows) for column in range(40))


def test_held_values_make_a_staircase() -> None:
    rows = cells(plot([65536.0, 65536.0, 32768.0, 32768.0], width=46, height=4, scale="log2", held=True))
    assert [row.rstrip() for row in rows] == [
        "⠉" * 26 + "⡇",
        " " * 26 + "⡇",
        " " * 26 + "⡇",
        " " * 26 + "⣇" + "⣀" * 13,
    ]


def test_the_first_trace_lies_on_top_and_the_second_is_dashed() -> None:
    top, below = [5.0] * 40, [1.0] * 40
    same = raster([Trace(source=Values(top)), Trace(source=Values(top), role="baseline", dashed=True)], 46, 6, last=39)
    assert "baseline" not in {role for line in same.lines for _, role in line}
    apart = raster(
        [Trace(source=Values(top)), Trace(source=Values(below), role="baseline", dashed=True)], 46, 6, last=39
    )
    dashed = next(line for line in apart.lines if "baseline" in {role for _, role in line})
    drawn = [character != " " for character in plain(dashed)[6:]]
    assert drawn == [True, False] * 20


def test_zero_on_a_logarithmic_axis_shows_an_arrow_at_the_bottom() -> None:
    rows = cells(plot([1.0, 0.1, 0.0, 0.01], width=46, height=5, scale="log"))
    assert "↓" in rows[-1]


def test_without_a_value_it_says_so() -> None:
    assert any("no values yet" in row for row in text(plot([])))


def test_only_values_that_are_not_finite_still_show_their_crosses() -> None:
    rows = text(plot([math.nan, math.inf]))
    assert any("×" in row for row in rows)
    assert not any("no values yet" in row for row in rows)


def test_a_limit_is_drawn_behind_the_curve_with_its_word() -> None:
    rows = cells(plot([0.0, 4.0], height=6, limits=(Limit(1.0, "clip 1.0"),)))
    ruled = next(row for row in rows if "┈" in row)
    assert ruled.endswith(" clip 1.0")


def test_the_word_of_a_limit_gives_way_to_the_curve() -> None:
    at_the_right = cells(plot([4.0, 4.0, 1.0, 1.0], height=6, limits=(Limit(1.0, "clip 1.0"),)))
    ruled = next(row for row in at_the_right if "clip" in row)
    assert ruled.startswith("clip 1.0 ")
    everywhere = cells(plot([1.0, 4.0, 1.0], height=6, limits=(Limit(1.0, "clip 1.0"),)))
    assert not any("clip" in row or "lip" in row for row in everywhere)


def test_a_limit_far_away_does_not_flatten_the_curve() -> None:
    near = plot([1.0, 2.0], limits=(Limit(1e6, "far"),))
    assert near.axis == plot([1.0, 2.0]).axis


def test_the_axis_holds_still_while_the_data_fits_and_moves_when_it_does_not() -> None:
    before = plot([0.0, 10.0])
    assert plot([0.0, 9.0], previous=before).axis == before.axis
    assert plot([0.0, 11.0], previous=before).axis != before.axis
    assert plot([0.0, 1.0], previous=before).axis != before.axis


class Asked(Values):
    """Counts how often its values are gone through."""

    asked = 0

    def buckets(self, first: int, last: int, count: int) -> Iterable[Bucket]:
        self.asked += 1
        return super().buckets(first, last, count)


@given(
    steps=st.lists(st.lists(HOSTILE, min_size=1, max_size=8), min_size=2, max_size=6),
    other=st.lists(HOSTILE, max_size=40),
    scale=SCALES,
    glyphs=GLYPHS,
    held=st.booleans(),
)
def test_a_picture_handed_back_changes_nothing_but_the_axis_that_holds_still(
    steps: list[list[float | None]], other: list[float | None], scale: Scale, glyphs: Glyphs, held: bool
) -> None:
    live = Series()
    traces = [Trace(source=live, held=held), Trace(source=Values(other), role="baseline", dashed=True)]
    picture: Picture | None = None
    for values in steps:
        for value in values:
            live.append(live.changes, value)
        axis_alone = None if picture is None else Picture((), picture.axis)
        afresh = raster(traces, 46, 8, scale=scale, last=47, previous=axis_alone, glyphs=glyphs)
        picture = raster(traces, 46, 8, scale=scale, last=47, previous=picture, glyphs=glyphs)
        assert picture == afresh


def test_what_did_not_change_is_not_gone_through_again() -> None:
    live, finished = Series(), Asked([1.0, 2.0, 3.0])
    traces = [Trace(source=live), Trace(source=finished)]
    picture = raster(traces, 46, 8, last=9)
    for step in range(5):
        live.append(step, 2.0)
        picture = raster(traces, 46, 8, last=9, previous=picture)
    assert finished.asked == 1
    assert raster(traces, 46, 8, last=9, previous=picture).lines is picture.lines


@pytest.mark.parametrize("payload", ["\x1b[2J", "\x1b]52;c;Zm9v\x07", "\x9b31m", "\u202egnp", "a\r\nb", "\x00"])
def test_an_escape_in_a_label_never_comes_out_raw(payload: str) -> None:
    picture = raster([], 60, 8, limits=[Limit(0.5, payload)], empty=payload)
    joined = "".join(text(picture))
    assert not any(character in joined for character in "\x1b\x07\x9b\u202e\r\n\x00")


@given(first=st.integers(0, 10**7), more=st.integers(0, 10**7), width=st.integers(20, 100))
def test_step_labels_never_collide(first: int, more: int, width: int) -> None:
    last = first + more
    picture = raster([Trace(source=Values([]))], width, 8, first=first, last=last, steps=True)
    labels = text(picture)[-1].split()
    assert set(labels) <= {f"{first:,}", f"{(first + last) // 2:,}", f"{last:,}"}


def test_a_picture_of_a_million_steps_reads_only_a_few_thousand_buckets() -> None:
    series = Series()
    for step in range(20_000):
        series.append(step, float(step))
    assert sum(1 for _ in series.buckets(0, 19_999, 160)) < 2_000
