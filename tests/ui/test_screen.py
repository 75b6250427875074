"""The whole screen on recorded sessions, without torch and without an engine: what it shows, what keys send."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widget import Widget

from amptui.protocol import events as told
from amptui.protocol.commands import (
    Advance,
    Answer,
    Cancel,
    Command,
    Condition,
    Continue,
    FindCases,
    LockCriteria,
    Measure,
    MeasureSeeds,
    Pause,
    RunBaseline,
    RunTrial,
)
from amptui.report.told_cases import code_lines
from amptui.ui.app import AmptuiApp
from amptui.ui.keys import KEYS, rebind
from amptui.ui.theme import Look
from amptui.ui.widgets.lines import LineWidget
from amptui.ui.widgets.table import TablePane
from tests.report import measured, sessions
from tests.report.stages import Told, baseline, ended, iteration, locked, opened, trial_started, trip
from tests.ui.recorded_room import RecordedRoom, recorded_app, screen_text

LOADED: Told = (*opened(), ended("project"))
PROPOSED = told.CriteriaProposed(criteria=locked()[1].criteria, proposals=locked()[1].proposals)  # type: ignore[union-attr]
MEASURED: Told = (*LOADED, *baseline(), PROPOSED, ended("baseline"))
LOCKED: Told = (*MEASURED, *locked(), ended("criteria"))
ATTENDED: Told = tuple(
    replace(event, attended=True) if isinstance(event, told.TrialStarted) else event for event in trial_started()
)
PAUSED: Told = (*LOCKED, *ATTENDED, iteration(0), told.Paused(step=1, why="after this phase"))
TRIPPED: Told = (
    *LOCKED,
    *ATTENDED,
    iteration(0),
    trip(1),
    told.Paused(step=1, why="the guard held an update back"),
)

Script = Callable[[AmptuiApp, RecordedRoom, "Pilot[int]"], Awaitable[None]]


def on_screen(events: Told, script: Script, *, size: tuple[int, int] = (80, 24), **start: Any) -> None:
    async def run() -> None:
        app, room = recorded_app(events, **start)
        async with app.run_test(size=size) as pilot:
            await settled(pilot)
            await script(app, room, pilot)

    asyncio.run(run())


async def settled(pilot: Pilot[int]) -> None:
    """Until what was asked for has been painted: a page is mounted first, then painted."""
    for _ in range(2):
        await pilot.pause(0.02)


async def seen(app: AmptuiApp, pilot: Pilot[int], *texts: str) -> None:
    """Waits until all `texts` are on the screen."""
    for _ in range(100):
        if all(text in screen_text(app) for text in texts):
            return
        await pilot.pause(0.05)
    raise AssertionError(f"{texts} are not on the screen:\n{screen_text(app)}")


async def pressed(pilot: Pilot[int], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settled(pilot)


def sent_by(events: Told, *keys: str) -> list[Command]:
    sent: list[Command] = []

    async def script(_app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, *keys)
        sent.extend(room.sent)

    on_screen(events, script)
    return sent


@pytest.mark.parametrize(
    ("events", "keys", "commands"),
    [
        (LOADED, "c", [RunBaseline()]),
        (MEASURED, "cc", [LockCriteria(criteria=None, reason="")]),
        (LOCKED, "c", [RunTrial(attended=True), Continue(until=None)]),
        (LOCKED, "s", [RunTrial(attended=True)]),
        (LOCKED, "n", [RunTrial(attended=True), Advance(unit="iteration")]),
        (LOCKED, "a", [RunTrial(attended=False)]),
        (LOCKED, "t", [RunTrial(attended=False, extend=10)]),
        (PAUSED, "s", [Advance(unit="phase")]),
        (PAUSED, "n", [Advance(unit="iteration")]),
        (PAUSED, ["space"], [Continue(until=None)]),
        (PAUSED, "uk", [Continue(until=Condition(name="skip"))]),
        (PAUSED, ["u", "s", "9", "enter"], [Continue(until=Condition(name="step", value=9.0))]),
        (PAUSED, ["u", "escape", "C"], [Cancel()]),
        (PAUSED[:-1], ["space"], [Pause()]),
        (TRIPPED, "r", [Answer(choice="retry")]),
        (TRIPPED, "c", [Continue(until=None)]),
        (PAUSED, "r", []),
    ],
    ids=lambda value: "".join(value) if isinstance(value, str) else "",
)
def test_keys_send_the_commands_that_they_stand_for(events: Told, keys: Any, commands: list[Command]) -> None:
    assert sent_by(events, *keys) == commands


def test_the_condition_stays_in_force_after_a_trip() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, *"us20", "enter")
        for event in (told.Running(what="run"), trip(2), told.Paused(step=2, why="the guard held an update back")):
            room.deliver(event)
        await pressed(pilot, "c")
        assert room.sent == [Continue(until=Condition(name="step", value=20.0))] * 2

    on_screen(PAUSED, script)


def test_the_selected_criterion_is_told_as_the_cursor_moves() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "3")
        await seen(app, pilot, "outputs.scores.atol:")
        await pressed(pilot, "G")
        await seen(app, pilot, "progress: How far the mean loss")

    on_screen(MEASURED, script)


def test_a_changed_criterion_is_locked_and_a_locked_one_asks_why() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "3", "enter")
        await seen(app, pilot, "Proposed:")
        await pressed(pilot, *["backspace"] * 12, "x", "enter")
        await seen(app, pilot, "write a number from 0")
        await pressed(pilot, "backspace", "0", ".", "5", "enter")
        assert "you" in screen_text(app)
        await pressed(pilot, "c")
        (command,) = room.sent
        assert isinstance(command, LockCriteria)
        assert command.criteria is not None

    on_screen(MEASURED, script)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("accepted", (80, 24)),
        ("accepted", (60, 16)),
        ("accepted", (200, 60)),
        ("rejected", (120, 40)),
        ("inconclusive", (80, 24)),
        ("fails_in_fp32", (80, 24)),
        ("killed", (120, 40)),
    ],
)
def test_every_page_of_a_session_is_shown_at_every_size(name: str, size: tuple[int, int]) -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        for key in ("1", "2", "3", "4", "5", "6", "7", "v", "o", "question_mark", "x"):
            await pressed(pilot, key)
            lines = screen_text(app).split("\n")
            assert len(lines) == size[1]
            assert "amptui" in lines[0]
            assert all(ord(character) >= 32 for line in lines for character in line)

    on_screen(getattr(sessions, name)(), script, size=size)


def test_a_trip_says_what_happened_and_offers_the_choices() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await seen(app, pilot, "iteration 1 is held", "The words about bad_gradient.", "r retries at the new scale")
        await pressed(pilot, "d")
        await seen(app, pilot, "diagnosis", "The words about bad_gradient.")
        await pressed(pilot, "q", "x")
        await seen(app, pilot, "iteration 1 is held", "Why it was skipped")

    on_screen(TRIPPED, script, size=(120, 40))


def test_back_from_the_diagnosis_is_where_one_was_with_the_same_pane_in_focus() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "5", "tab")
        focused = app.screen.focused
        assert focused is not None
        await pressed(pilot, "d")
        await seen(app, pilot, "diagnosis")
        await pressed(pilot, "escape")
        await seen(app, pilot, "off by")
        assert app.screen.focused is focused

    on_screen(sessions.rejected(), script, size=(120, 40))


def test_the_verdict_shows_its_rows_and_cases() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "5")
        await seen(app, pilot, "ACCEPT", "off by", "tie-4")

    on_screen(sessions.accepted(), script, size=(120, 40))


def test_stages_6_and_7_show_what_was_measured_and_the_code() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "6")
        await seen(app, pilot, "measure   bf16", "no difference in time", "2.00×", "Next: the report.")
        await pressed(pilot, "shift+tab", "g")
        await seen(app, pilot, "measure   fp16", "✓ time", "✓ memory", "a first scale of 2^12 was foreseen")
        await pressed(pilot, "c")
        await seen(app, pilot, "7 REPORT", "code to paste", "def new_scaler", " c write ")
        assert room.sent == []

    on_screen(measured.side_by_side(), script, size=(120, 40))


def test_what_was_measured_stands_in_the_log() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "v")
        await seen(
            app, pilot, "float16 measured: 2.00 times as fast", "3 other seeds", "2 cases found in 1,280 samples"
        )

    on_screen((*measured.side_by_side(), measured.FOUND), script, size=(120, 40))


def test_the_keys_behind_the_verdict_send_their_commands() -> None:
    events = measured.side_by_side(measure=False)
    assert sent_by(events, "6", "c") == [Measure(trial=2)]
    assert sent_by(events, "6", "Y") == [MeasureSeeds()]
    assert sent_by(events, "5", "p", "f") == [RunTrial(policy={"dtype": "float16"}, planned=False)]
    assert sent_by(events, "5", "n", "s", "a") == []
    assert sent_by(LOADED, "f") == [FindCases()]


def test_found_cases_are_shown_and_what_to_paste_is_copied_as_code() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "f")
        for event in (told.StageStarted(stage="measure", task="cases"), measured.FOUND, ended("measure")):
            room.deliver(event)
        await seen(app, pilot, "boundary-1", "found = torch.load('/tmp/found.pt'", "tab then y copies the two lines")
        await pressed(pilot, "tab")
        pane = app.screen.focused
        assert isinstance(pane, LineWidget)
        assert pane.copy_text().splitlines() == [*code_lines("/tmp/found.pt")]
        await pressed(pilot, "q")
        await seen(app, pilot, "1 PROJECT")

    on_screen(LOADED, script)


def test_a_report_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "7", "c", "m", "enter")  # the folder of this session is none
        for _ in range(100):
            if app.noticed is not None:
                break
            await pilot.pause(0.05)
        assert app.noticed is not None
        assert app.noticed.role == "bad"
        assert "session" in app.noticed.words
        assert "Traceback" not in app.noticed.words
        assert not list(tmp_path.iterdir())

    on_screen(sessions.accepted(), script)


def test_the_screen_follows_the_engine_but_not_away_from_what_is_being_read() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await seen(app, pilot, "2 BASELINE")
        await pressed(pilot, "v")
        for event in locked():
            _room.deliver(event)
        await settled(pilot)
        await seen(app, pilot, " events ", "criteria locked, revision 1")

    on_screen(MEASURED, script)


def test_fall_back_asks_and_f_again_confirms() -> None:
    sent = sent_by(PAUSED, "F", "q")
    assert sent == []
    assert sent_by(PAUSED, "F", "F") == [Cancel()]


def test_a_dead_engine_is_told_with_the_way_back() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await seen(app, pilot, "engine gone", "F: new engine and back to the checkpoint")
        await pressed(pilot, "N")
        assert room.restarted == 1

    on_screen(sessions.killed(), script)


def test_while_a_new_engine_starts_the_screen_says_so_until_it_answers() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "F", "F")
        await seen(app, pilot, "engine starting", "A new engine is starting: it imports torch")
        assert "engine gone" not in screen_text(app)
        room.connected = True
        room.deliver(opened()[0])
        await settled(pilot)
        await seen(app, pilot, "the FP32 checkpoint is restored and compared")
        assert "engine starting" not in screen_text(app)

    on_screen(sessions.killed(), script)


def test_leaving_asks_what_becomes_of_the_engine() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "q")
        await seen(app, pilot, "amptui attach comes back to it")
        await pressed(pilot, "e")
        assert not room.connected

    on_screen(LOADED, script)


def test_a_session_in_a_folder_of_its_own_is_named_by_what_finds_it_again() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pilot.press("q")
        await settled(pilot)
        await pilot.press("l")
        await settled(pilot)
        assert f"amptui attach {app.start.folder.path}" in app.last_words

    on_screen(PAUSED, script)


def test_back_closes_the_explanation_before_it_leaves_anything() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "x")
        explained = screen_text(app)
        await pressed(pilot, "escape")
        assert screen_text(app) != explained
        assert room.connected
        await pressed(pilot, "escape")
        await seen(app, pilot, "amptui attach comes back to it")

    on_screen(LOADED, script)


def test_below_the_least_size_one_line_says_so_and_the_screen_comes_back() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        for size in ((10, 3), (59, 24), (1, 1)):
            await pilot.resize_terminal(*size)
            await settled(pilot)
        await pilot.resize_terminal(40, 10)
        await settled(pilot)
        await seen(app, pilot, "needs 60×16, have 40×10")
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        await seen(app, pilot, "1 Project")

    on_screen(PAUSED, script)


def test_ascii_is_ascii_on_every_page() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        for key in ("1", "2", "3", "4", "5", "6", "7", "v", "o", "x", "question_mark"):
            await pressed(pilot, key)
            assert screen_text(app).isascii(), screen_text(app)

    on_screen(sessions.accepted(), script, look=Look(theme="plain", ascii=True))


def test_rebound_keys_work_and_are_what_help_shows() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "question_mark")
        await seen(app, pilot, "P     ")
        await pressed(pilot, "q", "P")
        assert room.sent == [Advance(unit="phase")]
        await pressed(pilot, "s")
        assert room.sent == [Advance(unit="phase")]

    on_screen(PAUSED, script, keys=rebind(KEYS, {"phase": "P"}))


def test_the_key_that_asks_confirms_whatever_it_is_bound_to() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await seen(app, pilot, "q falls back")
        await pressed(pilot, "q", "q")
        assert room.sent == [Cancel()]

    on_screen(PAUSED, script, keys=rebind(KEYS, {"fall_back": "q", "back": "escape"}))


def test_the_first_screen_is_light() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, _pilot: Pilot[int]) -> None:
        assert len(app.screen.query(Widget)) <= 40

    on_screen((), script)


@pytest.mark.parametrize(
    "payload", ["\x1b[31mred", "\x1b]52;c;aGk=\x07", "\x9b2J", "a\u202eb", "[/bold]", "x\ny", "\x00"]
)
def test_foreign_text_reaches_the_terminal_without_a_control_character(payload: str) -> None:
    events: Told = (
        *LOCKED,
        *trial_started(),
        told.OutputCaptured(stream="stdout", text=f"{payload}\n"),
        told.CodeFailed(
            under="trial", exception=payload, message=payload, where=payload, module=payload, step=1, case=None
        ),
        told.Refused(code="x", message=payload, where=payload, hint=payload),
    )

    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        for key in ("1", "4", "5", "v", "o"):
            await pressed(pilot, key)
            text = screen_text(app)
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)

    on_screen(events, script)


@pytest.mark.parametrize(
    ("events", "page", "table"), [(MEASURED, "3", "#criteria-table"), (None, "5", "#verdict-cases")]
)
def test_esc_lifts_a_filter_before_it_asks_about_leaving(events: Told | None, page: str, table: str) -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, page)
        pane = app.screen.query_one(table, TablePane)
        await pressed(pilot, "slash", *"zzz", "enter")
        await seen(app, pilot, "/zzz: 0 of", "esc shows all")
        await pressed(pilot, "escape")
        assert pane.view.filter == ""
        assert "esc shows all" not in screen_text(app)
        assert room.connected
        assert app.dialog is None
        await pressed(pilot, "escape")
        await seen(app, pilot, "leave amptui?")

    on_screen(events or sessions.accepted(), script)


def test_the_row_that_is_told_is_one_that_the_filter_leaves() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "3", "g", "slash", *"progress", "enter")
        await seen(app, pilot, "▸ progress", "progress: How far the mean loss")

    on_screen(MEASURED, script)


def test_back_leaves_the_page_on_top_and_returns_to_the_one_that_was_looked_at() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        pages = []
        await pressed(pilot, "3", "x", "v", "o", "v", "question_mark")
        for _ in range(3):
            pages.append((app.main.page, app.main.explains))
            await pressed(pilot, "q")
        pages.append((app.main.page, app.main.explains))
        assert pages == [("help", True), ("events", True), ("criteria", True), ("criteria", False)]

    on_screen(PAUSED, script)


@pytest.mark.parametrize("size", [(80, 24), (60, 16)])
def test_a_zoomed_pane_leaves_in_sight_where_one_is_and_how_to_get_back(size: tuple[int, int]) -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "z")
        await seen(app, pilot, "z all panes")
        lines = screen_text(app).split("\n")
        assert "amptui  tiny" in lines[0]
        assert "s next phase, n next iteration" in screen_text(app)
        assert len([line for line in lines if "━" in line[:3]]) == 1  # one heading: of the zoomed pane
        await pressed(pilot, "F")
        await seen(app, pilot, "fall back to FP32", "esc leaves this")
        await pressed(pilot, "escape")
        assert app.main.maximized is not None
        await pressed(pilot, "escape")
        assert app.main.maximized is None
        await seen(app, pilot, "1 Project", "s next phase")

    on_screen(PAUSED, script, size=size)


@pytest.mark.parametrize(
    ("page", "pane"),
    [
        ("1", "project-told"),
        ("3", "criteria-text"),
        ("5", "verdict-cases"),
        ("6", "measure-policies"),
        ("7", "report-code"),
    ],
)
def test_a_zoomed_pane_has_the_page_to_itself_however_small_it_is_beside_others(page: str, pane: str) -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, page)
        for _ in range(4):
            if app.main.focused is not None and app.main.focused.id == pane:
                break
            await pressed(pilot, "tab")
        await pressed(pilot, "z")
        assert app.main.query_one(f"#{pane}").size == (80, 24 - 1 - 3 - 1)

    on_screen(measured.side_by_side(), script)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_table_of_layers_has_all_its_columns(size: tuple[int, int]) -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "4")
        await seen(app, pilot, "norm ↓", "FP32", "share", "max", "zeros", "dtype")

    on_screen(PAUSED, script, size=size)


def test_a_pane_that_a_resize_brings_into_sight_shows_what_there_is() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "4")
        await pilot.resize_terminal(120, 40)
        await seen(app, pilot, "─ events", "criteria locked, revision 1")

    on_screen(PAUSED, script)


def test_keys_that_the_framework_has_too_are_those_of_the_configuration() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "4")
        before = app.main.focused
        await pressed(pilot, "tab")
        assert app.main.focused is before
        await pressed(pilot, "N")
        assert app.main.focused is not before
        await pressed(pilot, "P")
        assert app.main.focused is before

    keys = rebind(KEYS, {"next_pane": "N", "previous_pane": "P", "new_engine": "E"})
    on_screen(PAUSED, script, keys=keys)


def test_a_notice_covers_nothing_that_leads_on_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amptui.ui.notices._STAYS_S", 0.5)

    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        before = screen_text(app).split("\n")
        app.notify("copied to tmux and your terminal's clipboard · saved to ~/some/where/copied.txt", markup=False)
        await seen(app, pilot, "✓ copied to tmux", "~/some/where/copied.txt", "c runs the FP32 baseline")
        during = screen_text(app).split("\n")
        assert during[:20] == before[:20]
        await seen(app, pilot, "The project is loaded")
        assert screen_text(app).split("\n") == before

    on_screen(LOADED, script)


def test_enter_takes_the_first_format_of_a_report_and_never_a_choice_that_ends_something() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "7", "c")
        await seen(app, pilot, "h, enter")
        await pressed(pilot, "enter")
        await seen(app, pilot, "write the report to this file", ".html")
        await pressed(pilot, "escape", "F", "enter")
        await seen(app, pilot, "fall back to FP32")
        assert room.sent == []

    on_screen(sessions.accepted(), script)


def test_at_80_by_24_the_selected_criterion_is_told_whole_also_once_it_is_locked() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "3", "g")
        await seen(app, pilot, "✓ locked, revision 1", "Because: ")
        for _ in range(10):
            proposal = next(p for p in PROPOSED.proposals if p.name == app.screen.query_one(TablePane).view.cursor)
            because = " ".join(f"Because: {proposal.reason}".split())
            for _ in range(100):  # it may be wrapped
                if because in " ".join(screen_text(app).split()):
                    break
                await pilot.pause(0.05)
            assert because in " ".join(screen_text(app).split())
            await pressed(pilot, "j")

    on_screen(LOCKED, script)


def test_on_the_smallest_screen_no_answer_is_cut() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "q")
        await seen(app, pilot, "leave amptui?")
        assert "amptui attach comes back to it" in " ".join(screen_text(app).split())

    on_screen(LOADED, script, size=(60, 16))


def test_a_page_that_is_asked_for_twice_at_once_is_made_once() -> None:
    async def script(app: AmptuiApp, _room: RecordedRoom, pilot: Pilot[int]) -> None:
        await asyncio.gather(app.main.go("measure"), app.main.go("measure"), app.main.go("report"))
        await settled(pilot)
        assert len(app.main.query("#measure")) == len(app.main.query("#report")) == 1

    on_screen(sessions.accepted(), script)
