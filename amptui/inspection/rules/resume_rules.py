"""Findings about resuming: skipped updates, and what an exact resume will miss."""

from __future__ import annotations

from collections.abc import Iterator

from amptui.findings.finding import Finding
from amptui.inspection.notes import fault, notice
from amptui.inspection.rules.evidence import Evidence

_SENTENCES = {
    "model": "the model's weights",
    "optimizer": "the optimizer's state",
    "scheduler": "the learning-rate scheduler",
    "scaler": "the loss scaler (needed if the run trained in FP16)",
    "rng": "RNG states",
    "rng.cuda": "the RNG state of CUDA devices",
    "data": "the position in the data",
}


def resume_findings(evidence: Evidence) -> Iterator[Finding]:
    """Skipped updates, gaps of the layout, and what is missing."""
    yield from _skips(evidence)
    for part, sentence in evidence.layout.never.items():
        if part in evidence.missing and part != "scaler":
            yield notice("never-saved", sentence, part=part)
    rest = [part for part in evidence.missing if part not in evidence.layout.never]
    if any(part != "data" for part in rest):
        what = "not in it: " + ", ".join(_SENTENCES.get(part, part) for part in rest)
        yield notice("missing", what, advice="Without these a resume is not exact.", parts=rest)
    if evidence.sightings.cut:
        yield notice("not-all-shown", "the contents are nested too deep or too many to be shown whole")


def _skips(evidence: Evidence) -> Iterator[Finding]:
    steps, layout = evidence.steps, evidence.layout
    if not steps.skipped or not steps.loop:
        return
    share = steps.skipped / steps.loop
    counted = f"{steps.skipped:,} of {steps.loop:,} updates were skipped by the scaler"
    if layout.skipped is None:
        counted = f"{steps.loop:,} loop steps, {steps.optimizer:,} optimizer steps: {steps.skipped:,} were skipped"
    if share < 0.5:
        yield notice(
            "skipped", counted, f"{share:.1%} of all", advice="A few skips are how the scaler finds its scale."
        )
    elif layout.loop_is_exact:
        why = f"{share:.0%} of all: the run hardly trained"
        advice = (
            "Gradients overflow at any scale. Find the operation (amptui run), keep it in FP32 or train in BF16; "
            "these weights are close to the initial ones."
        )
        yield fault("skipped", counted, why, advice=advice)
    else:
        why = "or the loop counts micro-batches of accumulated gradients"
        counted = f"{steps.loop:,} loop steps, but {steps.optimizer or 0:,} optimizer steps: updates were skipped"
        yield notice("skipped", counted, why, advice="Compare with the number of accumulated batches.")
