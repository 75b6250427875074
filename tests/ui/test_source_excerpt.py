"""Lines around a place: dedented, marked, and never read from what is no ordinary file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amptui.ui.source_excerpt import LARGEST_BYTES, SourceLine, excerpt


def test_the_line_stands_between_its_neighbours_without_their_common_margin(tmp_path: Path) -> None:
    file = tmp_path / "a b.py"
    file.write_text("one\n    two\n\n        three\n    four\n")
    assert excerpt(f"{file}:4") == (
        SourceLine(2, "two", False),
        SourceLine(3, "", False),
        SourceLine(4, "    three", True),
        SourceLine(5, "four", False),
    )
    assert [line.number for line in excerpt(f"{file}:1")] == [1, 2, 3]
    assert [line.number for line in excerpt(f"{file}:5")] == [3, 4, 5]


@pytest.mark.parametrize("where", ["", "nowhere", "a.py:2", "/nowhere/a.py:1", "/dev/zero:1", "/a\0b:3", "/:1"])
def test_nothing_where_there_is_no_such_line(where: str) -> None:
    assert excerpt(where) == ()


def test_nothing_of_a_pipe_of_a_huge_file_or_beyond_the_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert excerpt(f"{tmp_path / 'pipe'}:1") == ()
    huge = tmp_path / "huge"
    huge.touch()
    os.truncate(huge, LARGEST_BYTES + 1)
    assert excerpt(f"{huge}:1") == ()
    short = tmp_path / "short"
    short.write_bytes(b"\xff\xfe\n")
    assert [line.text for line in excerpt(f"{short}:1")] == ["\ufffd\ufffd"]
    assert excerpt(f"{short}:9") == ()
