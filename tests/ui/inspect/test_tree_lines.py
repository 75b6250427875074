"""The tree as lines: exactly as many and as wide as asked for, what is wrong never cut away."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from amptui.inspection.reading import inspect_path
from amptui.ui.inspect.contents import Contents, TreeView, shown
from amptui.ui.inspect.tree_lines import tree_lines
from amptui.ui.raster.line import Line, plain, width_of
from tests.inspection.writer import T, save, scaler, weights


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    model = {"層.weight": T(), "a_long_name_of_a_module.running_mean": T([math.nan, 1.0]), "masked": T(0.0, (64, 64))}
    root = {"model": model, "scaler": scaler(512.0), "other": weights(), "text": "y" * 300}
    return Contents.of(inspect_path(str(save(tmp_path / "x.pt", root))))


def drawn(contents: Contents, width: int, height: int, view: TreeView | None = None) -> tuple[Line, ...]:
    view = view or TreeView(contents.first_opened(100))
    return tree_lines(contents, view, shown(contents, view), width, height, focused=True)


def test_it_fills_any_size_exactly(contents: Contents) -> None:
    for width in range(1, 130, 3):
        for height in (1, 2, 5, 30):
            lines = drawn(contents, width, height)
            assert [width_of(line) for line in lines] == [width] * height
    assert drawn(contents, 0, 5) == ()
    assert drawn(contents, 5, 0) == ()


@pytest.mark.parametrize("width", [50, 60, 80, 120])
def test_what_is_not_finite_is_told_at_any_usual_width(contents: Contents, width: int) -> None:
    row = next(line for line in drawn(contents, width, 40) if "a_long" in plain(line))
    assert "✗" in plain(row)
    assert [role for text, role in row if "1 of 2 not finite" in text] == ["bad"]


def test_branches_show_whether_they_are_open_and_what_they_hold(contents: Contents) -> None:
    rows = [plain(line) for line in drawn(contents, 80, 40)]
    assert any("✗ - model" in row and "dict of 3 · 1 not finite" in row for row in rows)
    assert any("- scaler" in row and row.rstrip().endswith("· loss scaler") for row in rows)
    closed = [plain(line) for line in drawn(contents, 80, 40, TreeView())]
    assert any("✗ + model" in row for row in closed)
    assert any(row.rstrip().endswith("float32 [64, 64] · all zero") for row in rows)


def test_the_heading_counts_what_is_out_of_sight(contents: Contents) -> None:
    total = len(shown(contents, TreeView(contents.first_opened(100))).rows)
    assert f"{total - 4} more below" in plain(drawn(contents, 80, 5)[0])
    assert "more below" not in plain(drawn(contents, 80, total + 1)[0])


def test_a_search_without_a_hit_says_so(contents: Contents) -> None:
    lines = drawn(contents, 80, 3, TreeView(search="nowhere"))
    assert "/nowhere   0 found" in plain(lines[0])
    assert plain(lines[1]).strip() == "no path has “nowhere”"
