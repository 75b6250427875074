"""Which source line `e` opens, and how an editor is asked for it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from amptui.protocol import events as told
from amptui.session.death import EngineDeath
from amptui.session.state import SessionState, died, reduce
from amptui.ui.editing import edit_source, editor_command, source_line
from amptui.ui.key_names import KeyNames
from amptui.ui.keys import KEYS, rebind
from amptui.ui.moves import Situation, active
from tests.report import sessions
from tests.report.stages import Told, ended, opened


def after(events: Told) -> SessionState:
    state = SessionState()
    for event in events:
        state = reduce(state, event)  # type: ignore[arg-type]
    return state


def test_the_line_in_question_is_the_findings_else_the_losss() -> None:
    assert source_line(SessionState()) is None
    assert source_line(after(opened())) == "train.py:12"
    rejected = after(sessions.rejected())
    assert source_line(rejected) == next(finding.line for finding in rejected.findings if finding.line)


@pytest.mark.parametrize(
    ("environ", "command"),
    [
        ({}, ["vi", "+12", "a b.py"]),
        ({"EDITOR": "nano"}, ["nano", "+12", "a b.py"]),
        ({"EDITOR": "nano", "VISUAL": "/usr/bin/nvim -p"}, ["/usr/bin/nvim", "-p", "+12", "a b.py"]),
        ({"EDITOR": "code --wait"}, ["code", "--wait", "a b.py"]),
    ],
)
def test_editors_that_know_lines_get_the_line(environ: dict[str, str], command: list[str]) -> None:
    assert editor_command("a b.py:12", environ) == command


def test_a_place_without_a_line_is_a_file() -> None:
    assert editor_command("train.py", {"EDITOR": "vi"}) == ["vi", "train.py"]


def test_an_editor_that_cannot_be_read_is_said_and_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "vim 'x")
    said: list[str] = []
    app = SimpleNamespace(notify=lambda words, **_: said.append(words))
    desk = SimpleNamespace(app=app, state=after(opened()), looking=SimpleNamespace(line="train.py:3"))
    edit_source(desk)  # type: ignore[arg-type]
    assert said == ["$VISUAL or $EDITOR cannot be read (No closing quotation): set EDITOR"]


KEPT = told.CaseRetained(id="kept-1", step=1, update="main", case=None, outcome="bad_loss", path="kept-1.pt", bytes=1)
HAS = "The engine still has the code that it loaded. "


def said_after(now: Situation, editor: Path, source: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is said once `editor` has been at `source`."""
    monkeypatch.setenv("VISUAL", str(editor))
    said: list[str] = []
    app = SimpleNamespace(notify=lambda words, **_: said.append(words), suspend=nullcontext)
    desk = SimpleNamespace(app=app, state=now.state, situation=now, looking=SimpleNamespace(line=f"{source}:1"))
    edit_source(desk)  # type: ignore[arg-type]
    return said


@pytest.fixture
def editor(tmp_path: Path) -> Path:
    """One that adds a line."""
    program = tmp_path / "adds"
    program.write_text('#!/bin/sh\necho "# more" >> "$1"\n')
    program.chmod(0o700)
    return program


def test_what_was_not_changed_needs_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "train.py"
    now = Situation(after((*opened(), ended("project"))), "project")
    assert said_after(now, Path("true"), source, monkeypatch) == [], "a file that is not there"
    source.write_text("x = 1\n")
    assert said_after(now, Path("true"), source, monkeypatch) == []


def test_how_a_change_comes_into_effect_is_said_as_it_is(
    tmp_path: Path, editor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_now = after((*opened(), ended("project")))
    kept = reduce(opened_now, KEPT)
    running = reduce(opened_now, told.StageStarted(stage="baseline"))
    other = KeyNames(rebind(KEYS, {"reload": "ctrl+r"}))
    for now, says in (
        (Situation(kept, "trial"), "R loads it anew and replays the failed iteration first."),
        (Situation(opened_now, "project"), "R loads it anew."),
        (Situation(opened_now, "project", keys=other), "ctrl+r loads it anew."),
        (Situation(running, "baseline"), "Once nothing runs, R loads it anew."),
        (Situation(opened_now, "project", can_restart=False), "A new amptui run judges the change."),
    ):
        assert said_after(now, editor, tmp_path / "train.py", monkeypatch) == [HAS + says]
        assert ("reload" in active(now)) == ("loads" in says and "Once" not in says)


def test_an_engine_that_is_gone_has_no_code(tmp_path: Path, editor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_now = after((*opened(), ended("project")))
    gone = died(opened_now, EngineDeath(how="SIGKILL", words="killed", last_output=()))
    for now, says in (
        (Situation(gone, "project", connected=False), "R loads it anew."),
        (Situation(opened_now, "project", mode="recorded", connected=False), "A new amptui run judges the change."),
    ):
        assert said_after(now, editor, tmp_path / "train.py", monkeypatch) == [says]
