"""A finding about one trip of the guard, and the phrases that name what was bad in it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from amptui.findings.evidence import TrialEvidence, TripEvidence
from amptui.findings.finding import Finding, Kind, Severity, Stage
from amptui.findings.words import counted, listed, micro_batches


def finding_about(
    trip: TripEvidence,
    *,
    kind: Kind,
    stage: Stage,
    evidence: tuple[str, ...],
    advice: str,
    severity: Severity = "fault",
    fp32_ok: bool = True,
    module: str = "",
    line: str | None = None,
    facts: Mapping[str, object] | None = None,
) -> Finding:
    """A finding with the step and update of `trip`; its outcome, count and retained case are among the facts."""
    known: dict[str, object] = {"outcome": trip.outcome, "count": trip.count, "last_step": trip.last_step}
    if trip.retained is not None:
        known["retained"] = trip.retained
    return Finding(
        kind=kind,
        severity=severity,
        stage=stage,
        step=trip.step,
        update=trip.update,
        module=module,
        line=line,
        fp32_ok=fp32_ok,
        evidence=evidence,
        advice=advice,
        facts={**known, **(facts or {})},
    )


def lost_first(evidence: TrialEvidence) -> Kind:
    """What goes wrong first in the policy's dtype where FP32 is fine: float16 lacks range, bfloat16 lacks digits."""
    return "overflow" if evidence.policy.dtype == "float16" else "rounding"


def bad_layers(trip: TripEvidence) -> tuple[str, ...]:
    """The parameters among what was bad."""
    beside = {*micro_batches(trip.bad), *trip.buffers}
    return tuple(name for name in trip.bad if name not in beside)


def layers_text(trip: TripEvidence) -> str:
    return listed(bad_layers(trip)) or f"update {listed([trip.update])}"


def buffers_text(trip: TripEvidence) -> str:
    names = trip.buffers or trip.bad
    return f"{listed(names) or 'a buffer'} {'are' if len(names) > 1 else 'is'} not finite after the forward pass"


def loss_text(trip: TripEvidence) -> str:
    """The loss, and the micro-batches it comes from where the window has several."""
    values = micro_batches(trip.bad)
    which = f" in {listed(values)}" if values and values != ("micro-batch 0",) else ""
    return f"the loss is {trip.loss:.4g}{which}"


def repeated(trip: TripEvidence) -> tuple[str, ...]:
    if trip.count < 2:
        return ()
    return (f"the same in {counted(trip.count, 'iteration')}, last at step {trip.last_step}",)


def or_bf16(evidence: TrialEvidence) -> str:
    return ", or use BF16" if evidence.policy.dtype == "float16" else ""


def scale_in_code(scale: float) -> str:
    """A scale as one writes it in Python: 16384.0, 2.0**-5."""
    mantissa, exponent = math.frexp(scale)
    return f"2.0**{exponent - 1}" if mantissa == 0.5 and scale < 1.0 else repr(scale)
