"""What a trip leaves behind: poisoned buffers, weights that a plain loop would have ruined, a collapsed scale."""

from __future__ import annotations

from collections.abc import Iterator

from amptui.findings.about_trip import bad_layers, finding_about, layers_text
from amptui.findings.evidence import TrialEvidence, TripEvidence
from amptui.findings.finding import Finding
from amptui.findings.settling import settles
from amptui.findings.trips import DEAD_SCALE
from amptui.findings.words import listed, scale_text

#: A scale that fell that far below its start, and below 1, has collapsed: no healthy run gets there.
COLLAPSE = 2.0**-16


def consequences_of(evidence: TrialEvidence, trip: TripEvidence, cause: Finding) -> Iterator[Finding]:
    """Each lasting consequence as a finding of its own, with the cause's step and FP32 fact."""
    fp32_ok = cause.fp32_ok is True
    if trip.buffers:
        yield _buffers(evidence, trip, fp32_ok)
    if _would_write_weights(trip):
        yield finding_about(
            trip,
            kind="state_damage",
            stage="weights",
            fp32_ok=fp32_ok,
            evidence=(
                f"the plain loop would have written the gradient of {layers_text(trip)} into the weights",
                "the guard held the step back: here they are untouched",
            ),
            advice="Take the step only where the gradient norm is finite: if torch.isfinite(norm): optimizer.step(). "
            "Then mend the cause.",
        )
    if trip.found_inf and not settles(trip):
        yield from _collapse(evidence, trip, fp32_ok)


def _buffers(evidence: TrialEvidence, trip: TripEvidence, fp32_ok: bool) -> Finding:
    rolled_back = evidence.policy.buffers == "rollback"
    are = "are" if len(trip.buffers) > 1 else "is"
    changed = "the forward pass had already changed the buffers when the update was held back"
    restore = (
        "Restore buffers when an update is skipped: Policy(buffers='rollback') does, and so does the code to paste."
    )
    return finding_about(
        trip,
        kind="state_damage",
        severity="notice" if rolled_back else "fault",
        stage="buffer",
        module=_owner(trip.buffers),
        fp32_ok=fp32_ok,
        evidence=(
            f"{listed(trip.buffers)} {are} not finite although the update was not taken",
            "put back, as the policy's buffers='rollback' says" if rolled_back else changed,
        ),
        advice="The buffers need nothing more; mend the cause." if rolled_back else f"{restore} Then mend the cause.",
        facts={"buffers": trip.buffers},
    )


def _would_write_weights(trip: TripEvidence) -> bool:
    """Whether the guard, not the scaler's rule, held back a gradient that is itself not finite."""
    if trip.found_inf:
        return False
    if trip.outcome == "bad_loss":  # a NaN loss can have a finite gradient: then the plain loop writes nothing bad
        return bool(bad_layers(trip))
    return trip.outcome in ("bad_gradient", "bad_after_unscale", "bad_before_step")


def _collapse(evidence: TrialEvidence, trip: TripEvidence, fp32_ok: bool) -> Iterator[Finding]:
    course = evidence.scaler
    if course is None or not course.lowest < min(1.0, course.initial * COLLAPSE):
        return
    dead = course.lowest <= DEAD_SCALE
    yield finding_about(
        trip,
        kind="scaler",
        stage="scaler",
        fp32_ok=fp32_ok,
        evidence=(
            f"the scale fell from {scale_text(course.initial)} to {scale_text(course.lowest)}",
            "at that scale a clean batch writes NaN" if dead else "lowering it did not help",
        ),
        advice="Mend the cause. A scale that has fallen this far needs a fresh scaler afterwards.",
    )


def _owner(names: tuple[str, ...]) -> str:
    """The module that holds all these buffers, "" where there is no single one."""
    owners = {name.rpartition(".")[0] for name in names}
    return owners.pop() if len(owners) == 1 else ""
