"""Keys that arrive in one burst, as over a slow line, do what they do one by one."""

from __future__ import annotations

import asyncio

import pytest
from textual import events
from textual.pilot import Pilot

from amptui.protocol.commands import Command, Condition, Continue, LockCriteria, RunTrial
from amptui.ui.app import AmptuiApp
from amptui.ui.in_order import Arrival
from amptui.ui.widgets.table import TablePane
from tests.ui.recorded_room import RecordedRoom, screen_text
from tests.ui.test_screen import LOCKED, MEASURED, PAUSED, on_screen, pressed, seen, settled


def burst(app: AmptuiApp, *keys: str) -> None:
    """Hands over all `keys` before the program has looked at the first."""
    assert app._driver is not None
    for key in keys:
        app._driver.send_message(events.Key(key, key if len(key) == 1 else "." if key == "full_stop" else None))


def sent_by_burst(told: tuple[object, ...], *keys: str) -> list[Command]:
    sent: list[Command] = []

    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        burst(app, *keys)
        for _ in range(100):
            if room.sent:
                break
            await pilot.pause(0.02)
        await settled(pilot)
        sent.extend(room.sent)

    on_screen(told, script)  # type: ignore[arg-type]
    return sent


def test_what_is_typed_ahead_into_an_entry_keeps_its_order() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        await pressed(pilot, "3", "enter")
        await seen(app, pilot, "Proposed:")
        burst(app, "ctrl+u", "0", "full_stop", "1", "enter", "c")
        await seen(app, pilot, "criterion")
        for _ in range(100):
            if room.sent:
                break
            await pilot.pause(0.02)
        (command,) = room.sent
        assert isinstance(command, LockCriteria)
        assert command.criteria is not None
        assert 0.1 in [value for bound in command.criteria.outputs.values() for value in bound.values()]  # type: ignore[union-attr]

    on_screen(MEASURED, script)


def test_the_first_letter_takes_the_place_of_what_is_proposed() -> None:
    keys = ["u", "n", "3", "enter"]
    assert sent_by_burst(PAUSED, *keys) == [Continue(until=Condition(name="norm", value=3.0))]


@pytest.mark.parametrize(
    ("told", "keys", "commands"),
    [
        (PAUSED, ["u", "s", "9", "enter"], [Continue(until=Condition(name="step", value=9.0))]),
        (PAUSED, ["z", "u", "k"], [Continue(until=Condition(name="skip"))]),
        (LOCKED, ["3", "p", "f"], [RunTrial(policy={"dtype": "float16"}, planned=True)]),
        (LOCKED, ["v", "question_mark", "5", "3", "p", "f"], [RunTrial(policy={"dtype": "float16"}, planned=True)]),
    ],
)
def test_a_question_takes_what_is_typed_right_behind_the_key_that_asks_it(
    told: tuple[object, ...], keys: list[str], commands: list[Command]
) -> None:
    assert sent_by_burst(told, *keys) == commands


def test_no_letter_of_a_filter_goes_to_the_page_below() -> None:
    async def script(app: AmptuiApp, room: RecordedRoom, pilot: Pilot[int]) -> None:
        burst(app, "3", "slash", *"scores.rtol".replace(".", ""), "enter")
        await seen(app, pilot, "esc shows all")
        assert app.main.page == "criteria"
        assert app.screen.query_one("#criteria-table", TablePane).view.filter == "scoresrtol"
        assert room.sent == []
        assert "▸" not in screen_text(app)

    on_screen(MEASURED, script)


def test_a_page_that_never_comes_holds_no_key_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amptui.ui.in_order._PATIENCE_S", 0.01)
    arrival = Arrival()
    first = arrival.begin()
    second = arrival.begin()
    arrival.end(first)  # overtaken: the page that counts is the second
    asyncio.run(arrival.wait())
    arrival.end(second)
    asyncio.run(arrival.wait())
