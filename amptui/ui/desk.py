"""Everything between keys and engine: events become a new state, keys become moves, a clock paints what changed.

It is imported after the first paint, with all that knows what a session is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING

from amptui.project import Criteria
from amptui.protocol.commands import Cancel, Command, FallBack
from amptui.protocol.events import EngineStarted, Event
from amptui.session.death import EngineDeath
from amptui.session.errors import SessionError
from amptui.session.paths import name_of
from amptui.session.state import SessionState
from amptui.text import safe_text, shell_word
from amptui.ui.around import around
from amptui.ui.dialogs import questions
from amptui.ui.dialogs.question import Question
from amptui.ui.editing import edit_source
from amptui.ui.engine_room import EngineRoom
from amptui.ui.looking import Looking
from amptui.ui.main_screen import import_pages
from amptui.ui.moves import Mode, Situation, active
from amptui.ui.pages import STAGES, Page
from amptui.ui.paint import PaintClock
from amptui.ui.reload import Reload, case_to_replay
from amptui.ui.session_view import SessionView
from amptui.ui.stages.stage import Shown
from amptui.ui.steering import Steering
from amptui.ui.way_back import WayBack
from amptui.ui.widgets.table import TablePane
from amptui.ui.writing import Format, written_report

if TYPE_CHECKING:
    from amptui.ui.app import AmptuiApp, MakeRoom

#: While the engine imports torch, the screen has time of its own.
_QUIET_S = 0.3


class Desk:
    """One session on the screen: its view, its engine, and what each key does."""

    def __init__(self, app: AmptuiApp, make_room: MakeRoom | None = None) -> None:
        start = app.start
        self.app = app
        self.view = SessionView(start.folder.path)
        self.room = EngineRoom(start.folder, start.settings, self.take) if make_room is None else make_room(self.take)
        self.steering = Steering(self)
        self.way_back = WayBack(self)
        self.reload = Reload(self)
        self.looking = Looking(self)
        #: How sentences call the keys.
        self.keys = app.key_names
        self._clock = PaintClock(self._paint, app.set_timer, start.paints)
        #: The update that plots and layers are about.
        self._update = ""
        #: The engine's stage that the screen went along to last.
        self._followed: str | None = None
        #: Whether a new engine was asked for and has not said anything yet.
        self._starting = False
        #: The report that was written last.
        self._written = ""
        self._moves = self._all_moves()

    async def begin(self) -> None:
        """The first page, and the engine or what was recorded."""
        start = self.app.start
        await self.app.main.go("project")
        try:
            if start.how == "run":
                self.room.start()
                self.app.set_timer(_QUIET_S, import_pages)
            elif start.how == "attach":
                await self.room.attach(take_over=start.take_over)
            else:
                await self.room.replay()
        except SessionError as error:
            self.app.last_words = f"amptui: {safe_text(str(error), 2000)}"
            self.app.exit(2)
            return
        if start.how != "run":
            self._followed = self.state.stage
            await self.app.main.go(self.state.stage or "project")
        self.repaint()

    # From events to the screen.

    def take(self, event: Event | EngineDeath) -> None:
        """One thing that was told."""
        if isinstance(event, EngineStarted | EngineDeath):
            self._starting = False
        self.view.take(event)
        for part in (self.way_back, self.reload, self.steering):
            part.notice(event)
        self._clock.request()

    def repaint(self) -> None:
        """What somebody did is shown at once; what is told comes at the clock's rate."""
        self._clock.hurry()

    def _paint(self) -> None:
        main = self.app.main
        if not main.is_mounted or main.is_current is False:
            return
        self._follow()
        names = self.view.update_names
        if self._update not in names:
            self._update = names[0] if names else ""
        now = self.situation
        zoomed, notice = main.maximized is not None, self.app.noticed
        frame = around(now, main.look.glyphs, explain=main.explains, zoomed=zoomed, notice=notice)
        main.show(frame, Shown(self.view, now, self._update))

    def _follow(self) -> None:
        """Goes along where the engine enters another stage, if one was looking at the stage before."""
        stage = self.state.stage
        if stage is None or stage == self._followed:
            return
        before, self._followed = self._followed, stage
        looks_on = self.app.main.page in (before, "project", STAGES[STAGES.index(stage) - 1])
        if looks_on and not self.way_back.underway and not self.reload.underway:
            self.go(stage)

    @property
    def situation(self) -> Situation:
        mode: Mode = "recorded" if self.app.start.how == "open" else "live"
        return Situation(
            self.state,
            self.app.main.page,
            mode,
            connected=self.room.connected or self.state.engine == "starting",
            starting=self._starting,
            falling_back=self.way_back.underway,
            reloading=self.reload.underway,
            can_restart=self.room.can_start,
            criteria_changed=self.steering.changed is not None,
            written=self._written,
            planned=self.steering.planned,
            keys=self.keys,
        )

    # What steering, the way back, reloading and looking need.

    @property
    def state(self) -> SessionState:
        return self.view.state

    @property
    def connected(self) -> bool:
        return self.room.connected

    @property
    def session_id(self) -> str:
        return self.app.start.folder.session_id

    @property
    def session(self) -> str:
        return shell_word(name_of(self.app.start.folder))

    def send(self, command: Command) -> None:
        if isinstance(command, Cancel | FallBack):
            self.reload.give_up()
            self.steering.mending.give_up()
        self.room.send(command)
        self.repaint()

    def ask(self, question: Question, answered: Callable[[str], None]) -> None:
        def done(answer: str | None) -> None:
            if answer is not None:
                answered(answer)
            self.repaint()

        self.app.main.ask(question, done)

    def go(self, page: Page, then: Callable[[], None] | None = None, *, back: bool = False) -> None:
        """Goes to `page`, where `then` is called; `back` is the way out of a page over another."""

        async def change() -> None:
            if not back:
                self.looking.remember(page)
            await self.app.main.go(page)
            if then is not None:
                then()
            self.repaint()

        self.app.arrive(change)

    @property
    def starting(self) -> bool:
        return self._starting

    def withdraw(self, question: Question) -> None:
        self.app.main.withdraw(question)

    def changed_criteria(self, criteria: Criteria | None) -> None:
        for stage in self.app.main.query("#criteria"):
            stage.changed = criteria  # type: ignore[attr-defined]
        self.repaint()

    def later(self, seconds: float, callback: Callable[[], None]) -> object:
        return self.app.set_timer(seconds, callback)

    def write_report(self, path: Path, format: Format) -> None:  # noqa: A002
        async def write() -> None:
            problem = await written_report(self.app.start.folder, format, path)
            if problem:
                self.app.notify(problem, severity="error", markup=False)
            else:
                self._written = str(path)
            self.repaint()

        self.app.run_worker(write(), group="report", exclusive=True)

    def restart_engine(self) -> None:
        if self.room.can_start:
            self._starting = True
            self.app.run_worker(self.room.restart(), group="engine", exclusive=True)

    def show_failure(self, retained: str) -> None:
        """The diagnosis of a retained case, over the page that is looked at."""
        self._followed = self.state.stage
        self.looking.diagnose_retained(retained)

    # Keys.

    @property
    def active(self) -> frozenset[str]:
        """Ids of the keys that do something now."""
        return active(self.situation)

    async def press(self, key: str) -> None:
        """What the key with the id `key` does."""
        done = self._moves[key]()
        if isawaitable(done):
            await done

    def _all_moves(self) -> Mapping[str, Callable[[], None] | Callable[[], Awaitable[None]]]:
        """Every key of the screen by its id; those of panes are the panes' own."""
        steering, looking = self.steering, self.looking
        return {
            "phase": steering.phase,
            "iteration": steering.iteration,
            "proceed": steering.proceed,
            "until": steering.until,
            "unattended": steering.unattended,
            "extend": steering.extend,
            "mend": steering.mend,
            "pause": steering.pause,
            "retry": steering.retry,
            "cancel": steering.cancel,
            "policies": steering.policies,
            "yardstick": steering.yardstick,
            "find_cases": steering.find_cases,
            "change": lambda: steering.change(self.app.main.query_one("#criteria-table", TablePane).view.cursor),
            "fall_back": self.way_back.ask,
            "new_engine": self.restart_engine,
            "reload": self._reload,
            "edit": lambda: edit_source(self),
            **{f"stage_{number}": self._to(stage) for number, stage in enumerate(STAGES, start=1)},
            "output": self._to("output"),
            "events": self._to("events"),
            "other_update": self._other_update,
            "diagnose": looking.diagnose,
            "next_pane": looking.next_pane,
            "previous_pane": looking.previous_pane,
            "zoom": looking.zoom,
            "filter": looking.filter,
            "copy": looking.copy,
            "explain": looking.explain,
            "help": looking.help,
            "command_palette": self.app.action_command_palette,
            "suspend": self.app.action_suspend_process,
            "back": self._back,
        }

    def _to(self, page: Page) -> Callable[[], None]:
        return lambda: self.go(page)

    def _reload(self) -> None:
        looked_at = self.looking.failure
        self.reload.begin(case_to_replay(self.state, looked_at.retained if looked_at is not None else None))
        self.repaint()

    def _other_update(self) -> None:
        names = self.view.update_names
        if names:
            self._update = names[(names.index(self._update) + 1) % len(names)] if self._update in names else names[0]
        self.repaint()

    # Leaving.

    def _back(self) -> None:
        """Out of what is looked at more closely; then out of the program, with a question first."""
        if not self.looking.back():
            self.leave()

    def leave(self) -> None:
        """Out of the program; with a question first where there is an engine to be left or ended."""
        if self.room.connected:
            self.ask(questions.leave(running="running" in self.state.stages.values()), self._leave)
        else:
            self.app.exit(0)

    def _leave(self, how: str) -> None:
        async def end() -> None:
            await self.room.end()
            self.app.exit(0)

        if how == "leave":
            self.app.end_at_once()
        else:
            self.app.run_worker(end(), group="engine", exclusive=True)

    def leave_engine(self) -> None:
        """The engine stays: it finishes its phase and waits."""
        if self.room.connected:
            self.app.last_words = f"The engine waits. Take it up again: amptui attach {self.session}"
            self.room.leave()
