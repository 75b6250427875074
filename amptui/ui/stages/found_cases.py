"""Inputs found in the batches that are worth being a case: a table, the selected one in full, how to take them over."""

from __future__ import annotations

from textual.app import ComposeResult

from amptui.protocol.measuring import CasesFound, FoundCase
from amptui.report.figures import figure, name, words
from amptui.report.told_cases import code_lines
from amptui.session.state import SessionState
from amptui.ui.raster.prose import Paragraph, paragraph
from amptui.ui.raster.table import Table, TableColumn, TableRow
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.widgets.table import TablePane
from amptui.ui.widgets.text import TextPane, TextValue

COLUMNS = (
    TableColumn(title="case", width=18),
    TableColumn(title="tag", width=8),
    TableColumn(title="why"),
    TableColumn(title="batch", width=5, align="right"),
    TableColumn(title="sample", width=6, align="right"),
    TableColumn(title="margin", width=9, align="right", digits=4),
)


def found_table(state: SessionState) -> Table:
    found = state.found_cases.found if state.found_cases is not None else ()
    rows = [
        TableRow(
            id=case.id,
            values=(name(case.id), case.tag, _briefly(case), case.batch, case.sample, case.margin),
        )
        for case in found
    ]
    looking = state.stages.get("measure") == "running"
    return Table(columns=COLUMNS, rows=rows, empty="looking through the batches …" if looking else "none was found")


def found_text(event: CasesFound | None, selected: str | None) -> TextValue:
    """The selected case, what could not be looked for, and the code that takes the cases over."""
    title = "the selected case"
    if event is None:
        return TextValue(title=title)
    told: list[Paragraph | None] = []
    if event.path is not None and event.found:
        title = "to take them over, in your project"
        told += [Paragraph(((line, "strong"),), literal=True) for line in code_lines(event.path)]
        told.append(None)
    case = next((case for case in event.found if case.id == selected), None)
    if case is not None:
        told.append(_in_full(case))
    told += [paragraph(words(remark), "dim", lead="! ", lead_role="warn") for remark in event.remarks]
    return TextValue(title=title, paragraphs=told)


def _briefly(case: FoundCase) -> str:
    """The reason in 22 cells; in full it stands below the table."""
    if case.tag == "boundary":
        return "near another decision"
    brief = {
        "largest-activation": f"reaches {figure(case.largest)}",
        "longest": "the longest input",
        "shortest": "the shortest input",
        "empty": "all numbers are zero",
        "fully-masked": "everything is masked",
    }
    return brief.get(case.id, words(case.why))


def _in_full(case: FoundCase) -> Paragraph:
    where = "made, not from the batches"
    if case.batch is not None:
        where = f"batch {case.batch}, sample {case.sample}"
    decided = f"; decides {figure(case.decision)}" if case.decision is not None else ""
    margin = f" with a margin of {figure(case.margin)}" if case.margin is not None else ""
    return Paragraph([(f"{name(case.id)}: ", "strong"), (f"{words(case.why)}. {where}{decided}{margin}", "text")])


class _FoundText(TextPane):
    """Copying takes the lines of code once there are any."""

    code = ""

    def copy_text(self) -> str:
        return self.code or super().copy_text()


class FoundCasesPage(Stage):
    def compose(self) -> ComposeResult:
        yield TablePane(self.look, id="cases-table")
        yield _FoundText(self.look, id="cases-text")

    def show(self, shown: Shown) -> None:
        state = shown.view.state
        event = state.found_cases
        table = self.query_one(TablePane)
        table.show(found_table(state))
        if table.view.cursor is None and event is not None and event.found:
            table.action_down()
        text = self.query_one(_FoundText)
        text.code = "\n".join(code_lines(event.path)) if event is not None and event.path is not None else ""
        text.show(found_text(event, table.view.cursor))
