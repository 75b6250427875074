"""Two pages to read: everything that happened, and what the project's own code printed."""

from __future__ import annotations

from textual.app import ComposeResult

from amptui.report.figures import name
from amptui.session.state import SessionState
from amptui.ui.raster.log import Entry
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.widgets.log import LogPane, LogValue


def output_entries(state: SessionState) -> list[Entry]:
    """What was printed, errors marked; after an engine's death the last lines that it left."""
    entries = [Entry(line.text, "warn" if line.stream == "stderr" else "text") for line in state.output]
    if state.death is not None:
        entries.append(Entry(f"the engine ended ({name(state.death.how)}); the last lines that it left:", "bad"))
        entries += [Entry(line, "warn") for line in state.death.last_output]
    return entries


class OutputPage(Stage):
    def compose(self) -> ComposeResult:
        yield LogPane(self.look, id="output-log")

    def show(self, shown: Shown) -> None:
        state = shown.view.state
        entries = output_entries(state) or [Entry("the project has printed nothing", "dim")]
        title = "output   what your project printed"
        self.query_one(LogPane).show(LogValue(title=title, entries=entries, total=state.output_lines))


class EventsPage(Stage):
    def compose(self) -> ComposeResult:
        yield LogPane(self.look, id="events-log")

    def show(self, shown: Shown) -> None:
        view = shown.view
        self.query_one(LogPane).show(LogValue(title="events", entries=list(view.entries), total=view.entries_total))
