"""Stage 6, Measure: what the runs so far say about time and memory."""

from __future__ import annotations

from textual.app import ComposeResult

from amptui.report.figures import duration, size
from amptui.report.page import Page
from amptui.session.state import RunState, SessionState
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.widgets.told import ToldPane


def tell_measure_stage(page: Page, state: SessionState) -> None:
    """The guarded runs' own figures, said to be no benchmark."""
    baseline, trial = state.baseline, state.trial
    if baseline is None or trial is None or trial.done is None:
        page.line("Time and memory of both runs show here after a trial.")
        return
    page.field("FP32", _run(baseline.seconds, state.baseline_run))
    page.field("trial", _run(trial.done.seconds, trial.run))
    page.blank()
    page.marked(
        "warn",
        "These are the guarded runs, one after the other, with every update checked: a first impression, no benchmark. "
        "Time the plain loop on your own hardware before you adopt a half type for speed.",
    )


def _run(seconds: float, run: RunState) -> str:
    parts = [duration(seconds)]
    if run.last is not None:
        parts.append(f"last iteration {duration(run.last.seconds)}")
        if run.last.memory:
            parts.append(f"{size(run.last.memory)} in use")
    return " · ".join(parts)


class MeasureStage(Stage):
    def compose(self) -> ComposeResult:
        yield ToldPane(self.look, id="measure-told")

    def show(self, shown: Shown) -> None:
        state = shown.view.state
        trial = state.trial
        version = (state.baseline, trial.done if trial is not None else None)
        self.query_one(ToldPane).show(
            "measure   time and memory", version, lambda page: tell_measure_stage(page, state)
        )
