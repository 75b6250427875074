"""The program on the screen: what was read is painted as it comes, keys look through it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import SystemCommand
from textual.binding import BindingType
from textual.screen import Screen as TextualScreen
from textual.widgets import Input

from amptui.inspection.command import Answer
from amptui.inspection.compare import Change, compare
from amptui.inspection.result import Inspection
from amptui.report.inspect_text import inspect_text
from amptui.ui import clipboard
from amptui.ui.dialogs.dialog import Dialog
from amptui.ui.dialogs.question import Question
from amptui.ui.in_order import InOrder
from amptui.ui.inspect.bars import PLACES, format_line, standing, title
from amptui.ui.inspect.findings_pane import FindingsPane
from amptui.ui.inspect.keys import INSPECT_KEYS, OF_PANES, Now, Page, active
from amptui.ui.inspect.pages import CheckpointPage, ComparePage, DrawnPane, HelpPage
from amptui.ui.inspect.reading import CheckpointReader, Reading
from amptui.ui.inspect.screen import LAYOUT, InspectScreen
from amptui.ui.inspect.tree_pane import TreePane
from amptui.ui.inspect.words import short_names
from amptui.ui.key_names import KeyNames
from amptui.ui.keys import Key, footer, keymap, shown, textual_bindings
from amptui.ui.notices import Noticing
from amptui.ui.paint import PaintClock
from amptui.ui.terminal import TerminalGuard
from amptui.ui.theme import Look, textual_theme
from amptui.ui.widgets.bar import Bar
from amptui.ui.widgets.lines import LineWidget
from amptui.ui.widgets.table import TablePane


@dataclass(frozen=True, kw_only=True)
class InspectStart:
    """One reader, or two of which the second checkpoint is the later one; they may be at work already."""

    readers: Sequence[CheckpointReader]
    #: The folder that a copy is saved in; None is the folder of sessions.
    copies: Path | None = None
    look: Look = field(default_factory=Look)
    keys: Sequence[Key] = INSPECT_KEYS
    #: Paints a second at most.
    paints: float = 8.0


class InspectApp(Noticing, InOrder):
    """One checkpoint, or two and what happened between them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *textual_bindings([key for key in INSPECT_KEYS if key.group not in OF_PANES])
    ]
    CSS = LAYOUT

    def __init__(self, start: InspectStart, guard: TerminalGuard | None = None) -> None:
        super().__init__()
        self.start = start
        self.guard = guard
        self.register_theme(textual_theme(start.look.theme))
        self.theme = f"amptui-{start.look.theme}"
        self.set_keymap(keymap(start.keys, INSPECT_KEYS))
        self.key_names = KeyNames(start.keys, start.look.glyphs)
        self._main = InspectScreen(start.look, "compare" if self.two else "first")
        self._names = short_names([reader.reading.path for reader in start.readers])
        self._before_help: Page = self._main.page
        self._compared: tuple[tuple[Inspection, ...], tuple[Change, ...]] = ((), ())
        self._search_before = ""

    def get_default_screen(self) -> InspectScreen:
        return self._main

    @property
    def dialog(self) -> Dialog | None:
        return self._main.dialog

    @property
    def two(self) -> bool:
        return len(self.start.readers) > 1

    @property
    def readings(self) -> list[Reading]:
        return [reader.reading for reader in self.start.readers]

    @property
    def answer(self) -> Answer | None:
        """What is known of all checkpoints; None while one of them is not known at all."""
        inspections = tuple(reading.inspection for reading in self.readings if reading.inspection is not None)
        if len(inspections) < len(self.start.readers):
            return None
        return Answer(inspections=inspections, changes=self._changes(inspections))

    def _changes(self, inspections: tuple[Inspection, ...]) -> tuple[Change, ...]:
        before = self._compared[0]
        if len(before) != len(inspections) or any(a is not b for a, b in zip(before, inspections, strict=True)):
            readable = len(inspections) == 2 and all(inspection.readable for inspection in inspections)
            self._compared = (inspections, compare(*inspections) if readable else ())
        return self._compared[1]

    # From what was read to the screen.

    def on_mount(self) -> None:
        if self.guard is not None:
            self.guard.listen(lambda: self.exit(0))
        self._clock = PaintClock(self._paint, self.set_timer, self.start.paints)
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()

        def changed() -> None:
            """In the reading thread, which knows of no app: the framework's timers need the context of this one."""
            with contextlib.suppress(RuntimeError):  # the loop has just closed
                loop.call_soon_threadsafe(self.repaint, context=context)

        for reader in self.start.readers:
            reader.listen(changed)
        # At once, so that what was read before is in the first paint.
        self.call_after_refresh(self._paint)

    def repaint(self) -> None:
        self._clock.request()

    def on_resize(self, _event: events.Resize) -> None:
        if hasattr(self, "_clock"):
            self.repaint()

    def _paint(self) -> None:
        if not self._main.is_mounted or not self._main.is_current:
            return
        self._paint_bars()
        page = self._main.current
        size = self._main.size
        height = size.height - 3
        if isinstance(page, CheckpointPage):
            page.show(
                self.readings[PLACES.index(self._main.page)],
                size.width,
                height,
                wide=self._main.wide,
                zoomed=self._main.zoomed,
            )
        elif isinstance(page, ComparePage):
            answer = self.answer
            changes = answer.changes if answer else ()
            page.show(self.readings, changes, self._names, size.width, height, zoomed=self._main.zoomed)
        self._paint_footer()

    def _paint_bars(self) -> None:
        page, here, glyphs = self._main.page, self._reading_here, self.start.look.glyphs
        left = title(self._names, self.readings, page, glyphs)
        self._main.query_one("#title", Bar).show(left, standing(here, self.readings, glyphs))
        self._main.query_one("#format", Bar).show(format_line(here, self._names, page, self.noticed, glyphs))

    def noticed_changed(self) -> None:
        if hasattr(self, "_clock"):
            self.repaint()

    @property
    def _reading_here(self) -> Reading | None:
        """The checkpoint of the page that is looked at."""
        return self.readings[PLACES.index(self._main.page)] if self._main.page in ("first", "second") else None

    def _paint_footer(self) -> None:
        ids, keys, glyphs = active(self._now), self.start.keys, self.start.look.glyphs
        self._main.query_one("#footer", DrawnPane).show(lambda width, _: [footer(keys, ids, width, glyphs=glyphs)])

    @property
    def _now(self) -> Now:
        page = self._main.current
        focused = self._main.focused
        tree = page.contents_pane if isinstance(page, CheckpointPage) else None
        tables = page.query(TablePane) if isinstance(page, ComparePage) else ()
        searching = (tree is not None and bool(tree.view.search)) or any(table.view.filter for table in tables)
        here = self._reading_here
        unread = here.can_read_values if here is not None else any(reading.can_read_values for reading in self.readings)
        return Now(
            page=self._main.page,
            two=self.two,
            unread=unread,
            bad=tree is not None and bool(tree.contents.bad),
            focus="contents" if isinstance(focused, TreePane) else "findings" if _is_findings(focused) else "other",
            inside=searching or self._main.zoomed is not None,
        )

    def on_descendant_focus(self, _event: events.DescendantFocus) -> None:
        self.repaint()

    def on_tree_pane_moved(self, _message: TreePane.Moved) -> None:
        page = self._main.current
        if isinstance(page, CheckpointPage):
            page.show_entry(wide=self._main.wide)
        self.repaint()

    def on_findings_pane_chosen(self, message: FindingsPane.Chosen) -> None:
        page = self._main.current
        place = page.contents_pane.contents.find(message.path) if isinstance(page, CheckpointPage) else None
        if place is None or not isinstance(page, CheckpointPage):
            self.notify("This finding is about the checkpoint as a whole.", markup=False, timeout=3)
            return
        self._show_pane(page.contents_pane)
        page.contents_pane.go_to(place)

    def _show_pane(self, pane: LineWidget) -> None:
        if self._main.zoomed not in (None, pane):
            self._main.zoom(None)
            self._paint()
        self._main.set_focus(pane, scroll_visible=False)

    # Keys.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what does something now; the framework's own actions always."""
        known = {key.id for key in self.start.keys if key.group not in OF_PANES}
        return action in active(self._now) if action in known else super().check_action(action, parameters)

    def go(self, page: Page, then: Callable[[], None] | None = None) -> None:
        async def change() -> None:
            await self._main.go(page)
            if then is not None:
                then()
            self.repaint()

        self.arrive(change)

    def action_first(self) -> None:
        self.go("first")

    def action_second(self) -> None:
        self.go("second")

    def action_compare(self) -> None:
        self.go("compare")

    def action_next_pane(self) -> None:
        self._main.focus_next()

    def action_previous_pane(self) -> None:
        self._main.focus_previous()

    def action_zoom(self) -> None:
        focused = self._main.focused
        self._main.zoom(focused if self._main.zoomed is None and isinstance(focused, LineWidget) else None)
        self.repaint()

    def action_next_bad(self) -> None:
        page = self._main.current
        if isinstance(page, CheckpointPage):
            self._show_pane(page.contents_pane)
            page.contents_pane.next_bad()

    def action_values(self) -> None:
        here = self._reading_here
        for reader in self.start.readers:
            if reader.reading.can_read_values and here in (None, reader.reading):
                reader.start(values=True)
        self.repaint()

    def action_filter(self) -> None:
        """Search as one types; esc gives back what was shown before."""
        page = self._main.current
        if isinstance(page, ComparePage):
            table = page.query_one(TablePane)
            question = Question(title="show only rows that contain", entry=table.view.filter)
            self._main.ask(question, lambda text: table.filter_by(text) if text is not None else None)
        elif isinstance(page, CheckpointPage):
            tree = page.contents_pane
            self._show_pane(tree)
            self._search_before = tree.view.search
            question = Question(title="search the contents: words of the path", entry=self._search_before)
            self._main.ask(question, lambda text: self._searched(tree, text))

    def _searched(self, tree: TreePane, text: str | None) -> None:
        tree.search(self._search_before if text is None else text)
        self.repaint()

    def on_input_changed(self, event: Input.Changed) -> None:
        page = self._main.current
        if isinstance(page, CheckpointPage) and self._main.asking:
            page.contents_pane.search(event.value)

    async def action_copy(self) -> None:
        pane = self._main.focused
        if isinstance(pane, LineWidget):
            # The card keeps the two halves of a part together by blanks that a shell would not take for blanks.
            await self._copy(pane.copy_text().replace("\u00a0", " "))

    async def action_copy_all(self) -> None:
        answer = self.answer
        if answer is not None:
            await self._copy(inspect_text(answer))

    async def _copy(self, text: str) -> None:
        if self._driver is not None and text:
            from amptui.session.paths import sessions_home  # noqa: PLC0415 - the first paint does without

            copied = await clipboard.copy(text, self.start.copies or sessions_home(), write=self._driver.write)
            self.notify(copied.line, markup=False)

    def action_help(self) -> None:
        now = self._now
        self._before_help = self._main.page
        self.go("help", lambda: self._main.query_one(HelpPage).show(self.start.keys, active(now)))

    def action_suspend(self) -> None:
        self.action_suspend_process()

    async def action_back(self) -> None:
        """Out of a zoom, the help, a search; never out of the program."""
        page = self._main.current
        if self._main.zoomed is not None:
            self._main.zoom(None)
        elif self._main.page == "help":
            self.go(self._before_help)
        elif isinstance(page, CheckpointPage):
            page.contents_pane.search("")
        elif isinstance(page, ComparePage):
            page.query_one(TablePane).filter_by("")
        self.repaint()

    async def action_quit(self) -> None:
        if self._main.page == "help":
            self.go(self._before_help)
        else:
            self.exit(0)

    def get_system_commands(self, screen: TextualScreen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002
        """Every key that does something now, by its help."""
        ids = active(self._now)
        for key in self.start.keys:
            if key.id in ids and key.id != "command_palette":
                action = key.id
                name = f"key {shown(key.keys[0])}"
                yield SystemCommand(key.help, name, lambda action=action: self.run_action(action))


def _is_findings(pane: object) -> bool:
    return isinstance(pane, FindingsPane)
