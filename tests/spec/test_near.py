"""What the user may have meant is found by reading, within bounds, and only said when it is close."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from amptui.spec.near import closest, did_you_mean, factories, files_called, line_of, listed


@pytest.mark.parametrize(
    ("name", "known", "match"),
    [
        ("buld", ["build", "train"], "build"),
        ("BUILD", ["build"], "build"),
        ("init", ["init_scale", "growth_factor"], "init_scale"),
        ("gro", ["growth_factor", "growth_interval"], None),
        ("zzz", ["build"], None),
        ("build", [], None),
        ("x" * 100_000, ["x" * 100_000], None),
        ("build", ["x" * 100_000, "build"], "build"),
    ],
)
def test_a_name_close_by_is_found(name: str, known: list[str], match: str | None) -> None:
    assert closest(name, known) == match
    assert did_you_mean(name, known) == (f"did you mean '{match}'?" if match else "")


def test_long_lists_are_cut() -> None:
    assert listed("abc") == "a, b, c"
    assert listed(map(str, range(7)), most=6) == "0, 1, 2, 3, 4, 5, 6"
    assert listed(map(str, range(9)), most=6) == "0, 1, 2, 3, 4, 5 and 3 more"


def test_what_makes_a_project_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import amptui\n"
        "def helper(): pass\n"
        "def _hidden(): return amptui.Project(model=1)\n"
        "async def later(): return amptui.Project(model=1)\n"
        "def build():\n    if True:\n        return amptui.Project(model=1)\n"
        "ready: object = amptui.Project(model=1)\n"
        "a = b = amptui.Project(model=1)\n"
        "other = 3\n"
    )
    assert factories(file) == ("build", "ready", "a", "b", "helper")
    assert [line_of(file, name) for name in ("helper", "later", "ready", "b", "other", "gone")] == [
        2,
        4,
        8,
        9,
        10,
        None,
    ]


@pytest.mark.parametrize(
    "source",
    [
        b"def build(:",
        b"\xff\xfe",
        b"\0",
        b"(" * 100_000,
        b"-" * 100_000 + b"1",
        b"x = 1\n" * 200_000,
        b"# coding: nope\n",
    ],
)
def test_a_file_that_cannot_be_parsed_defines_nothing(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "bad.py").write_bytes(source)
    assert factories(tmp_path / "bad.py") == ()
    assert line_of(tmp_path / "bad.py", "build") is None


def test_files_that_are_no_files_are_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    assert factories(tmp_path / "pipe.py") == factories(tmp_path) == factories(tmp_path / "gone.py") == ()


def test_reading_a_file_warns_nobody(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text("def build(): return '\\d' is 3\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert factories(tmp_path / "odd.py") == ("build",)


def test_files_are_found_nearest_first_and_not_in_environments(tmp_path: Path) -> None:
    for place in ("b", "a/deep", ".hidden", "env", "x/site-packages", "1/2/3/4/5"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "entry.py").write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    found = files_called(["entry.py"], tmp_path)
    assert [str(file.relative_to(tmp_path)) for file in found] == ["b/entry.py", "a/deep/entry.py"]


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "entry.py").write_text("")
    assert files_called(["entry.py"], tmp_path) == (tmp_path / "entry.py",)
