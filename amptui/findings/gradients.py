"""What no trip shows: gradients that are zero or missing, numbers of iteration 0, a baseline that broke by itself."""

from __future__ import annotations

import math
from collections.abc import Iterator

from amptui.findings.evidence import SilentLayers, TensorDifference, TrialEvidence
from amptui.findings.finding import Finding
from amptui.findings.judgement import ScaleCourse, UpdateCounts
from amptui.findings.settling import counts_of, settles
from amptui.findings.words import counted, listed, number, regions_in_code, scale_text
from amptui.text import safe_text

#: A scale below this is low: gradients that it leaves at zero would show at torch's default of 2^16.
LOW_SCALE = 2.0**10


def zero_gradients(evidence: TrialEvidence, counts: UpdateCounts) -> Iterator[Finding]:
    """Updates applied with an all-zero gradient beyond those of the baseline: nothing but weight decay moves them."""
    baseline = counts_of(counts.name, evidence.baseline.counts)
    zero = counts.applied - counts.changed
    if zero <= 0:
        return
    fp32_zero = baseline.applied - baseline.changed if baseline is not None else 0
    if baseline is not None and baseline.applied and not baseline.changed:
        yield _never_moved(counts)
    elif zero > fp32_zero:
        yield _underflow(evidence, counts, zero, fp32_zero)


def _never_moved(counts: UpdateCounts) -> Finding:
    return Finding(
        kind="not_precision",
        severity="fault",
        stage="gradient",
        step=counts.first_applied,
        update=counts.name,
        fp32_ok=False,
        evidence=(f"every gradient of {counts.name} is zero", "the same in the FP32 baseline"),
        advice="The loss does not depend on these parameters: look for a zero weight, a mask that removes every "
        "element, or units that are all off.",
    )


def _underflow(evidence: TrialEvidence, counts: UpdateCounts, zero: int, fp32_zero: int) -> Finding:
    return Finding(
        kind="underflow",
        severity="fault" if 2 * (zero - fp32_zero) >= counts.applied else "notice",
        stage="gradient",
        step=counts.first_applied,
        update=counts.name,
        fp32_ok=True,
        evidence=(
            f"{zero:,} of {counted(counts.applied, 'update')} had an all-zero gradient, in FP32 {fp32_zero:,}",
            _scale_at_the_end(evidence.scaler),
        ),
        advice=f"Gradients are rounded to zero; nothing but weight decay moves the weights. {_lift(evidence)}",
        facts={"zero": zero, "zero_in_fp32": fp32_zero},
    )


def _scale_at_the_end(course: ScaleCourse | None) -> str:
    return f"the scale ended at {scale_text(course.final)}" if course is not None else "no loss scale is in use"


def _lift(evidence: TrialEvidence) -> str:
    """What brings the gradients back into reach."""
    if evidence.policy.dtype == "bfloat16":  # it reaches as far down as float32: digits are missing, not range
        return "Run the modules with the smallest gradients in FP32."
    if evidence.scaler is None:
        return "Use a loss scale: Policy(scaler=Scaler()), which starts at 65536."
    if _is_low(evidence.scaler):
        return "Start from a higher scale, such as Scaler(init_scale=65536.0), and leave growth_interval at 2000."
    return "Run the modules with the smallest gradients in FP32, or use BF16."


def _is_low(course: ScaleCourse | None) -> bool:
    return course is None or course.final < LOW_SCALE


def silent_layers(evidence: TrialEvidence, silent: SilentLayers) -> Finding:
    """Part of an update that does not move: a fault where a low scale, or none, or much of the update says so."""
    course = evidence.scaler
    counts = counts_of(silent.update, evidence.counts)
    return Finding(
        kind="underflow",
        severity="fault" if _is_low(course) or 2 * len(silent.layers) >= silent.of else "notice",
        stage="gradient",
        step=counts.first_applied if counts is not None else None,
        update=silent.update,
        module=silent.layers[0].rpartition(".")[0],
        fp32_ok=True,
        evidence=(
            f"the gradient of {listed(silent.layers)} is zero in every applied update",
            f"that is {len(silent.layers):,} of {counted(silent.of, 'tensor')}",
            f"in FP32 its norm reaches {number(silent.norm)}",
            _scale_at_the_end(course),
        ),
        advice=f"These gradients are rounded to zero: the layers stay as they are. {_lift(evidence)}",
        facts={"layers": list(silent.layers)},
    )


def no_gradient(evidence: TrialEvidence, counts: UpdateCounts) -> Iterator[Finding]:
    """No parameter of the update had a gradient, in any iteration."""
    if not counts.iterations or counts.without_gradient < counts.iterations:
        return
    baseline = counts_of(counts.name, evidence.baseline.counts)
    fp32_too = baseline is None or baseline.without_gradient == baseline.iterations
    in_fp32 = (
        "The loss does not reach the parameters of this optimizer: look for detach(), no_grad() or a wrong list of "
        "parameters."
    )
    under_policy = (
        "Look for a no_grad() inside autocast: weights that are cast there are cached without their graph. Open "
        "autocast anew around it, or with cache_enabled=False."
    )
    yield Finding(
        kind="not_precision" if fp32_too else "autocast_state",
        severity="fault",
        stage="gradient",
        step=0,
        update=counts.name,
        fp32_ok=not fp32_too,
        evidence=(
            f"no parameter of {counts.name} had a gradient in {counted(counts.iterations, 'iteration')}",
            "the same in FP32" if fp32_too else "in FP32 they have one",
        ),
        advice=in_fp32 if fp32_too else under_policy,
    )


def first_iteration(evidence: TrialEvidence) -> Iterator[Finding]:
    """Loss or gradients of iteration 0 beyond their limit, both finite: same weights, batch and RNG, other numbers."""
    tripped = {trip.update for trip in evidence.trips if trip.step == 0}
    for difference in evidence.first_iteration:
        beyond = not difference.measured <= difference.limit
        if beyond and difference.nonfinite == 0 and difference.update not in tripped:
            yield _beyond(evidence, difference)


def _beyond(evidence: TrialEvidence, difference: TensorDifference) -> Finding:
    gradient = difference.name.startswith("gradient")
    vanished = gradient and difference.trial == 0.0 and difference.baseline not in (None, 0.0)
    name = "gradient" if gradient else "loss"
    apart = _gradient_apart(evidence, difference) if gradient else _loss_apart(evidence, difference)
    module = difference.name.removeprefix("gradient ").rpartition(".")[0] if gradient else "loss"
    return Finding(
        kind="underflow" if vanished else "rounding",
        severity="fault",
        stage="gradient" if gradient else "loss",
        step=0,
        update=difference.update,
        module=module,
        fp32_ok=True,
        evidence=(apart,),
        advice=f"{_where_to_look(module, gradient=gradient)} If this difference is fine for the project, write a wider "
        f"limit down before the trial, as {name!r} in the outputs of Criteria.",
        facts={"measured": difference.measured, "limit": difference.limit},
    )


def _where_to_look(module: str, *, gradient: bool) -> str:
    if not gradient:
        return (
            "Look at the loss function first: sums, means and exponentials there belong on float32 (x.float()); then "
            "at the modules before it, the last one first, in fp32_regions of the policy."
        )
    if module:
        return f"Run {safe_text(module, 120)} in FP32: {regions_in_code([module])}."
    return (
        "Look at what is computed with this parameter, and at the modules behind it: run them in FP32, the last one "
        "first, by fp32_regions of the policy."
    )


def _loss_apart(evidence: TrialEvidence, difference: TensorDifference) -> str:
    apart = f"{listed([difference.name])} of iteration 0 is {number(difference.measured)} away"
    figures = ""
    if difference.baseline is not None and difference.trial is not None:
        figures = f": FP32 {number(difference.baseline)}, {evidence.policy.dtype} {number(difference.trial)}"
    return f"{apart}, allowed are {number(difference.limit)}{figures}"


def _gradient_apart(evidence: TrialEvidence, difference: TensorDifference) -> str:
    """The norm of the difference, as a share of FP32's: two gradients of one norm can point in different directions."""
    share = f"has a norm of {number(difference.measured)} times {_reference(difference)}"
    norms = ""
    if difference.baseline is not None and difference.trial is not None:
        norms = (
            f"; by themselves the norms are {number(difference.baseline)} in FP32 and {number(difference.trial)} in "
            f"{evidence.policy.dtype}"
        )
    return (
        f"{listed([difference.name])} of iteration 0: the difference, {evidence.policy.dtype} − FP32, {share}, "
        f"allowed are {number(difference.limit)}{norms}"
    )


def _reference(difference: TensorDifference) -> str:
    """What the norm of the difference was divided by (see `TensorDifference`)."""
    own = difference.baseline
    judged_by_own = own is None or difference.largest <= difference.measured * own * 1.001
    return "FP32's own norm" if judged_by_own else "a hundredth of FP32's whole gradient norm"


def baseline_alone(evidence: TrialEvidence) -> Iterator[Finding]:
    """Updates whose FP32 stretch was not finite while nothing held the trial's own back."""
    tripped = {trip.update for trip in evidence.trips if not settles(trip)}
    for name, step in evidence.baseline.first_bad.items():
        if name not in tripped:
            yield Finding(
                kind="not_precision",
                severity="fault",
                stage="loss",
                update=name,
                fp32_ok=False,
                evidence=(f"the FP32 baseline is not finite at step {step}, the trial is",),
                advice="Mend the FP32 run first: the learning rate, the data of that step, a formula at its limit.",
                facts={"baseline_step": step},
            )
    quality = evidence.baseline.quality
    if quality is not None and not math.isfinite(quality):
        yield Finding(
            kind="not_precision",
            severity="fault",
            stage="output",
            fp32_ok=False,
            evidence=(f"the quality of the FP32 baseline is {number(quality)}",),
            advice="Look at what quality(rows) gets in FP32: an empty list, a division by zero, outputs that are NaN.",
        )
