"""The accepted policy as code to paste."""

from __future__ import annotations

from amptui.report.document import Block, Listing, Paragraph, Section
from amptui.report.paste.plan import plan_of
from amptui.report.paste.program import training_code
from amptui.report.recorded import Recorded
from amptui.report.sections.head import scale_hint


def pasted_section(recorded: Recorded) -> Section | None:
    """None where there is no verdict or no training step."""
    project = recorded.state.project
    if recorded.verdict is None or project is None or not project.updates:
        return None
    return Section("code", "Code to paste", _blocks(recorded))


def _blocks(recorded: Recorded) -> list[Block]:
    verdict = recorded.verdict
    code = accepted_code(recorded)
    if verdict is None or code is None:
        return [Paragraph("There is none: this policy was not accepted. See the findings for what mends it.")]
    blocks: list[Block] = [
        Paragraph(
            "Plain PyTorch for your own loop, without amptui. Your losses, optimizers and schedulers stay as they are."
        )
    ]
    if not verdict.interventions and not any(counts.withheld for counts in verdict.counts):
        blocks.append(
            Paragraph(
                "On the trial's batches and random numbers it gives the trial's weights, buffers, optimizer state and "
                "loss scale bit for bit."
            )
        )
    scaler = verdict.scaler
    if scaler is not None and scaler.final < scaler.initial:
        blocks.append(Paragraph(scale_hint(scaler.initial, scaler.final)))
    return [*blocks, Listing(code, "python", "A training step under the accepted policy")]


def accepted_code(recorded: Recorded) -> str | None:
    """The code for the trial's policy; None unless it was accepted and has a training step."""
    project, policy, reached, curves = recorded.state.project, recorded.policy, recorded.verdict, recorded.curves
    if reached is None or reached.verdict != "accept" or project is None or policy is None:
        return None
    runs = [run.updates for run in (recorded.baseline, curves) if run is not None]
    plan = plan_of(
        project,
        policy,
        mapped=[name for run in runs for name, update in run.items() if update.mapped_loss],
        idle=[counts.name for counts in reached.counts if counts.without_gradient],
    )
    if plan is None:
        return None
    return training_code(plan, made_from=f"session {recorded.session}, trial {reached.trial}")
