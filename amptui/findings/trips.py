"""Why the guard held updates back: one cause per trip, known by stage and step.

Where the engine has traced the failing iteration to its first bad place, its finding takes the place of the cause made
here (see `located`).
"""

from __future__ import annotations

from collections.abc import Sequence

from amptui.findings.about_trip import (
    buffers_text,
    finding_about,
    layers_text,
    loss_text,
    lost_first,
    or_bf16,
    repeated,
    scale_in_code,
)
from amptui.findings.evidence import TrialEvidence, TripEvidence
from amptui.findings.finding import Finding, Stage
from amptui.findings.settling import settles, skips_to, updates_fail
from amptui.findings.words import counted, regions_in_code, scale_text, settling_words

#: At and below this scale 1/scale is infinite in float32, and a clean gradient becomes NaN or infinite.
DEAD_SCALE = 2.0**-128


def cause_of(evidence: TrialEvidence, trip: TripEvidence) -> Finding:
    """What held the update back: the scale alone, something that FP32 has too, or the policy's precision."""
    if settles(trip):
        return _settling(evidence, trip)
    if not trip.fp32_finite or trip.baseline_step is not None:
        return _not_precision(trip)
    if trip.outcome == "bad_loss":
        return _bad_loss(evidence, trip)
    if trip.outcome == "bad_gradient":
        return _bad_gradient(evidence, trip)
    if trip.outcome == "bad_after_unscale":
        return _bad_after_unscale(trip)
    if trip.outcome == "bad_before_step":
        return _bad_before_step(evidence, trip)
    if trip.outcome == "norm_overflow":
        return _norm_overflow(trip)
    return _bad_buffers(evidence, trip)


def _settling(evidence: TrialEvidence, trip: TripEvidence) -> Finding:
    """A skip that vanishes at a lower scale: a notice, and a fault where it took too many updates."""
    settings = evidence.policy.effective_scaler
    fitting = trip.fitting_scale or 0.0
    started = settings.init_scale if settings is not None else trip.scale
    expected = max(1, skips_to(fitting, trip.scale, settings.backoff_factor if settings is not None else 0.5))
    grown = trip.scale > started
    fails = updates_fail(evidence, trip.update)
    seen = f"the gradient of {layers_text(trip)} is infinite at scale {scale_text(trip.scale)}"
    if trip.step == 0:
        seen = f"the gradient of {layers_text(trip)} is {settling_words(trip.scale, fitting)}"
    else:
        seen += f" and finite at {scale_text(fitting)}"
    facts = [seen, f"{counted(trip.count, 'update')} skipped, {counted(expected, 'skip')} expected to reach that scale"]
    if grown:
        facts.append(f"the scale had grown from {scale_text(started)}")
    return finding_about(
        trip,
        kind="scaler",
        severity="fault" if fails else "notice",
        stage="gradient",
        evidence=tuple(facts),
        advice=_settling_advice(_holding(evidence, fitting, grown=grown), grown=grown, fails=fails),
        facts={"fitting_scale": fitting, "scale": trip.scale, "skips_expected": expected},
    )


def _holding(evidence: TrialEvidence, fitting: float, *, grown: bool) -> float:
    """The scale to start from: what fits the first skip, or what the scale came down to where it took more skips."""
    course = evidence.scaler
    if course is None or grown or any(trip.fitting_scale is None for trip in evidence.trips):
        return fitting  # a scale that fell for another reason says nothing
    return min(fitting, course.final) if course.final > 0.0 else fitting


def _settling_advice(fitting: float, *, grown: bool, fails: bool) -> str:
    start = f"Scaler(init_scale={scale_in_code(fitting)})"
    if not fails and grown:
        advice = (
            "Nothing has to change: after growth_interval clean iterations the scaler tries a larger scale, and one "
            "skip takes it back."
        )
    elif not fails:
        advice = f"Nothing has to change: the scaler lowers its scale by itself. {start} saves the skipped updates."
    elif grown:
        advice = (
            f"Keep the scale at or below {scale_text(fitting)}: a larger growth_interval (torch's default is 2000), "
            "and no scaler.step on batches without any gradient signal."
        )
    else:
        advice = f"Start with {start}, so that the first updates are applied."
    if fitting < 1.0:
        advice += (
            " A scale below 1 means gradients beyond float16's range: use BF16, or FP32 for the layers they reach."
        )
    return advice


def _not_precision(trip: TripEvidence) -> Finding:
    stages: dict[str, Stage] = {"bad_loss": "loss", "bad_buffers": "forward", "bad_before_step": "update"}
    what = {
        "bad_loss": loss_text(trip),
        "bad_buffers": buffers_text(trip),
        "norm_overflow": f"the gradient norm of {layers_text(trip)} exceeds float32",
    }.get(trip.outcome, f"the gradient of {layers_text(trip)} is not finite")
    fp32 = []
    if not trip.fp32_finite:
        fp32.append("true FP32 on the same weights and batch is not finite either")
    if trip.baseline_step is not None:
        fp32.append(f"the FP32 baseline is not finite at step {trip.baseline_step}")
    return finding_about(
        trip,
        kind="not_precision",
        stage=stages.get(trip.outcome, "gradient"),
        line=trip.loss_at if trip.outcome == "bad_loss" else None,
        fp32_ok=False,
        evidence=(what, *fp32, *repeated(trip)),
        advice="Mend this in FP32 first: look at this batch for NaN or extreme values, at the formula (a root, a "
        "division or a logarithm at zero), and at the learning rate. No dtype or loss scale helps.",
        facts={"fp32_finite": trip.fp32_finite, "baseline_step": trip.baseline_step},
    )


def _fp32_is_fine(evidence: TrialEvidence) -> str:
    return f"true FP32 is finite on the same weights and batch, {evidence.policy.dtype} is not"


def _bad_loss(evidence: TrialEvidence, trip: TripEvidence) -> Finding:
    return finding_about(
        trip,
        kind=lost_first(evidence),
        stage="loss",
        line=trip.loss_at,
        evidence=(loss_text(trip), _fp32_is_fine(evidence), *repeated(trip)),
        advice=f"Look for the first operation that {evidence.policy.dtype} cannot hold, from the loss function "
        f"backwards, and name its module in fp32_regions of the policy{or_bf16(evidence)}. No loss scale helps: it "
        "acts after the loss.",
    )


def _bad_gradient(evidence: TrialEvidence, trip: TripEvidence) -> Finding:
    """A finite loss whose gradient no scale mends: a factor of the backward pass is infinite by itself.

    In float16 that is a value rounded to zero (the root, the logarithm or the quotient behind it has an infinite
    slope there); in bfloat16, which reaches as far as float32, two values rounded to the same one.
    """
    scaled = evidence.policy.effective_scaler is not None
    scale = f"no loss scale mends it; it was met at {scale_text(trip.scale)}" if scaled else "no loss scale is in use"
    if trip.fitting_scale is not None:
        scale = f"it is finite at scale {scale_text(trip.fitting_scale)}"
    return finding_about(
        trip,
        kind="underflow" if evidence.policy.dtype == "float16" else "rounding",
        stage="gradient",
        evidence=(
            f"the loss is finite, the gradient of {layers_text(trip)} is not",
            scale,
            _fp32_is_fine(evidence),
            *repeated(trip),
        ),
        advice="Look for a square root, a division or a logarithm at a value that rounds to zero; add an eps that "
        f"{evidence.policy.dtype} can hold, or name the module around it in fp32_regions of the policy. It lies "
        f"between {layers_text(trip)} and the loss.",
    )


def _bad_after_unscale(trip: TripEvidence) -> Finding:
    scale = scale_text(trip.scale)
    why = "the scaler's own test looks before the division, and passed"
    return finding_about(
        trip,
        kind="scaler",
        stage="gradient",
        evidence=(
            f"the gradient of {layers_text(trip)} is finite while scaled and not after the division by {scale}",
            "1/scale is infinite in float32" if trip.scale <= DEAD_SCALE else why,
            *repeated(trip),
        ),
        advice="Find out why the scale fell below 1 (an earlier fault made skip after skip), mend that, and start a "
        "fresh scaler.",
    )


def _bad_before_step(evidence: TrialEvidence, trip: TripEvidence) -> Finding:
    return finding_about(
        trip,
        kind=lost_first(evidence),
        stage="update",
        evidence=(
            f"a hook of the optimizer left the gradient of {layers_text(trip)} not finite; before it, it was finite",
            *repeated(trip),
        ),
        advice="Check in the step hook that what it makes of a gradient stays finite (norms, noise, divisions).",
    )


def _norm_overflow(trip: TripEvidence) -> Finding:
    return finding_about(
        trip,
        kind="overflow",
        stage="gradient",
        evidence=(f"every gradient is finite, the norm of {layers_text(trip)} exceeds float32", *repeated(trip)),
        advice="Look for what makes gradients of 1e19 and more (a division by nearly zero, a missing mean). Clipping "
        "by this norm would turn the whole gradient into zeros.",
    )


def _bad_buffers(evidence: TrialEvidence, trip: TripEvidence) -> Finding:
    return finding_about(
        trip,
        kind=lost_first(evidence),
        stage="forward",
        evidence=(buffers_text(trip), "loss and gradients are finite", _fp32_is_fine(evidence), *repeated(trip)),
        advice=_buffers_advice(trip.buffers or trip.bad, or_bf16(evidence)),
    )


def _buffers_advice(buffers: Sequence[str], or_another: str) -> str:
    modules = list(dict.fromkeys(module for name in buffers if (module := name.rpartition(".")[0])))
    if not modules:
        return f"Look at what is written into this buffer: cast it to float32 before that line{or_another}."
    fills = "the module that fills this buffer" if len(modules) == 1 else "the modules that fill these buffers"
    return f"Run {fills} in FP32: {regions_in_code(modules)}{or_another}."
