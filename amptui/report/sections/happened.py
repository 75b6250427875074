"""What happened on the way: interventions, failures of the project's code, retained cases, fallbacks."""

from __future__ import annotations

from collections.abc import Sequence

from amptui.protocol.events import CaseReplayed, CaseRetained, CodeFailed, FellBack
from amptui.report.document import Block, Bullets, Code, Column, Mark, Paragraph, Section, Table, Words
from amptui.report.figures import name, place, size, words
from amptui.report.recorded import Recorded
from amptui.text import shell_word

_FAILURES = 20


def happened_section(recorded: Recorded) -> Section:
    state = recorded.state
    blocks: list[Block] = []
    interventions = recorded.trial.interventions if recorded.trial is not None else ()
    if interventions:
        blocks.append(Paragraph((Mark("warn"), "Interventions in the trial, which mark its verdict:")))
        blocks.append(Bullets([f"iteration {event.step:,}: {words(event.what)}" for event in interventions]))
    if state.failures:
        blocks.append(Paragraph((Mark("fail"), "The project's own code raised:")))
        blocks.append(Bullets([_failure(event) for event in state.failures[:_FAILURES]]))
        if len(state.failures) > _FAILURES:
            blocks.append(Paragraph(f"And {len(state.failures) - _FAILURES:,} more times."))
    if state.remarks:
        blocks.append(Paragraph("Remarks before anything ran:"))
        blocks.append(Bullets([_remark(event.message, event.where, event.advice) for event in state.remarks]))
    if state.retained:
        blocks.append(_retained(state.retained))
    if state.replayed:
        blocks.append(Bullets([_replayed(event) for event in state.replayed]))
    blocks.append(_fallbacks(recorded.fallbacks))
    if state.checkpoints:
        command = f"amptui restore {shell_word(recorded.found_by or recorded.session)} -o fp32.pt"
        blocks.append(Paragraph(("The FP32 checkpoint, every bit verified, as a file: ", Code(command))))
    return Section("happened", "Retained cases, fallbacks, interventions", blocks)


def _failure(event: CodeFailed) -> Words:
    when = f" in case {name(event.case)}" if event.case is not None else ""
    when = f" at iteration {event.step:,}" if not when and event.step is not None else when
    under = "under the policy" if event.under == "trial" else "in FP32"
    where: Words = (" at ", Code(place(event.where))) if event.where else ()
    return (f"{under}{when}: {name(event.exception)}: {words(event.message)}", *where)  # type: ignore[misc]


def _remark(message: str, where: str | None, advice: str) -> Words:
    at: tuple[str | Code, ...] = (" (", Code(place(where)), ")") if where else ()
    return (words(message), *at, f" {words(advice)}" if advice else "")


def _retained(retained: Sequence[CaseRetained]) -> Table:
    lines: list[Sequence[Words]] = [
        (
            Code(kept.id),
            f"iteration {kept.step:,}" if kept.step is not None else f"case {name(kept.case)}",
            name(kept.update or ""),
            kept.outcome.replace("_", " "),
            size(kept.bytes),
            Code(kept.path),
        )
        for kept in retained
    ]
    columns = (
        Column("Retained case"),
        Column("From"),
        Column("Update"),
        Column("What was wrong"),
        Column("Size", number=True),
        Column("File"),
    )
    note = "Each one replays its failing iteration: batch, random state, buffers, reference to the weights, policy."
    return Table("Failing iterations that were kept", columns, lines, note)


def _replayed(event: CaseReplayed) -> Words:
    outcomes = {"fixed": "everything is finite now", "same": "fails where it did", "other_place": "fails elsewhere"}
    return ("Replayed later: ", Code(event.id), f" {outcomes[event.outcome]} ({words(event.replayed)})")


def _fallbacks(fallbacks: Sequence[FellBack]) -> Block:
    if not fallbacks:
        return Paragraph("Nobody fell back to the FP32 checkpoint.")
    return Bullets(
        [
            f"Fell back to checkpoint {name(event.checkpoint)}: {event.verified:,} tensors compared afterwards, "
            f"{'equal bit for bit' if event.proven else 'restored, but “bit for bit” is not proven'}"
            for event in fallbacks
        ]
    )
