"""Stage 3, Criteria: a form of limits, each with its reason, locked before the trial runs."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult

from amptui.findings.criteria import as_locked
from amptui.findings.judgement import Proposal
from amptui.project import Criteria
from amptui.report.figures import figure, short_digest
from amptui.report.told_baseline import shown
from amptui.session.state import SessionState
from amptui.ui.raster.line import Role
from amptui.ui.raster.prose import Paragraph, paragraph
from amptui.ui.raster.table import Table, TableColumn, TableRow
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.widgets.table import TablePane
from amptui.ui.widgets.text import TextPane, TextValue

COLUMNS = (
    TableColumn(title="criterion", width=24, cut="start"),
    TableColumn(title="limit", width=10, align="right"),
    TableColumn(title="from", width=8),
    TableColumn(title="reason"),
)

#: Cells from which on reasons fit into the table; the selected one always stands in full below.
_REASONS_FROM = 120
#: Where they do not, the table says what each limit is about.
NARROW = (*COLUMNS[:-1], TableColumn(title="is about"))
_ABOUT = {
    "decision_changes": "cases",
    "tie": "equal candidates",
    "quality_drop": "your own measure",
    "applied_share": "updates",
    "progress": "late loss over FP32's",
}
_MEANS = {
    "decision_changes": "How many cases may decide otherwise than FP32 did.",
    "tie": "same: where candidates tie, the FP32 choice must stand. any: each of the tied will do.",
    "quality_drop": "How far your own quality measure may fall after the stretch.",
    "applied_share": "The share of updates that must reach the weights, from the first applied one on.",
    "progress": "How far the mean loss of the last quarter may lie above the baseline's; none only shows it.",
}


def criteria_table(state: SessionState, changed: Criteria | None, width: int = _REASONS_FROM) -> Table:
    """One row a criterion, for `width` cells; `changed` holds what the user has written and not locked yet."""
    proposals = _proposals(state)
    wide = width >= _REASONS_FROM
    rows = [_row(proposal, changed, wide=wide) for proposal in proposals]
    return Table(columns=COLUMNS if wide else NARROW, rows=rows, empty="the baseline proposes them: run it first")


def _proposals(state: SessionState) -> Sequence[Proposal]:
    """Those in force, else those that wait for the lock."""
    said = state.locked or state.proposed
    return shown(said.proposals, state) if said is not None else ()


def _row(proposal: Proposal, changed: Criteria | None, *, wide: bool) -> TableRow:
    if changed is not None:
        proposal = as_locked((proposal,), changed)[0]
    origin = proposal.writer
    role: Role = "accent" if proposal.changed else "text"
    because = proposal.reason if wide else _about(proposal.name)
    was = f"proposed was {figure(proposal.proposed)}"
    reason = because if not proposal.changed else f"{was}: {because}" if wide else was
    return TableRow(
        id=proposal.name,
        values=(proposal.name.removeprefix("outputs."), figure(proposal.value), origin, reason),
        role=role,
    )


def _about(name: str) -> str:
    """What a limit is a limit of, in a few words."""
    if name in _ABOUT:
        return _ABOUT[name]
    if name.startswith("outputs.gradient."):
        return "difference's share of a norm" if name.endswith("atol") else "nothing for gradients"
    if name == "outputs.loss.atol":
        return "the loss itself"
    return "FP32's value" if name.endswith("rtol") else "the output's own unit"


def criterion_text(state: SessionState, selected: str | None) -> TextValue:
    """The selected criterion in full, then the lock."""
    paragraphs: list[Paragraph | None] = []
    proposal = next((p for p in _proposals(state) if p.name == selected), None)
    if proposal is not None:
        paragraphs.append(Paragraph([(f"{proposal.name}: ", "strong"), (meaning(proposal.name), "text")]))
        paragraphs.append(Paragraph([("Because: ", "dim"), (proposal.reason, "text")]))
    notes: list[tuple[str, Role]] = []
    locked = state.locked
    if locked is not None:
        notes.append((f"✓ locked, revision {locked.revision}", "good"))
        when = "after a trial" if locked.after_trial else "before the trial"
        text = f"Locked: revision {locked.revision}, {when} · SHA-256 {short_digest(locked.digest)}"
        paragraphs.append(paragraph(text, "good", lead="✓ ", lead_role="good"))
        if locked.reason:
            paragraphs.append(paragraph(f"Reason: {locked.reason}", "dim"))
    elif state.proposed is not None:
        notes.append(("! not locked yet", "warn"))
    return TextValue(title="the selected criterion", notes=notes, paragraphs=paragraphs)


def meaning(name: str) -> str:
    """What a criterion asks, in words."""
    if name in _MEANS:
        return _MEANS[name]
    if name == "outputs.gradient.atol":
        return "How large a layer's first gradient may differ, as a share of its norm in FP32: ‖trial − FP32‖ / ‖FP32‖."
    if name == "outputs.gradient.rtol":
        return "Bounds nothing: of gradients one share is compared, and atol bounds it."
    if name.endswith("rtol"):
        return "Allowed difference as a share of the baseline's value; it adds to atol."
    return "Allowed difference in the output's own unit; it adds to rtol × |baseline|."


class CriteriaStage(Stage):
    #: What the user has written and not locked yet.
    changed: Criteria | None = None

    def compose(self) -> ComposeResult:
        yield TablePane(self.look, id="criteria-table")
        yield TextPane(self.look, id="criteria-text")

    def show(self, shown: Shown) -> None:
        state = shown.view.state
        table = self.query_one(TablePane)
        table.show(criteria_table(state, self.changed, table.size.width or _REASONS_FROM))
        if table.view.cursor is None and _proposals(state):
            table.action_down()
        self.query_one(TextPane).show(criterion_text(state, table.view.cursor))
