"""A table keeps its columns, puts the broken on top, and finds rows by their words."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from amptui.text import display_width, safe_text
from amptui.ui.raster.glyphs import ASCII, UNICODE, Glyphs
from amptui.ui.raster.line import plain
from amptui.ui.raster.table import Table, TableColumn, TableRow, TableView, column_widths, scrolled, select, table_lines

COLUMNS = (
    TableColumn(title="layer", cut="start"),
    TableColumn(title="norm", width=8, align="right"),
    TableColumn(title="zeros", width=7, align="right", unit=" %"),
    TableColumn(title="dtype", width=8),
)


def layers(**norms: float | None) -> Table:
    rows = [TableRow(id=name, values=(name, norm, 0.0, "float32")) for name, norm in norms.items()]
    return Table(columns=COLUMNS, rows=rows)


VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))


@given(
    rows=st.lists(st.lists(VALUES, max_size=5), max_size=8),
    width=st.integers(0, 100),
    height=st.integers(0, 12),
    sort=st.one_of(st.none(), st.integers(-1, 6)),
    descending=st.booleans(),
    words=st.text(max_size=5),
    offset=st.integers(-3, 20),
    focused=st.booleans(),
    glyphs=st.sampled_from([UNICODE, ASCII]),
)
def test_any_rows_fill_exactly_the_cells_given(
    rows: list[list[object]],
    width: int,
    height: int,
    sort: int | None,
    descending: bool,
    words: str,
    offset: int,
    focused: bool,
    glyphs: Glyphs,
) -> None:
    table = Table(
        columns=COLUMNS,
        rows=[TableRow(id=str(index), values=values) for index, values in enumerate(rows)],  # type: ignore[arg-type]
    )
    view = TableView(sort=sort, descending=descending, filter=words, cursor="1", offset=offset)
    lines = table_lines(table, view, width, height, focused=focused, title="layers by norm", glyphs=glyphs)
    assert len(lines) == (height if width > 0 else 0)
    assert all(display_width(plain(line)) == width for line in lines)
    assert all(safe_text(plain(line), limit=9999) == plain(line) for line in lines)


def test_nan_comes_first_then_inf_then_the_largest_and_nothing_last() -> None:
    table = layers(small=0.1, none=None, infinite=math.inf, large=9.0, nan=math.nan)
    assert [row.id for row in select(table, TableView(sort=1))] == ["nan", "infinite", "large", "small", "none"]


def test_rows_that_are_alike_keep_their_order_both_ways() -> None:
    table = layers(a=1.0, b=1.0, c=1.0)
    for descending in (True, False):
        assert [row.id for row in select(table, TableView(sort=1, descending=descending))] == ["a", "b", "c"]


def test_the_filter_is_words_that_all_occur() -> None:
    table = layers(encoder_attn=1.0, encoder_mlp=1.0, decoder_attn=1.0)
    assert [row.id for row in select(table, TableView(filter="ATTN enc"))] == ["encoder_attn"]
    lines = table_lines(table, TableView(filter="nope"), 60, 4)
    assert "no row matches" in plain(lines[1])


def test_the_cursor_is_always_in_view() -> None:
    rows = [TableRow(id=str(index), values=(str(index),)) for index in range(50)]
    assert scrolled(TableView(cursor="30", offset=0), rows, 10) == 21
    assert scrolled(TableView(cursor="3", offset=20), rows, 10) == 3
    assert scrolled(TableView(cursor="30", offset=25), rows, 10) == 25


def test_titles_stand_over_their_values_and_a_number_that_is_not_finite_stands_out() -> None:
    lines = table_lines(layers(conv=math.inf), TableView(cursor="conv"), 60, 3, focused=True)
    header, row = plain(lines[0]), plain(lines[1])
    assert header.index("norm") + 4 == row.index("inf") + 3
    assert header.index("dtype") == row.index("float32")
    assert row.startswith("▸ conv")
    assert ("bad") in {role for text, role in lines[1] if "inf" in text}


def test_where_room_is_short_the_last_columns_go_and_the_name_stays_readable() -> None:
    assert column_widths(COLUMNS, 80) == [48, 8, 7, 8]
    assert column_widths(COLUMNS, 30) == [17, 8, 0, 0]
    assert column_widths(COLUMNS, 15) == [12, 0, 0, 0]
