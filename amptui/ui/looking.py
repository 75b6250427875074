"""What is looked at: pages over pages, panes, and the failure in question. Nothing here reaches the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amptui.ui import clipboard
from amptui.ui.dialogs import questions
from amptui.ui.known_failures import KnownFailure, first_to_show, known_failures
from amptui.ui.pages import STAGES, Page
from amptui.ui.widgets.lines import LineWidget
from amptui.ui.widgets.table import TablePane

if TYPE_CHECKING:
    from amptui.ui.desk import Desk


class Looking:
    """The keys that only change what is seen."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._app = desk.app
        self._main = desk.app.main
        #: The pages under the one that is looked at, where that is no stage.
        self._under: list[Page] = []
        #: The page that the explanation was asked for on.
        self._explained_on: Page = "project"

    def next_pane(self) -> None:
        self._main.focus_next()

    def previous_pane(self) -> None:
        self._main.focus_previous()

    def zoom(self) -> None:
        if self._main.maximized is not None:
            self._main.minimize()
        elif self._main.focused is not None:
            self._main.maximize(self._main.focused)
        self._desk.repaint()

    def explain(self) -> None:
        self._main.explains = not self._main.explains
        self._explained_on = self._main.page
        self._app.call_after_refresh(self._desk.repaint)

    def filter(self) -> None:
        tables = [pane for pane in self._main.current.query(TablePane) if pane.display]
        table = next((pane for pane in tables if pane.has_focus), tables[0] if tables else None)
        if table is not None:
            self._desk.ask(questions.filter_text(table.view.filter), table.filter_by)

    def _lift_filters(self) -> bool:
        """Shows all rows again; whether any were filtered out of sight."""
        filtered = [table for table in self._main.current.query(TablePane) if table.display and table.view.filter]
        for table in filtered:
            table.filter_by("")
        return bool(filtered)

    async def copy(self) -> None:
        pane, driver = self._main.focused, self._app._driver
        if isinstance(pane, LineWidget) and driver is not None:
            copied = await clipboard.copy(pane.copy_text(), self._app.start.folder.path, write=driver.write)
            self._app.notify(copied.sentence, markup=False)

    def help(self) -> None:
        about = self._desk.situation

        def tell() -> None:
            page = self._main.current
            page.about, page.keys = about, tuple(self._app.start.keys)  # type: ignore[attr-defined]

        if self._main.page != "help":
            self._desk.go("help", tell)

    # The failure in question.

    @property
    def failure(self) -> KnownFailure | None:
        """The failure on the diagnosis page, if one looks at it."""
        if self._main.page != "diagnosis":
            return None
        failures = known_failures(self._desk.state)
        chosen: int = self._main.current.chosen  # type: ignore[attr-defined]
        return failures[chosen] if chosen < len(failures) else None

    @property
    def line(self) -> str | None:
        """`file:line` of the failure on the diagnosis page."""
        findings = self.failure.findings if self.failure is not None else ()
        return next((finding.line for finding in findings if finding.line), None)

    def diagnose(self) -> None:
        """`d`: the failure in question; on the diagnosis itself, the next one."""
        failures = known_failures(self._desk.state)
        if self._main.page == "diagnosis":
            stage = self._main.current
            stage.chosen = (stage.chosen + 1) % max(len(failures), 1)  # type: ignore[attr-defined]
            self._desk.repaint()
        else:
            self._show_failure(first_to_show(self._desk.state, failures, self._case_under_cursor()))

    def diagnose_retained(self, retained: str) -> None:
        """The failure that was kept under the id `retained`, if it is known."""
        for number, failure in enumerate(known_failures(self._desk.state)):
            if failure.retained == retained:
                self._show_failure(number)
                return

    def _show_failure(self, chosen: int) -> None:
        """Shows what is known of failure number `chosen`."""

        def choose() -> None:
            self._main.current.chosen = chosen  # type: ignore[attr-defined]

        self._desk.go("diagnosis", choose)

    def _case_under_cursor(self) -> str | None:
        """The evaluation case of the verdict's row that the cursor is on."""
        if self._main.page != "verdict":
            return None
        row = self._main.current.query_one("#verdict-cases", TablePane).selected
        return row.id.partition("\0")[0] if row is not None else None

    # Back.

    def remember(self, page: Page) -> None:
        """What lies under `page`, which is gone to now: nothing under a stage, no page twice."""
        here, under = self._main.page, self._under
        if page in STAGES:
            under.clear()
        elif page in under:
            del under[under.index(page) :]
        elif page != here:
            under.append(here)

    def back(self) -> bool:
        """Out of a zoom, the explanation, a filter, a page that is no stage; whether there was anything of these."""
        page = self._main.page
        if self._main.maximized is not None:
            self.zoom()
        elif self._main.explains and (page in STAGES or page == self._explained_on):
            self.explain()
        elif self._lift_filters():
            self._desk.repaint()
        elif page not in STAGES:
            self._desk.go(self._under.pop() if self._under else self._desk.state.stage or "project", back=True)
        else:
            return False
        return True
