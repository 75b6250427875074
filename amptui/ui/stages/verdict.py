"""Stage 5, Verdict: the word, the rows that decide it, the cases with their values, and what was found."""

from __future__ import annotations

from textual.app import ComposeResult

from amptui.report import told_end, told_trial, told_verdict
from amptui.report.figures import figure
from amptui.report.page import Page
from amptui.report.told_rows import of_limit
from amptui.session.state import SessionState
from amptui.ui.raster.line import Role
from amptui.ui.raster.table import Table, TableColumn, TableRow, TableView, Value
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.widgets.table import TablePane
from amptui.ui.widgets.told import ToldPane

CASE_COLUMNS = (
    TableColumn(title="case", width=18, cut="start"),
    TableColumn(title="tag", width=8),
    TableColumn(title="output"),
    TableColumn(title="off by", width=9, align="right"),
    TableColumn(title="of limit", width=9, align="right", unit=" %"),
    TableColumn(title="limit", width=9, align="right"),
    TableColumn(title="decision", width=14),
    TableColumn(title="margin", width=9, align="right"),
)


def tell_verdict_stage(page: Page, state: SessionState) -> None:
    """The verdict, or why there is none yet; a fall back after it."""
    if state.fell_back is not None:
        told_end.tell_fallback(page, state.fell_back)
        page.blank()
    if state.verdict is not None:
        cause = next((finding for finding in state.findings if finding.severity == "fault"), None)
        told_verdict.tell_verdict(page, state.verdict, state, cause=cause)
        trial = state.trial
        if trial is not None and trial.done is not None:
            page.blank()
            told_trial.tell_trial_done(page, trial.done, state, told_trial.TrialAccount())
        return
    page.line("There is no verdict yet. It follows the trial (4), which follows the locked criteria (3).")


def cases_table(state: SessionState) -> Table:
    """Each output of each case: the largest difference, how much of its limit that takes, decisions and margin."""
    rows: list[TableRow] = []
    for identity, case in state.cases.items():
        trial = case.trial
        if trial is None:
            continue
        decision = _decision(trial.baseline_decision, trial.figures.decision, trial.decision_stands)
        for difference in trial.differences:
            beyond = difference.nonfinite > 0 or not difference.measured <= difference.limit
            values: tuple[Value, ...] = (
                identity,
                trial.figures.tag,
                difference.name,
                difference.largest,
                of_limit(difference.measured, difference.limit),
                difference.limit,
                decision,
                trial.figures.margin,
            )
            role: Role = "bad" if beyond or trial.decision_stands is False else "text"
            rows.append(TableRow(id=f"{identity}\0{difference.name}", values=values, role=role))
    return Table(columns=CASE_COLUMNS, rows=rows, empty="the cases show here once the trial has run them")


def _decision(baseline: object, trial: object, stands: bool | None) -> str:
    if stands is None:
        return ""
    return figure(trial) if stands else f"{figure(baseline)} → {figure(trial)}"


class VerdictStage(Stage):
    def compose(self) -> ComposeResult:
        yield ToldPane(self.look, id="verdict-told")
        yield TablePane(self.look, view=TableView(sort=3), id="verdict-cases")

    def show(self, shown: Shown) -> None:
        state = shown.view.state
        version = (state.verdict, state.fell_back, len(state.trials))
        self.query_one(ToldPane).show("verdict", version, lambda page: tell_verdict_stage(page, state))
        self.query_one(TablePane).show(cases_table(state))
