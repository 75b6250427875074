"""Which source line `e` opens, and how an editor is asked for it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from amptui.session.state import SessionState, reduce
from amptui.ui.editing import edit_source, editor_command, source_line
from tests.report import sessions
from tests.report.stages import Told, opened


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
