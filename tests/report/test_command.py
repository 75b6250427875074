"""`amptui report`: from a session's store to a file, without torch and without the project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from amptui.cli import main
from amptui.protocol.codec import encode
from amptui.protocol.events import Event
from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock
from amptui.session.store import Store
from tests.report.sessions import accepted, refused
from tests.report.written import everything

Stored = Callable[..., Path]


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    """`stored(events)`: a session with these events in its store, in a home of its own."""
    monkeypatch.setenv("AMPTUI_HOME", str(tmp_path / "home"))

    def make(events: tuple[object, ...], name: str = "20261129-160455-tiny-3fa9") -> Path:
        folder = SessionFolder.create(tmp_path / "home" / name)
        with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
            for number, event in enumerate((e for e in events if isinstance(e, Event)), 1):
                store.record(number, 1_796_000_000.0 + number, type(event).__name__, encode(event), durable=False)
        return folder.path

    return make


@pytest.mark.parametrize(("name", "named"), [("20261129-160455-tiny-3fa9", ""), ("../my run", "'{}'")])
def test_the_command_in_a_report_finds_the_session_again(name: str, named: str, stored: Stored, tmp_path: Path) -> None:
    folder = stored(accepted(), name).resolve()
    assert main(["report", str(folder), "-o", str(tmp_path / "r.md")]) == 0
    command = f"amptui restore {named.format(folder) or name} -o fp32.pt"
    assert command in (tmp_path / "r.md").read_text("utf-8")


def test_markdown_goes_to_standard_output(stored: Stored, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    stored(accepted())
    assert main(["report", "last"]) == 0
    assert capsysbinary.readouterr().out.decode("utf-8").startswith("# tiny under float16 autocast\n")


@pytest.mark.parametrize(
    ("name", "options", "start"),
    [
        ("r.html", [], "<!DOCTYPE html>"),
        ("r.HTM", [], "<!DOCTYPE html>"),
        ("r.md", [], "# tiny"),
        ("r", [], "# tiny"),
        ("r.json", [], "{"),
        ("r.md", ["--format", "html"], "<!DOCTYPE html>"),
    ],
)
def test_the_format_is_what_was_asked_for_else_what_the_files_name_says(
    name: str, options: list[str], start: str, stored: Stored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(accepted())
    assert main(["report", "20261129", "-o", str(tmp_path / name), *options]) == 0
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    assert capsys.readouterr().out.startswith(f"{tmp_path / name} is written: 20261129-")


def test_the_json_has_the_results_of_check_and_the_curves(stored: Stored, tmp_path: Path) -> None:
    stored(everything())
    assert main(["report", "last", "-o", str(tmp_path / "r.json")]) == 0
    result = json.loads((tmp_path / "r.json").read_text(encoding="ascii"))
    assert result["verdict"] == "accept"
    assert result["measurement"]["trials"][0]["speedup"]["median"] == 1.5
    trial = result["curves"]["trial"]["updates"]["main"]
    assert trial["step"] == list(range(40))
    assert trial["outcome"][:3] == ["skipped", "skipped", "applied"]
    assert result["fallbacks"][0]["proven"] is False
    assert "def train_step" in result["code"]


def test_a_report_is_written_whole_over_an_older_one(
    stored: Stored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(accepted())
    target = tmp_path / "report.md"
    target.write_text("old " * 100_000)
    assert main(["report", "last", "-o", str(target)]) == 0
    assert "report.md is replaced" in capsys.readouterr().out
    assert target.read_text(encoding="utf-8").startswith("# tiny")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_project_that_was_refused_has_a_report(stored: Stored, capsys: pytest.CaptureFixture[str]) -> None:
    stored(refused())
    assert main(["report", "last"]) == 0
    assert "NO VERDICT" in capsys.readouterr().out


def test_a_session_that_an_engine_still_drives_has_not_ended(stored: Stored, tmp_path: Path) -> None:
    folder = SessionFolder(stored(accepted()[:10]))
    said = {}
    for name in ("after", "while"):
        held = SessionLock.acquire(folder, role="engine") if name == "while" else None
        assert main(["report", "last", "-o", str(tmp_path / f"{name}.html")]) == 0
        assert main(["report", "last", "-o", str(tmp_path / f"{name}.json")]) == 0
        error = json.loads((tmp_path / f"{name}.json").read_text(encoding="ascii"))["error"]
        said[name] = (error["code"], error["message"])
        page = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
        assert ("NO VERDICT YET" in page) == (name == "while")
        if held is not None:
            held.release()
    assert said == {
        "after": ("unfinished", "the engine ended before a verdict"),
        "while": ("unfinished", "the session has not ended yet"),
    }


@pytest.mark.parametrize(
    ("session", "output", "said"),
    [
        ("nothing-like-it", None, "no session 'nothing-like-it'"),
        ("last", "missing/folder/r.md", "-o missing/folder/r.md: there is no such folder"),
        ("last", "home", "-o home: this is a folder"),
        ("last", "/", "-o /: this is a folder"),
        ("last", " ", "-o: the name is empty"),
        ("last", "~no-such-user-here/x", "-o ~no-such-user-here/x: "),
        ("last", "pipe", "cannot be written to pipe: nobody reads this pipe"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    session: str,
    output: str | None,
    said: str,
    stored: Stored,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stored(accepted())
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    assert main(["report", session, *(["-o", output] if output else [])]) == 2
    error = capsys.readouterr().err
    assert error.startswith("amptui: ")
    assert said in error
    assert error.count("\n") == 1


def test_a_damaged_store_is_one_sentence(stored: Stored, capsys: pytest.CaptureFixture[str]) -> None:
    database = stored(accepted()) / "session.sqlite"
    content = bytearray(database.read_bytes())
    place = content.index(b"4 cases and 40 iterations held.")
    content[place] ^= 1
    database.write_bytes(content)
    assert main(["report", "last"]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_a_pipe_without_utf_8_gets_utf_8(stored: Stored) -> None:
    stored(accepted())
    command = [sys.executable, "-m", "amptui", "report", "last"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=60, env=_plain_environment())
    assert "✓ ACCEPTED" in done.stdout.decode("utf-8")


def _plain_environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}


def test_a_closed_standard_output_is_told(
    stored: Stored, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(accepted())
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["report", "last"]) == 2
    assert capsys.readouterr().err == "amptui: standard output is closed; name a file with -o\n"
