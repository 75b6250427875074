"""The training stretch: its plots, and what became of every update."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from amptui.findings.judgement import UpdateCounts
from amptui.protocol.facts import UpdateFacts
from amptui.report.document import Block, Column, Figure, Paragraph, Section, Table, Words
from amptui.report.figures import name
from amptui.report.plots import Curve, Lines, Strip, Strips, fitting_scale
from amptui.report.recorded import TAKEN, Recorded, RunCurves, UpdateCurves

_TRIAL, _FP32 = "trial", "FP32 baseline"


def stretch_section(recorded: Recorded) -> Section | None:
    trial = recorded.curves
    if trial is None or not trial.updates:
        return None
    facts = {update.name: update for update in recorded.state.project.updates} if recorded.state.project else {}
    blocks: list[Block] = [
        Paragraph(
            "Baseline and trial ran the same batches in the same order from the same weights and random numbers. "
            "Norms are those of the unscaled gradient, before clipping."
        )
    ]
    for update, curves in trial.updates.items():
        blocks += _update_plots(update, curves, recorded.baseline.updates.get(update), facts.get(update))
    blocks += _shared_plots(trial)
    counts = recorded.trial.run.counts if recorded.trial is not None else {}
    if counts:
        blocks.append(_counts(list(counts.values())))
    return Section("stretch", "Training stretch", blocks)


def _update_plots(
    update: str, trial: UpdateCurves, baseline: UpdateCurves | None, facts: UpdateFacts | None
) -> Iterator[Figure]:
    losses = [Curve(_TRIAL, trial.steps, trial.losses)]
    norms = [Curve(_TRIAL, trial.steps, trial.norms)]
    if baseline is not None:
        losses.append(Curve(_FP32, baseline.steps, baseline.losses, faint=True))
        norms.append(Curve(_FP32, baseline.steps, baseline.norms, faint=True))
    yield Figure(Lines(f"Loss of {name(update)}", fitting_scale(losses), losses))
    limit = ("limit of clipping", facts.clip_norm) if facts is not None and facts.clip_norm is not None else None
    yield Figure(Lines(f"Gradient norm of {name(update)}", fitting_scale(norms), norms, limit=limit))


def _shared_plots(trial: RunCurves) -> Iterator[Figure]:
    if trial.steps:
        scale = Curve("loss scale", trial.steps, trial.scales)
        yield Figure(Lines("Loss scale of the trial", "log2", [scale], stairs=True))
    strips = [
        Strip(name(update), curves.steps, [TAKEN[taken] for taken in curves.taken])
        for update, curves in trial.updates.items()
    ]
    yield Figure(Strips("Updates of the trial", strips))


def _counts(counts: Sequence[UpdateCounts]) -> Table:
    lines: list[Sequence[Words]] = [
        (
            name(count.name),
            f"{count.iterations:,}",
            f"{count.applied:,}",
            f"{count.skipped:,}",
            f"{count.withheld:,}",
            f"{count.without_gradient:,}",
            f"{count.changed:,}",
            f"{count.first_applied:,}" if count.first_applied is not None else "never",
        )
        for count in counts
    ]
    columns = (
        Column("Update"),
        Column("Iterations", number=True),
        Column("Applied", number=True),
        Column("Skipped", number=True),
        Column("Withheld", number=True),
        Column("No gradient", number=True),
        Column("Changed weights", number=True),
        Column("First applied", number=True),
    )
    note = (
        "Skipped: not taken by the loss scaler's rule. Withheld: held back by the guard where the plain loop would "
        "have written what is not finite."
    )
    return Table("What became of every update", columns, lines, note)
