"""Stage 4, Trial: the guarded run, live; stepped by phase, by iteration, or run to a condition."""

from __future__ import annotations

from textual.app import ComposeResult

from amptui.protocol.facts import UpdateFacts
from amptui.ui.raster.log import Entry
from amptui.ui.raster.table import TableView
from amptui.ui.stages.iteration_pane import iteration_text
from amptui.ui.stages.layers import layers_table
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.stages.trial_plots import loss_plot, norm_plot, scale_plot, updates_timeline
from amptui.ui.widgets.log import LogPane, LogValue
from amptui.ui.widgets.plot import PlotPane
from amptui.ui.widgets.table import TablePane
from amptui.ui.widgets.text import TextPane
from amptui.ui.widgets.timeline import TimelinePane


class TrialStage(Stage):
    def compose(self) -> ComposeResult:
        yield PlotPane(self.look, id="loss")
        yield PlotPane(self.look, id="norm")
        yield PlotPane(self.look, id="scale")
        yield TimelinePane(self.look, id="updates")
        yield TextPane(self.look, id="iteration")
        yield LogPane(self.look, id="trial-events")
        yield TablePane(self.look, title="layers by norm", view=TableView(sort=1), id="layers")

    def show(self, shown: Shown) -> None:
        view, glyphs = shown.view, self.look.glyphs
        facts = self._facts(shown)
        self.query_one("#loss", PlotPane).show(loss_plot(view, shown.update, glyphs))
        self.query_one("#norm", PlotPane).show(norm_plot(view, shown.update, facts))
        self.query_one("#scale", PlotPane).show(scale_plot(view))
        self.query_one(TimelinePane).show(updates_timeline(view, shown.update, glyphs))
        self.query_one("#iteration", TextPane).show(iteration_text(shown, glyphs))
        self.query_one(TablePane).show(layers_table(view, facts))
        log = self.query_one(LogPane)
        if log.display:
            entries: list[Entry] = list(view.entries)
            log.show(LogValue(title="events", entries=entries, total=view.entries_total))

    def _facts(self, shown: Shown) -> UpdateFacts | None:
        project = shown.view.state.project
        updates = project.updates if project is not None else ()
        return next((facts for facts in updates if facts.name == shown.update), None)
