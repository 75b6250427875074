"""Pictures of the screen, made from recorded sessions.

python screenshots/make.py            draws every picture again, without torch
python screenshots/make.py --record   first runs the sample projects again and records them
"""

# ruff: noqa: T201, RUF009 - a script that says what it drew; a look never changes

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
os.environ["TEXTUAL_COLOR_SYSTEM"] = "256"

from amptui.protocol.codec import decode, encode  # noqa: E402
from amptui.protocol.commands import (  # noqa: E402
    Advance,
    Command,
    Condition,
    Continue,
    FindCases,
    LockCriteria,
    Measure,
    MeasureSeeds,
    RunBaseline,
    RunTrial,
)
from amptui.protocol.events import Event, Paused, Progressed, StageEnded  # noqa: E402
from amptui.session.checking import open_command  # noqa: E402
from amptui.session.folder import SessionFolder  # noqa: E402
from amptui.session.paths import HOME_VARIABLE  # noqa: E402
from amptui.session.process import EngineProcess  # noqa: E402
from amptui.spec.policies import coarsest  # noqa: E402
from amptui.spec.run_settings import RunSettings  # noqa: E402
from amptui.spec.settings import settings_for  # noqa: E402
from amptui.ui.app import AmptuiApp  # noqa: E402
from amptui.ui.theme import Look  # noqa: E402
from tests.ui.recorded_room import recorded_app  # noqa: E402

if TYPE_CHECKING:
    from textual.pilot import Pilot

SESSIONS = HERE / "sessions"


@dataclass(frozen=True)
class Picture:
    """A picture: the session, how many of its events, the keys pressed then, and the size in cells."""

    name: str
    session: str
    keys: Sequence[str] = ()
    size: tuple[int, int] = (80, 24)
    #: Stop after the last event of this kind; all events where it is empty.
    until: str = ""
    #: Which of them, where it is not the last one.
    which: int = -1
    look: Look = Look()


PICTURES = (
    Picture("project", "digits", until="StageEnded", which=0),
    Picture("baseline", "digits", ["2"], until="StageEnded", which=1),
    Picture("criteria", "digits", ["3"], until="StageEnded", which=1),
    Picture("trial", "stepped", ["4"]),
    Picture("trial-wide", "stepped", ["4"], size=(120, 40)),
    Picture("explained", "stepped", ["4", "x"], size=(120, 40)),
    Picture("skip", "skip", ["4"], until="Paused"),
    Picture("verdict", "digits", ["5"]),
    Picture("measure", "policies", ["6"]),
    Picture("measure-wide", "policies", ["6"], size=(120, 40)),
    Picture("plan", "digits", ["3", "p"], until="StageEnded", which=1),
    Picture("report", "policies", ["7"]),
    Picture("cases", "cases", ["f"]),
    Picture("rejected", "diabetes", ["5"], size=(120, 40)),
    Picture("diagnosis", "diabetes", ["5", "d"], size=(100, 34)),
    Picture("gan", "gan", ["4"], size=(120, 40), until="TrialDone"),
    Picture("light", "stepped", ["4"], look=Look(theme="light")),
    Picture("ascii", "stepped", ["4"], look=Look(theme="plain", ascii=True)),
)

#: What is recorded: the project, and what is asked of the engine after the project is open.
_THROUGH: tuple[Command, ...] = (RunBaseline(), LockCriteria(), RunTrial())
RECORDINGS: dict[str, tuple[str, dict[str, object], tuple[Command, ...]]] = {
    "digits": ("digits", {}, _THROUGH),
    "diabetes": ("diabetes", {}, _THROUGH),
    "gan": ("gan", {}, _THROUGH),
    "policies": (
        "digits",
        {},
        (
            RunBaseline(),
            LockCriteria(),
            RunTrial(policy={"dtype": "float16"}, planned=True),
            RunTrial(policy={"dtype": "bfloat16"}, planned=True),
            Measure(trial=1),
            Measure(trial=2),
            MeasureSeeds(),
        ),
    ),
    "cases": ("digits", {}, (FindCases(),)),
    "stepped": (
        "digits",
        {},
        (
            RunBaseline(),
            LockCriteria(),
            RunTrial(attended=True),
            Continue(until=Condition(name="step", value=25)),
            *[Advance(unit="phase")] * 7,
        ),
    ),
    "skip": (
        "digits",
        {"scaler": {"init_scale": 2.0**24}},
        (RunBaseline(), LockCriteria(), RunTrial(attended=True), Continue()),
    ),
}


def read(name: str) -> list[Event]:
    lines = (SESSIONS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(decode, lines) if isinstance(event, Event)]


def record(name: str) -> None:
    """Runs a sample project and writes down what its engine told; progress is left out."""
    project, policy, commands = RECORDINGS[name]
    samples = HERE.parent / "sample_projects" / project
    settings = settings_for(str(samples / "amptui.yaml"), RunSettings(policy=policy), folder=samples)
    events: list[Event] = []
    with tempfile.TemporaryDirectory() as home:
        folder = SessionFolder.create(Path(home) / "session")
        with EngineProcess.start(sys.executable, folder, on_disconnect="stop") as engine:
            tried = [command.policy for command in commands if isinstance(command, RunTrial) and command.policy]
            for command in (open_command(settings, criteria_dtype=coarsest(tried)), *commands):
                engine.send(command)
                while True:
                    event = engine.receive(60.0)
                    assert isinstance(event, Event), event
                    events.append(event)
                    if isinstance(event, StageEnded | Paused):
                        break
    told = "\n".join(encode(event) for event in events if not isinstance(event, Progressed))
    for here, elsewhere in ((f"{samples}/", ""), (f"{folder.path}/", ""), (sys.executable, "python")):
        told = told.replace(here, elsewhere)
    (SESSIONS / f"{name}.jsonl").write_text(told + "\n", encoding="utf-8")
    print(f"recorded {name}: {told.count(chr(10)) + 1} events")


async def draw(picture: Picture) -> None:
    events = read(picture.session)
    if picture.until:
        last = [n for n, event in enumerate(events) if type(event).__name__ == picture.until][picture.which]
        events = events[: last + 1]
    app, _ = recorded_app(events, look=picture.look)
    async with app.run_test(size=picture.size) as pilot:
        await painted(app, pilot)
        for key in picture.keys:
            await pilot.press(key)
            await painted(app, pilot)
        svg = app.export_screenshot(title="amptui")
        # Some renderers collapse blanks, also those that do not break.
        (HERE / f"{picture.name}.svg").write_text(
            svg.replace("<text ", '<text xml:space="preserve" '), encoding="utf-8"
        )
    print(f"drew {picture.name}")


async def painted(app: AmptuiApp, pilot: Pilot[int]) -> None:
    """Until what is recorded has been taken in, and the screen has stood still for a moment."""
    before, now = "", app.export_screenshot()
    while app.desk is None or not app.desk.state.events or before != now:
        await pilot.pause(0.15)
        before, now = now, app.export_screenshot()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="run the sample projects again first")
    given = parser.parse_args()
    SESSIONS.mkdir(exist_ok=True)
    # Where the recorded sessions seem to lie, so that their ids name them.
    os.environ[HOME_VARIABLE] = tempfile.gettempdir()
    for name in RECORDINGS:
        if given.record or not (SESSIONS / f"{name}.jsonl").exists():
            record(name)
    for picture in PICTURES:
        asyncio.run(draw(picture))


if __name__ == "__main__":
    main()
