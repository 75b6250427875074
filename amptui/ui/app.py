"""The program on the screen: keys become actions, events become a new state, and a clock paints what changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar

from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.screen import Screen as TextualScreen

from amptui.project import Criteria
from amptui.protocol.commands import Cancel, Command, FallBack
from amptui.protocol.events import Event
from amptui.session.death import EngineDeath
from amptui.session.errors import SessionError
from amptui.session.state import SessionState
from amptui.text import safe_text
from amptui.ui import clipboard
from amptui.ui.dialogs import questions
from amptui.ui.dialogs.question import Question
from amptui.ui.engine_room import EngineRoom
from amptui.ui.keys import KEYS, Key, keymap, textual_bindings
from amptui.ui.known_failures import KnownFailure, first_to_show, known_failures
from amptui.ui.main_screen import LAYOUT, MainScreen, import_pages
from amptui.ui.moves import STAGES, Mode, Page, Situation, active
from amptui.ui.paint import PaintClock
from amptui.ui.reload import Reload, case_to_replay
from amptui.ui.session_view import SessionView
from amptui.ui.stages.stage import Shown
from amptui.ui.start import Start
from amptui.ui.steering import Steering
from amptui.ui.terminal import TerminalGuard
from amptui.ui.theme import textual_theme
from amptui.ui.way_back import WayBack
from amptui.ui.widgets.lines import LineWidget
from amptui.ui.widgets.table import TablePane
from amptui.ui.writing import Format

#: Keys of panes are declared by the panes.
_OF_PANES = ("Move", "Table", "Plot")
#: While the engine imports torch, the screen has time of its own.
_QUIET_S = 0.3


def _steered(move: Callable[[Steering], None]) -> Callable[[AmptuiApp], None]:
    """The action of a key that steers the session."""
    return lambda app: move(app.steering)


def _page(page: Page) -> Callable[[AmptuiApp], None]:
    """The action of a key that shows `page`."""
    return lambda app: app.go(page)


class AmptuiApp(App[int]):
    """One session on the screen: run, attached to, or recorded."""

    BINDINGS: ClassVar[list[BindingType]] = [*textual_bindings([key for key in KEYS if key.group not in _OF_PANES])]
    CSS = LAYOUT

    def __init__(self, start: Start, guard: TerminalGuard | None = None) -> None:
        super().__init__()
        self.start = start
        self.guard = guard
        self.register_theme(textual_theme(start.look.theme))
        self.theme = f"amptui-{start.look.theme}"
        self.set_keymap(keymap(start.keys))
        self.view = SessionView(start.folder.path)
        self.room = EngineRoom(start.folder, start.settings, self.take)
        self.steering = Steering(self)
        self.way_back = WayBack(self)
        self.reload = Reload(self)
        self._update = ""
        self._followed: str | None = None
        #: The report that was written last.
        self._written = ""
        self._before_help: Page = "project"
        self._before_diagnosis: Page = "project"
        self._main = MainScreen(start.look, start.keys)
        #: What to print once the terminal is back.
        self.last_words = ""

    def get_default_screen(self) -> MainScreen:
        return self._main

    # From events to the screen.

    def on_mount(self) -> None:
        if self.guard is not None:
            self.guard.listen(self._end_at_once)
        self._clock = PaintClock(self._paint, self.set_timer, self.start.paints)
        self._paint()
        self.call_after_refresh(self._begin)

    async def _begin(self) -> None:
        """After the first paint: the engine, or what was recorded."""
        try:
            if self.start.how == "run":
                self.room.start()
                self.set_timer(_QUIET_S, import_pages)
            elif self.start.how == "attach":
                await self.room.attach(take_over=self.start.take_over)
            else:
                await self.room.replay()
        except SessionError as error:
            self.last_words = f"amptui: {safe_text(str(error), 2000)}"
            self.exit(2)
            return
        if self.start.how != "run":
            await self._main.go(self.view.state.stage or "project")
            self._followed = self.view.state.stage
        self.repaint()

    def take(self, event: Event | EngineDeath) -> None:
        """One thing that was told."""
        self.view.take(event)
        self.way_back.notice(event)
        self.reload.notice(event)
        self.steering.notice(event)
        self.repaint()

    def repaint(self) -> None:
        self._clock.request()

    def on_table_pane_moved(self) -> None:
        self.repaint()

    def _paint(self) -> None:
        if not self._main.is_mounted or self._main.is_current is False:
            return
        self._follow()
        names = self.view.update_names
        if self._update not in names:
            self._update = names[0] if names else ""
        self._main.show(Shown(self.view, self.situation, self._update))

    def _follow(self) -> None:
        """Goes along where the engine enters another stage, if one was looking at the stage before."""
        stage = self.view.state.stage
        if stage is None or stage == self._followed:
            return
        before, self._followed = self._followed, stage
        looks_on = self._main.page in (before, "project", STAGES[STAGES.index(stage) - 1])
        if looks_on and not self.way_back.underway and not self.reload.underway:
            self.go(stage)

    @property
    def situation(self) -> Situation:
        mode: Mode = "recorded" if self.start.how == "open" else "live"
        starting = self.view.state.engine == "starting"
        connected = self.room.connected or starting
        falling_back, can_start = self.way_back.underway, self.room.can_start
        reloading, changed = self.reload.underway, self.steering.changed is not None
        return Situation(
            self.view.state,
            self._main.page,
            mode,
            connected,
            falling_back,
            reloading,
            can_start,
            criteria_changed=changed,
            written=self._written,
            planned=self.steering.planned,
        )

    # What steering and the way back need.

    @property
    def state(self) -> SessionState:
        return self.view.state

    @property
    def connected(self) -> bool:
        return self.room.connected

    def send(self, command: Command) -> None:
        if isinstance(command, Cancel | FallBack):
            self.reload.give_up()
        self.room.send(command)
        self.repaint()

    def ask(self, question: Question, answered: Callable[[str], None]) -> None:
        def done(answer: str | None) -> None:
            if answer is not None:
                answered(answer)
            self.repaint()

        self._main.ask(question, done)

    def go(self, page: Page) -> None:
        async def change() -> None:
            await self._main.go(page)
            self.repaint()

        self.run_worker(change(), exclusive=True)

    def changed_criteria(self, criteria: Criteria | None) -> None:
        for stage in self._main.query("#criteria"):
            stage.changed = criteria  # type: ignore[attr-defined]
        self.repaint()

    def later(self, seconds: float, callback: Callable[[], None]) -> object:
        return self.set_timer(seconds, callback)

    @property
    def session_id(self) -> str:
        return self.start.folder.session_id

    def write_report(self, path: Path, format: Format) -> None:  # noqa: A002
        from amptui.report.command import write_report  # noqa: PLC0415 - rarely

        async def write() -> None:
            try:
                await asyncio.to_thread(write_report, self.start.folder, format, path)
            except SessionError as error:
                self.notify(safe_text(str(error), 2000), severity="error", markup=False)
            else:
                self._written = str(path)
            self.repaint()

        self.run_worker(write(), group="report", exclusive=True)

    def restart_engine(self) -> None:
        if self.room.can_start:
            self.run_worker(self.room.restart(), group="engine", exclusive=True)

    def show_failure(self, retained: str) -> None:
        """The diagnosis of a retained case, over the page that is looked at."""
        self._followed = self.view.state.stage
        for number, failure in enumerate(known_failures(self.state)):
            if failure.retained == retained:
                self.diagnose(number)
                return

    @property
    def _looked_at(self) -> KnownFailure | None:
        """The failure on the diagnosis page, if one looks at it."""
        if self._main.page != "diagnosis":
            return None
        failures = known_failures(self.state)
        chosen: int = self._main.current.chosen  # type: ignore[attr-defined]
        return failures[chosen] if chosen < len(failures) else None

    @property
    def line_looked_at(self) -> str | None:
        """`file:line` of the failure on the diagnosis page."""
        looked_at = self._looked_at
        findings = looked_at.findings if looked_at is not None else ()
        return next((finding.line for finding in findings if finding.line), None)

    # Keys.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what does something now; the framework's own actions always."""
        known = {key.id for key in self.start.keys if key.group not in _OF_PANES}
        return action in active(self.situation) if action in known else super().check_action(action, parameters)

    action_phase = _steered(Steering.phase)
    action_iteration = _steered(Steering.iteration)
    action_proceed = _steered(Steering.proceed)
    action_until = _steered(Steering.until)
    action_unattended = _steered(Steering.unattended)
    action_extend = _steered(Steering.extend)
    action_mend = _steered(Steering.mend)
    action_pause = _steered(Steering.pause)
    action_retry = _steered(Steering.retry)
    action_cancel = _steered(Steering.cancel)
    action_policies = _steered(Steering.policies)
    action_yardstick = _steered(Steering.yardstick)
    action_find_cases = _steered(Steering.find_cases)

    action_stage_1 = _page("project")
    action_stage_2 = _page("baseline")
    action_stage_3 = _page("criteria")
    action_stage_4 = _page("trial")
    action_stage_5 = _page("verdict")
    action_stage_6 = _page("measure")
    action_stage_7 = _page("report")
    action_output = _page("output")
    action_events = _page("events")

    def action_fall_back(self) -> None:
        self.way_back.ask()

    def action_new_engine(self) -> None:
        self.restart_engine()

    def action_reload(self) -> None:
        looked_at = self._looked_at
        self.reload.begin(case_to_replay(self.state, looked_at.retained if looked_at is not None else None))
        self.repaint()

    def action_diagnose(self) -> None:
        """`d`: the failure in question; on the diagnosis itself, the next one."""
        if self._main.page == "diagnosis":
            stage = self._main.current
            count = len(known_failures(self.state))
            stage.chosen = (stage.chosen + 1) % max(count, 1)  # type: ignore[attr-defined]
            self.repaint()
            return
        self.diagnose(first_to_show(self.state, known_failures(self.state), self._case_under_cursor()))

    def diagnose(self, chosen: int) -> None:
        """Shows what is known of failure number `chosen`."""

        if self._main.page not in ("help", "diagnosis"):
            self._before_diagnosis = self._main.page

        async def show() -> None:
            await self._main.go("diagnosis")
            self._main.current.chosen = chosen  # type: ignore[attr-defined]
            self.repaint()

        self.run_worker(show(), exclusive=True)

    def _case_under_cursor(self) -> str | None:
        """The evaluation case of the verdict's row that the cursor is on."""
        if self._main.page != "verdict":
            return None
        row = self._main.current.query_one("#verdict-cases", TablePane).selected
        return row.id.partition("\0")[0] if row is not None else None

    def action_change(self) -> None:
        self.steering.change(self._main.query_one("#criteria-table", TablePane).view.cursor)

    def action_edit(self) -> None:
        from amptui.ui.editing import edit_source  # noqa: PLC0415 - rarely

        edit_source(self)

    def action_next_pane(self) -> None:
        self._main.focus_next()

    def action_previous_pane(self) -> None:
        self._main.focus_previous()

    def action_zoom(self) -> None:
        if self._main.maximized is not None:
            self._main.minimize()
        elif self._main.focused is not None:
            self._main.maximize(self._main.focused)

    def action_explain(self) -> None:
        self._main.toggle_class("-explained")
        self.call_after_refresh(self.repaint)

    def action_other_update(self) -> None:
        names = self.view.update_names
        if names:
            self._update = names[(names.index(self._update) + 1) % len(names)] if self._update in names else names[0]
        self.repaint()

    def action_filter(self) -> None:
        tables = [pane for pane in self._main.current.query(TablePane) if pane.display]
        table = next((pane for pane in tables if pane.has_focus), tables[0] if tables else None)
        if table is not None:
            self.ask(questions.filter_text(table.view.filter), table.filter_by)

    async def action_copy(self) -> None:
        pane = self._main.focused
        if isinstance(pane, LineWidget) and self._driver is not None:
            copied = await clipboard.copy(pane.copy_text(), self.start.folder.path, write=self._driver.write)
            self.notify(copied.sentence, markup=False)

    def action_help(self) -> None:
        about = self.situation

        async def show() -> None:
            await self._main.go("help")
            page = self._main.current
            page.about, page.keys = about, tuple(self.start.keys)  # type: ignore[attr-defined]
            self.repaint()

        if self._main.page != "help":
            self._before_help = self._main.page
            self.run_worker(show(), exclusive=True)

    def action_suspend(self) -> None:
        self.action_suspend_process()

    # Leaving.

    async def action_back(self) -> None:
        """Out of a zoom, the explanation, a page that is no stage; then out of the program, with a question first."""
        stage = self.view.state.stage or "project"
        if self._main.maximized is not None:
            self._main.minimize()
        elif self._main.has_class("-explained"):
            self.action_explain()
        elif self._main.page == "help":
            self.go(self._before_help)
        elif self._main.page == "diagnosis":
            self.go(self._before_diagnosis)
        elif self._main.page not in STAGES:
            self.go(stage)
        elif self.room.connected:
            running = "running" in self.view.state.stages.values()
            self.ask(questions.leave(running=running), self._leave)
        else:
            self.exit(0)

    def _leave(self, how: str) -> None:
        async def end() -> None:
            await self.room.end()
            self.exit(0)

        if how == "leave":
            self._end_at_once()
        else:
            self.run_worker(end(), group="engine", exclusive=True)

    def _end_at_once(self) -> None:
        """The engine stays: it finishes its phase and waits."""
        if self.room.connected:
            session = safe_text(self.start.folder.session_id)
            self.last_words = f"The engine waits. Take it up again: amptui attach {session}"
            self.room.leave()
        self.exit(0)

    def get_system_commands(self, screen: TextualScreen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002
        """Every key that does something now, by its help."""
        ids = active(self.situation)
        commands: list[Key] = [key for key in self.start.keys if key.id in ids and key.id != "command_palette"]
        for key in commands:
            action = key.id
            yield SystemCommand(key.help, f"key {key.keys[0]}", lambda action=action: self.run_action(action))
