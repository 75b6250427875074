"""The tree of contents: every tensor is found in it, folding and searching show what they promise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from amptui.inspection.reading import inspect_path
from amptui.inspection.result import Inspection, Row
from amptui.ui.inspect.contents import FIRST_ROWS, Contents, TreeView, scrolled, shown
from tests.inspection.frameworks import LAYOUTS
from tests.inspection.writer import T, adam, save, scaler, weights


def names(contents: Contents, view: TreeView) -> list[str]:
    return [contents.entries[index].name for index in shown(contents, view).rows]


def of_rows(*rows: tuple[int, str]) -> Contents:
    return Contents.of(Inspection(path="x", contents=tuple(Row(depth=d, name=name, text="") for d, name in rows)))


@pytest.fixture
def poisoned(tmp_path: Path) -> Contents:
    model = {"conv.weight": T(), "bn.running_mean": T([math.nan, 1.0]), "bn.running_var": T([math.inf, 1.0])}
    root = {"model": model, "optimizer": adam(5), "scaler": scaler(512.0), "epoch": 3}
    return Contents.of(inspect_path(str(save(tmp_path / "x.pt", root))))


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_every_tensor_and_scaler_of_every_layout_has_its_entry(layout: str, tmp_path: Path) -> None:
    path, _ = LAYOUTS[layout](tmp_path)
    inspection = inspect_path(str(path))
    contents = Contents.of(inspection)
    by_path = {entry.path: entry for entry in contents.entries}
    for tensor in inspection.tensors:
        assert by_path[tensor.path].tensor is tensor
    for state in inspection.scalers:
        if state.path:
            assert contents.find(state.path) is not None


def test_ends_and_parents_enclose_what_is_below() -> None:
    contents = of_rows((0, ""), (1, "a"), (2, "b"), (3, "c"), (2, "d"), (1, "e"))
    assert [(e.name, e.depth, e.parent, e.end) for e in contents.entries] == [
        ("a", 0, -1, 4),
        ("b", 1, 0, 3),
        ("c", 2, 1, 3),
        ("d", 1, 0, 4),
        ("e", 0, -1, 5),
    ]
    assert [entry.path for entry in contents.entries] == ["a", "a.b", "a.b.c", "a.d", "e"]


def test_in_a_folder_paths_begin_with_their_file() -> None:
    contents = of_rows((0, "optimizer.pt"), (1, "state"), (2, "0"), (0, "scaler.pt"))
    assert [entry.path for entry in contents.entries] == [
        "optimizer.pt",
        "optimizer.pt: state",
        "optimizer.pt: state.0",
        "scaler.pt",
    ]


def test_a_place_that_is_not_listed_leads_to_the_nearest_one_it_is_in() -> None:
    contents = of_rows((0, "optimizer.pt"), (1, "state"), (2, "0"), (0, "scaler.pt"))
    assert contents.find("optimizer.pt: state.0.exp_avg") == 2
    assert contents.find("scaler.pt: scale") == 3
    assert contents.find("elsewhere.pt: x.y") is None
    assert contents.find("") is None


def test_closed_branches_hide_what_is_in_them() -> None:
    contents = of_rows((0, ""), (1, "a"), (2, "b"), (3, "c"), (2, "d"), (1, "e"))
    assert names(contents, TreeView()) == ["a", "e"]
    assert names(contents, TreeView(frozenset({0}))) == ["a", "b", "d", "e"]
    assert names(contents, TreeView(frozenset({0, 1}))) == ["a", "b", "c", "d", "e"]
    assert names(contents, TreeView(frozenset({1}))) == ["a", "e"]


def test_a_search_shows_what_it_finds_and_what_that_is_in(poisoned: Contents) -> None:
    found = shown(poisoned, TreeView(search="EXP_avg_sq float32"))
    assert found.found == sum(entry.name == "exp_avg_sq" for entry in poisoned.entries) > 0
    assert [poisoned.entries[index].name for index in found.rows][:4] == ["optimizer", "state", "0", "exp_avg_sq"]
    assert found.first is not None
    assert poisoned.entries[found.first].name == "exp_avg_sq"


def test_a_search_without_words_shows_the_open_branches(poisoned: Contents) -> None:
    assert shown(poisoned, TreeView(search="  ")) == shown(poisoned, TreeView())
    assert shown(poisoned, TreeView(search="no such thing")).rows == []


def test_what_is_not_finite_is_counted_in_all_it_is_in(poisoned: Contents) -> None:
    counts = {entry.path: entry.bad for entry in poisoned.entries if entry.bad}
    assert counts == {"model": 2, "model.bn.running_mean": 1, "model.bn.running_var": 1}
    assert [poisoned.entries[index].name for index in poisoned.bad] == ["bn.running_mean", "bn.running_var"]


def test_a_best_score_that_was_never_set_is_no_damage(tmp_path: Path) -> None:
    root = {"model": weights(), "callbacks": {"best": T(-math.inf, ())}, "optimizer": adam(5)}
    inspection = inspect_path(str(save(tmp_path / "x.pt", root)))
    assert not inspection.has_fault
    assert Contents.of(inspection).bad == ()


def test_at_first_what_is_not_finite_is_open_and_else_as_much_as_fits(poisoned: Contents, tmp_path: Path) -> None:
    assert "bn.running_mean" in names(poisoned, TreeView(poisoned.first_opened()))
    many = {f"layer{i}.weight": T() for i in range(50)}
    root = {"model": many, "epoch": 3, "args": {"lr": 0.1, "amp": True}}
    large = Contents.of(inspect_path(str(save(tmp_path / "y.pt", root))))
    assert names(large, TreeView(large.first_opened())) == ["model", "epoch", "args"]
    assert len(names(large, TreeView(large.first_opened(room=100)))) > FIRST_ROWS


def test_to_reveal_an_entry_opens_all_it_is_in_and_ends_the_search(poisoned: Contents) -> None:
    index = poisoned.find("optimizer.state.0.exp_avg")
    assert index is not None
    view = TreeView(search="scaler").reveal(poisoned, index)
    assert index in shown(poisoned, view).rows
    assert (view.cursor, view.search) == (index, "")


def windows() -> Iterator[tuple[int, int, int]]:
    yield from ((place, rows, height) for rows in range(1, 9) for place in range(rows) for height in range(1, 6))


@pytest.mark.parametrize("offset", [0, 2, 7, 100])
def test_the_cursor_is_always_seen_and_no_line_wasted(offset: int) -> None:
    for place, rows, height in windows():
        top = scrolled(offset, place, rows, height)
        assert 0 <= top <= place < top + height
        assert top <= max(0, rows - height)


def test_weights_alone_are_listed_too(tmp_path: Path) -> None:
    contents = Contents.of(inspect_path(str(save(tmp_path / "x.pt", weights()))))
    assert contents.entries
    assert all(entry.tensor for entry in contents.entries)
    assert Contents.of(Inspection(path="x")).entries == ()
