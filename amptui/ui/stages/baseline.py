"""Stage 2, Baseline: the project in true FP32, which the trial is held against."""

from __future__ import annotations

from textual.app import ComposeResult

from amptui.report import told_baseline, told_measure
from amptui.report.page import Page
from amptui.session.state import SessionState
from amptui.ui.raster.plot import Trace
from amptui.ui.session_view import SessionView
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.widgets.plot import PlotPane, PlotValue
from amptui.ui.widgets.told import ToldPane


def tell_baseline_stage(page: Page, state: SessionState) -> None:
    """Repeatability, noise, decisions, quality, what they foretell; how far it has come where it still runs."""
    if state.repeat is None and state.baseline is None:
        run = state.stages.get("baseline")
        page.field(
            "baseline", "running" if run == "running" else "ended early" if run == "cancelled" else "not run yet"
        )
    if state.repeat is not None:
        told_baseline.tell_repeat(page, state.repeat)
    if state.baseline is not None:
        told_baseline.tell_baseline(page, state.baseline, state)
    if state.forecast is not None:
        page.blank()
        told_measure.tell_forecast(page, state.forecast)


def baseline_plots(view: SessionView, update: str) -> tuple[PlotValue, PlotValue]:
    """Loss and gradient norm of `update` over the steps of the stretch."""
    history = view.update(update, view.baseline)
    project = view.state.project
    last = max((project.iterations if project else 1) - 1, 0)
    name = f" · {update}" if len(view.update_names) > 1 else ""
    return (
        PlotValue(title=f"loss{name}", traces=[Trace(source=history.loss, role="trial")], last=last),
        PlotValue(title=f"gradient norm{name}", traces=[Trace(source=history.norm, role="trial")], last=last),
    )


class BaselineStage(Stage):
    def compose(self) -> ComposeResult:
        yield PlotPane(self.look, id="baseline-loss")
        yield PlotPane(self.look, id="baseline-norm")
        yield ToldPane(self.look, id="baseline-told")

    def show(self, shown: Shown) -> None:
        state = shown.view.state
        loss, norm = baseline_plots(shown.view, shown.update)
        self.query_one("#baseline-loss", PlotPane).show(loss)
        self.query_one("#baseline-norm", PlotPane).show(norm)
        version = (state.stages.get("baseline"), state.repeat, state.baseline, state.forecast)
        self.query_one(ToldPane).show(
            "baseline   the same code in true FP32", version, lambda page: tell_baseline_stage(page, state)
        )
