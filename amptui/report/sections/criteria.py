"""What the trial had to hold: the criteria in force, their digest, and every revision."""

from __future__ import annotations

from collections.abc import Sequence

from amptui.report.document import Block, Code, Column, Facts, Mark, Section, Table, Words
from amptui.report.figures import figure, words
from amptui.report.recorded import Recorded
from amptui.report.told_baseline import reason, shown


def criteria_section(recorded: Recorded) -> Section | None:
    state = recorded.state
    locked = state.locked
    if locked is None:
        return None
    when = "after a trial had run" if locked.after_trial else "before the trial"
    mark = Mark("warn" if locked.after_trial else "ok")
    blocks: list[Block] = [
        Facts(
            [
                (
                    "In force",
                    (mark, f"revision {locked.revision}, locked {when}"),
                ),
                ("SHA-256", Code(locked.digest)),
            ]
        )
    ]
    proposals = shown(locked.proposals, state)
    if proposals:
        lines: list[Sequence[Words]] = [
            (
                Code(proposal.name),
                figure(proposal.value),
                "the user" if proposal.writer == "you" else proposal.writer,
                words(reason(proposal)),
            )
            for proposal in proposals
        ]
        columns = (Column("Criterion"), Column("Value", number=True), Column("Written by"), Column("Why"))
        blocks.append(Table("Criteria and their reasons", columns, lines))
    blocks.append(_revisions(recorded))
    return Section("criteria", "Criteria", blocks)


def _revisions(recorded: Recorded) -> Table:
    lines: list[Sequence[Words]] = [
        (
            f"{revision.revision}",
            Code(revision.digest),
            "after a trial" if revision.after_trial else "before any trial",
            words(revision.reason) if revision.reason else "first criteria",
        )
        for revision in recorded.state.revisions
    ]
    columns = (Column("Revision"), Column("SHA-256"), Column("Locked"), Column("Reason"))
    return Table("Every revision of this session", columns, lines)
