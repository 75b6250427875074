"""Stage 7: what the report holds, how it stands with the session, and the same code to paste as in the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from amptui.protocol import events as told
from amptui.report.sections.pasted import accepted_code
from amptui.ui.moves import Situation
from amptui.ui.raster.line import plain
from amptui.ui.session_view import SessionView
from amptui.ui.stages.report import code_to_paste, tell_report_stage
from amptui.ui.told_page import told_lines
from tests.report import measured, sessions
from tests.report.stages import Told, iteration, opened
from tests.report.written import recorded
from tests.ui.test_moves import ACCEPTED, after

FOLDER = Path("/s/20261129-160455-tiny-3fa9")


def view_of(events: Told) -> SessionView:
    view = SessionView(FOLDER)
    view.take_all(events)  # type: ignore[arg-type]
    return view


def words(now: Situation) -> str:
    lines = [plain(line) for line in told_lines(lambda page: tell_report_stage(page, now, FOLDER), 80)]
    assert all(len(line) <= 80 for line in lines)
    return " ".join(" ".join(lines).split())


def mapping(events: Told) -> Told:
    """The same session, whose loss function returns a mapping."""
    changed: list[object] = []
    for event in events:
        if isinstance(event, told.IterationDone):
            updates = tuple(replace(update, mapped_loss=True) for update in event.record.updates)
            event = replace(event, record=replace(event.record, updates=updates))  # noqa: PLW2901
        changed.append(event)
    return tuple(changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "events",
    [sessions.accepted(), mapping(sessions.accepted()), measured.side_by_side(), sessions.rejected()],
    ids=["accepted", "loss mapping", "two policies", "rejected"],
)
def test_the_code_on_the_page_is_the_reports(events: Told) -> None:
    code = code_to_paste(view_of(events))
    assert code == (accepted_code(recorded(events, session=FOLDER.name)) or "")


def test_a_mapping_as_loss_changes_the_code() -> None:
    assert code_to_paste(view_of(mapping(sessions.accepted()))) != code_to_paste(view_of(sessions.accepted()))


def test_of_a_project_that_was_opened_again_there_is_no_code_before_another_trial() -> None:
    assert code_to_paste(view_of((*sessions.accepted(), *opened()))) == ""


def test_whether_the_session_goes_on_is_said_truly() -> None:
    begun = after(*opened(), iteration(0))
    assert "still open" in words(Situation(begun, "report"))
    assert "there is no verdict yet" in words(Situation(begun, "report"))
    assert "no verdict yet" not in words(Situation(ACCEPTED, "report"))
    assert "it came to no verdict" in words(Situation(begun, "report", mode="recorded", connected=False))
    assert "still open" not in words(Situation(ACCEPTED, "report", mode="recorded", connected=False))


def test_the_commands_find_the_session_wherever_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    now = Situation(ACCEPTED, "report")
    monkeypatch.setenv("AMPTUI_HOME", "/s")
    for command in ("open", "report", "restore"):
        assert f"amptui {command} {FOLDER.name}" in words(now)
    monkeypatch.setenv("AMPTUI_HOME", "/elsewhere")
    for command in ("open", "report", "restore"):
        assert f"amptui {command} {FOLDER}" in words(now)


def test_the_written_file_stands_first() -> None:
    assert words(Situation(ACCEPTED, "report", written="/tmp/out.html")).startswith("✓ written /tmp/out.html")
    assert "written" not in words(Situation(ACCEPTED, "report")).partition("verdict")[0]
