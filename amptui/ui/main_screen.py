"""The one screen: title, stages, the page looked at, the explanation, guidance, footer; a question over them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.message import Message
from textual.widgets import ContentSwitcher

from amptui.ui.frame import Frame
from amptui.ui.frugal import FrugalScreen
from amptui.ui.keys import Key, called, footer
from amptui.ui.pages import Page
from amptui.ui.raster.line import Line, blank, centred
from amptui.ui.raster.prose import Paragraph, paragraph
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.terminal import too_small
from amptui.ui.theme import Look
from amptui.ui.widgets.bar import Bar
from amptui.ui.widgets.guidance import GuidancePane
from amptui.ui.widgets.lines import LineWidget
from amptui.ui.widgets.text import TextPane, TextValue

if TYPE_CHECKING:
    from amptui.ui.dialogs.dialog import Dialog
    from amptui.ui.dialogs.question import Question

#: Where everything stands; classes say how much room there is (`-low`, `-tall`, `-wide`).
LAYOUT = """
MainScreen { layers: base over; overflow: hidden; background: $background; }
MainScreen.-maximized-view { overflow: hidden !important; hatch: none; align: left top; }
MainScreen.-maximized-view #title { dock: top; }
MainScreen.-maximized-view #too-small { layer: over; }
MainScreen.-maximized-view .-maximized { height: 1fr !important; max-height: 100% !important; }
#title, #stages, #footer { height: 1; }
#body { height: 1fr; layout: vertical; }
#switcher { height: 1fr; width: 1fr; }
#guidance { height: 3; }
#explain { display: none; height: 9; width: 1fr; }
MainScreen.-explained #explain { display: block; }
MainScreen.-wide #body { layout: horizontal; }
MainScreen.-wide #explain { height: 1fr; width: 42; margin-left: 1; }
#too-small { display: none; layer: over; dock: top; width: 100%; height: 100%; }
MainScreen.-too-small #too-small { display: block; }
Stage { height: 1fr; width: 1fr; layout: vertical; }

#baseline { layout: grid; grid-size: 2; grid-columns: 1fr 1fr; grid-rows: 7 1fr; grid-gutter: 0 1; }
MainScreen.-tall #baseline { grid-rows: 14 1fr; }
#baseline-told { column-span: 2; }
#criteria-text { height: 6; }
MainScreen.-tall #criteria-text { height: 8; }
#verdict-cases { height: 6; }
MainScreen.-tall #verdict-cases { height: 12; }
#measure-policies { height: auto; max-height: 5; }
MainScreen.-tall #measure-policies { max-height: 9; }
#report-code { height: 7; }
MainScreen.-tall #report-code { height: 1fr; }
#cases-text { height: 8; }
MainScreen.-tall #cases-text { height: 12; }

#trial { layout: grid; grid-size: 2; grid-columns: 1fr 1fr; grid-rows: 5 4 5 1fr; grid-gutter: 0 1; }
#iteration, #layers { column-span: 2; }
#trial-events { display: none; }
MainScreen.-tall #trial { grid-rows: 10 7 7 1fr; }
MainScreen.-wide.-tall #trial { grid-rows: 9 6 9 1fr; }
MainScreen.-wide.-tall #iteration { column-span: 1; }
MainScreen.-wide.-tall #trial-events { display: block; }
MainScreen.-wide.-tall.-explained #iteration { column-span: 2; }
MainScreen.-wide.-tall.-explained #trial-events { display: none; }
MainScreen.-explained.-low #scale, MainScreen.-explained.-low #updates, MainScreen.-explained.-low #layers {
    display: none;
}
MainScreen.-explained.-low #trial { grid-rows: 4 1fr; }
MainScreen.-explained.-low #cases-text, MainScreen.-explained.-low #verdict-cases,
MainScreen.-explained.-low #report-code { display: none; }
"""

#: Module and class of each page. One is imported and made when it is first looked at: the first paint needs one only.
_PAGES: dict[Page, tuple[str, str]] = {
    "project": ("project", "ProjectStage"),
    "baseline": ("baseline", "BaselineStage"),
    "criteria": ("criteria", "CriteriaStage"),
    "trial": ("trial", "TrialStage"),
    "verdict": ("verdict", "VerdictStage"),
    "measure": ("measure", "MeasureStage"),
    "report": ("report", "ReportStage"),
    "output": ("logs", "OutputPage"),
    "events": ("logs", "EventsPage"),
    "diagnosis": ("diagnosis", "DiagnosisStage"),
    "cases": ("found_cases", "FoundCasesPage"),
    "help": ("help", "HelpPage"),
}


def page_class(page: Page) -> type[Stage]:
    """The class of `page`, imported now if it has not been."""
    module, name = _PAGES[page]
    found: type[Stage] = getattr(import_module(f"amptui.ui.stages.{module}"), name)
    return found


def import_pages() -> None:
    """Imports all pages and the dialog, so that going to one for the first time does not wait for it."""
    for page in _PAGES:
        page_class(page)
    import_module("amptui.ui.dialogs.dialog")


class _Line(LineWidget, can_focus=False):
    """Lines that are handed over ready, by width."""

    def __init__(self, look: Look, *, id: str) -> None:  # noqa: A002
        super().__init__(look, id=id)
        self._made: Callable[[int], Line] = blank

    def show(self, made: Callable[[int], Line]) -> None:
        self._made = made
        self.redraw()

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        return (self._made(width),)[:height]


class _TooSmall(LineWidget, can_focus=False):
    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        size = self.app.size
        return centred(too_small(size.width, size.height) or "", width, height, "warn")


class _Nothing(LineWidget, can_focus=False):
    """Where there is no page yet: empty, without a colour of the framework's own."""

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        return tuple(blank(width) for _ in range(height))


class MainScreen(FrugalScreen):
    """Mounts pages as they are asked for and keeps them; `show` paints the page looked at and the lines around it.

    At first there is no page: `go` makes one.
    """

    #: A pane that is zoomed has the page to itself; what is judged, what to press and questions stay in sight.
    ALLOW_IN_MAXIMIZED_VIEW = "#title, #guidance, #footer, #too-small, Dialog"
    ESCAPE_TO_MINIMIZE = False

    def __init__(self, look: Look, keys: Sequence[Key], first: Frame) -> None:
        super().__init__(id="_default")
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]
        self.VERTICAL_BREAKPOINTS = [(0, "-low"), (34, "-tall")]
        self.look = look
        self._keys = keys
        self._first = first
        self._going = asyncio.Lock()
        #: The page that is looked at; made after the first paint.
        self.page: Page = "project"
        self._dialog: Dialog | None = None
        self._painted: dict[str, object] = {}
        self._focused_before: LineWidget | None = None
        #: The pane that was focused on each page when it was left.
        self._left: dict[Page, LineWidget] = {}

    def compose(self) -> ComposeResult:
        yield Bar(self.look, id="title")
        yield Bar(self.look, id="stages")
        with Container(id="body"):
            with ContentSwitcher(id="switcher", initial="nothing"):
                yield _Nothing(self.look, id="nothing")
            yield TextPane(self.look, id="explain")
        yield GuidancePane(self.look, id="guidance")
        yield _Line(self.look, id="footer")
        yield _TooSmall(self.look, id="too-small")

    def on_mount(self) -> None:
        self.show(self._first)

    class Rearranged(Message):
        """The size has changed: panes may be in sight that were not."""

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(too_small(event.size.width, event.size.height) is not None, "-too-small")
        self.call_after_refresh(self.post_message, self.Rearranged())

    @property
    def current(self) -> Stage:
        return self.query_one(f"#{self.page}", Stage)

    async def go(self, page: Page) -> None:
        """Shows `page`, and makes it first where it has never been looked at; one page at a time."""
        async with self._going:
            await self._go(page)

    async def _go(self, page: Page) -> None:
        if self.maximized is not None:
            self.minimize()
        if isinstance(self.focused, LineWidget):
            self._left[self.page] = self.focused
        switcher = self.query_one(ContentSwitcher)
        if not switcher.query(f"#{page}"):
            await switcher.add_content(page_class(page)(self.look, id=page), set_current=False)
        self.page = page
        switcher.current = page
        self._focus_page()

    def _focus_page(self) -> None:
        panes = [pane for pane in self.current.query(LineWidget) if pane.can_focus and pane.display]
        left = self._left.get(self.page)
        prefer = [pane for pane in panes if pane is left] or [
            pane for pane in panes if pane.id in ("criteria-table", "layers", "measure-told")
        ]
        if self._dialog is None and panes:
            self.set_focus((prefer or panes)[0], scroll_visible=False)

    def show(self, frame: Frame, shown: Shown | None = None) -> None:
        """Paints what differs: the lines around the page, and the page where there is one yet."""
        if self._differs("title", frame.title):
            self.query_one("#title", Bar).show(*frame.title)
        if self._differs("stages", frame.stages):
            self.query_one("#stages", Bar).show(frame.stages)
        now = paragraph(frame.now, frame.role) if frame.notice is None else frame.notice.told(self.look.glyphs)
        press = paragraph(frame.press, "key")
        if self._differs("guidance", (now, press)):
            self.query_one(GuidancePane).show(now, press)
        if self._differs("footer", (frame.keys, frame.labels)):
            keys, ids, glyphs = called(self._keys, frame.labels), frame.keys, self.look.glyphs
            self.query_one("#footer", _Line).show(lambda width: footer(keys, ids, width, glyphs=glyphs))
        if frame.explained is not None and self._differs("explain", frame.explained):
            title, paragraphs = frame.explained
            spaced: list[Paragraph | None] = []
            for text in paragraphs:
                spaced += [paragraph(text), None]
            self.query_one("#explain", TextPane).show(TextValue(title=title, paragraphs=spaced[:-1]))
        if shown is not None:
            self.current.show(shown)

    def _differs(self, part: str, value: object) -> bool:
        """Whether `value` is not what `part` was last painted from: most paints change the page alone."""
        if self._painted.get(part) == value:
            return False
        self._painted[part] = value
        return True

    @property
    def explains(self) -> bool:
        """Whether the explanation stands beside the page."""
        return self.has_class("-explained")

    @explains.setter
    def explains(self, shown: bool) -> None:
        self.set_class(shown, "-explained")

    # Questions.

    @property
    def dialog(self) -> Dialog | None:
        """The question that is asked now."""
        return self._dialog

    def ask(self, question: Question, answered: Callable[[str | None], None]) -> None:
        """Asks `question` over the page; one at a time, the newest counts."""
        from amptui.ui.dialogs.dialog import Dialog  # noqa: PLC0415 - the first paint does without

        if self._dialog is not None:
            self._dialog.remove()
        elif isinstance(self.focused, LineWidget):
            self._focused_before = self.focused

        def done(answer: str | None) -> None:
            if self._dialog is not None:
                self._dialog.remove()
            self._dialog = None
            if self._focused_before is not None and self._focused_before.display:
                self.set_focus(self._focused_before, scroll_visible=False)
            answered(answer)

        self._dialog = Dialog(self.look, question, done)
        self.mount(self._dialog)

    def withdraw(self, question: Question) -> None:
        """Leaves `question` if it is the one that is asked: what it was about has settled itself."""
        if self._dialog is not None and self._dialog.question is question:
            self._dialog.leave()
