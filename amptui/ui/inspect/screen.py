"""The one screen: what is looked at, its format, the page, the footer; the search over them."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import ContentSwitcher

from amptui.ui.dialogs.dialog import Dialog
from amptui.ui.dialogs.question import Question
from amptui.ui.frugal import FrugalScreen
from amptui.ui.inspect.keys import Page
from amptui.ui.inspect.pages import CheckpointPage, ComparePage, DrawnPane, HelpPage
from amptui.ui.raster.line import centred
from amptui.ui.terminal import too_small
from amptui.ui.theme import Look
from amptui.ui.widgets.bar import Bar
from amptui.ui.widgets.lines import LineWidget

#: Cells from which on the contents stand beside the findings.
WIDE = 110

LAYOUT = """
InspectScreen { layers: base over; overflow: hidden; background: $background; }
#title, #format, #footer { height: 1; }
#switcher { height: 1fr; width: 1fr; }
CheckpointPage, ComparePage, HelpPage { height: 1fr; width: 1fr; layout: vertical; }
.told { width: 1fr; layout: vertical; }
.held { width: 1fr; height: 1fr; layout: vertical; }
InspectScreen.-wide CheckpointPage { layout: horizontal; }
InspectScreen.-wide .held { margin-left: 1; }
#too-small { display: none; layer: over; dock: top; width: 100%; height: 100%; }
InspectScreen.-too-small #too-small { display: block; }
"""

_PAGES: dict[Page, Callable[..., CheckpointPage | ComparePage | HelpPage]] = {
    "first": CheckpointPage,
    "second": CheckpointPage,
    "compare": ComparePage,
    "help": HelpPage,
}


class InspectScreen(FrugalScreen):
    """Mounts pages as they are asked for and keeps them."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012 - as the framework declares it

    def __init__(self, look: Look, page: Page) -> None:
        super().__init__(id="_default")
        self.look = look
        self.page: Page = page
        #: The pane that has the page to itself.
        self.zoomed: LineWidget | None = None
        self._dialog: Dialog | None = None
        self._focused_before: LineWidget | None = None

    def compose(self) -> ComposeResult:
        yield Bar(self.look, id="title")
        yield Bar(self.look, id="format")
        with ContentSwitcher(id="switcher", initial=self.page):
            yield _PAGES[self.page](self.look, id=self.page)
        yield DrawnPane(self.look, id="footer")
        yield DrawnPane(self.look, id="too-small")

    def on_mount(self) -> None:
        self.focus_page()

    def on_resize(self, event: events.Resize) -> None:
        words = too_small(event.size.width, event.size.height)
        self.set_class(words is not None, "-too-small")
        if words is not None:
            said = words
            self.query_one("#too-small", DrawnPane).show(lambda width, height: centred(said, width, height, "warn"))

    @property
    def wide(self) -> bool:
        return self.size.width >= WIDE

    @property
    def current(self) -> CheckpointPage | ComparePage | HelpPage:
        page = self.query_one(f"#{self.page}")
        assert isinstance(page, CheckpointPage | ComparePage | HelpPage)
        return page

    async def go(self, page: Page) -> None:
        """Shows `page`, and makes it first where it has never been looked at."""
        self.zoom(None)
        switcher = self.query_one("#switcher", ContentSwitcher)
        if not switcher.query(f"#{page}"):
            await switcher.add_content(_PAGES[page](self.look, id=page), set_current=False)
        self.page = page
        switcher.current = page
        self.focus_page()

    def focus_page(self) -> None:
        """The first pane of the page."""
        pane = next((pane for pane in self.current.query(LineWidget) if pane.can_focus and pane.display), None)
        if pane is not None and not self.asking:
            self.set_focus(pane, scroll_visible=False)

    def zoom(self, pane: LineWidget | None) -> None:
        """`pane` alone on the page, or all panes again. Title and footer stay."""
        self.zoomed = pane
        for other in self.current.query(LineWidget):
            other.display = pane in (None, other)
        for box in self.current.query(Container):
            box.display = pane is None or box in pane.ancestors

    # Questions.

    @property
    def dialog(self) -> Dialog | None:
        """The question that is asked now."""
        return self._dialog

    @property
    def asking(self) -> bool:
        return self._dialog is not None

    def ask(self, question: Question, answered: Callable[[str | None], None]) -> None:
        """Asks `question` over the page; one at a time."""
        if self.asking:
            return
        self._focused_before = self.focused if isinstance(self.focused, LineWidget) else None

        def done(answer: str | None) -> None:
            dialog.remove()
            self._dialog = None
            if self._focused_before is not None:
                self.set_focus(self._focused_before, scroll_visible=False)
            answered(answer)

        dialog = Dialog(self.look, question, done)
        self._dialog = dialog
        self.mount(dialog)
