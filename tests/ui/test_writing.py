"""Which files a dialog takes, and what it says of the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amptui.ui.dialogs.questions import to_write
from amptui.ui.writing import Writing


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (" ", "write the name of a file"),
        ("-", "write the name of a file"),
        ("~no such user/x.html", "home directory"),
        ("x" * 300, "File name too long"),
        (".", "this is a folder"),
        ("nowhere/x.html", "no such folder"),
        ("pipe", "no ordinary file"),
    ],
)
def test_what_cannot_be_written_is_refused_in_words(
    name: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(ValueError, match=says):
        to_write(name)


def test_a_name_is_taken_as_one_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert to_write(" a b.html ") == to_write("~/a b.html") == tmp_path / "a b.html"


def test_where_the_working_folder_is_gone_home_is_proposed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    asked = []

    class Screen:
        session_id = "20260101-tiny"

        def ask(self, question, answered):  # type: ignore[no-untyped-def]
            asked.append(question)
            if question.options:
                answered(question.options[0].value)

    Writing(Screen()).report()  # type: ignore[arg-type]
    assert asked[-1].entry is not None
    assert asked[-1].entry.endswith("/20260101-tiny.html")
    with pytest.raises(ValueError, match="working directory is gone"):
        to_write("x.html")
