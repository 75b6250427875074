"""What is known about the update that the guard holds back: what was not finite, where, and whether FP32 has it too."""

from __future__ import annotations

import math

from textual.app import ComposeResult

from amptui.findings.words import scale_text
from amptui.report import told_verdict
from amptui.report.figures import figure, name, words
from amptui.report.page import Page
from amptui.session.state import SessionState
from amptui.ui.session_view import SessionView
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.widgets.told import ToldPane


def tell_diagnosis(page: Page, view: SessionView) -> None:
    """The last trip beside the baseline's same iteration; the findings once there is a verdict."""
    state = view.state
    trial = state.trial
    if trial is None or not trial.trips:
        page.line("The guard has held no update back in this trial.")
        return
    tripped = trial.trips[-1]
    record = tripped.record
    page.marked(
        "skipped" if record.skipped else "withheld", (f"step {record.step:,}, update {name(record.update)}", "bold")
    )
    page.line(words(tripped.words), indent=4)
    page.blank()
    page.field("outcome", record.outcome.replace("_", " "))
    page.field("loss", figure(record.loss))
    page.field("norm", figure(record.norm))
    page.field("loss scale", scale_text(record.scale))
    for number, place in enumerate(record.bad[:20]):
        page.field("" if number else "not finite", name(place))
    if len(record.bad) > 20:
        page.field("", f"and {len(record.bad) - 20:,} more")
    page.field("in FP32", _fp32(view, record.update, record.step))
    if tripped.retained is not None:
        page.field("kept as", name(tripped.retained))
    _tell_findings(page, state)


def _fp32(view: SessionView, update: str, step: int) -> str:
    norms = view.update(update, view.baseline).layer_norms.get(step)
    if norms is None:
        return "the baseline did not run this iteration"
    finite = all(math.isfinite(norm) for norm in norms)
    return (
        "the same iteration is finite" if finite else "the same iteration is not finite either: look at data and loss"
    )


def _tell_findings(page: Page, state: SessionState) -> None:
    if state.verdict is None:
        page.blank()
        page.line("The findings, with module, operator and source line, come with the verdict.")
        return
    for finding in state.findings:
        page.blank()
        told_verdict.tell_finding(page, finding)


class DiagnosisStage(Stage):
    def compose(self) -> ComposeResult:
        yield ToldPane(self.look, id="diagnosis-told")

    def show(self, shown: Shown) -> None:
        view = shown.view
        trial = view.state.trial
        version = (trial.trips if trial is not None else None, view.state.verdict)
        self.query_one(ToldPane).show("what is known", version, lambda page: tell_diagnosis(page, view))
