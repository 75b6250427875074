"""Whether FP32 itself stands still on the cases: not finite, random, or noisier than the tolerance.

One finding of each sort, at the first case that shows it; how many others do is part of the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from amptui.findings.criteria import NOISE_FACTOR, limits_for
from amptui.findings.evidence import CaseEvidence, TensorDifference, TrialEvidence
from amptui.findings.finding import Finding
from amptui.findings.words import counted, listed, number


def baseline_findings(evidence: TrialEvidence) -> Iterator[Finding]:
    """What two and three FP32 runs of the cases showed."""
    yield from _baseline_not_finite(evidence)
    yield from _randomness(evidence)
    yield from _noise(evidence)


def baseline_broken(case: CaseEvidence) -> tuple[str, ...]:
    """Outputs that are NaN in FP32.

    A baseline infinity is accepted where the trial has the same one; NaN never is. So an output that is not finite in
    FP32 is broken where its worst element is NaN there, or where there is nothing to compare it with.
    """
    compared = {difference.name: difference for difference in case.differences}
    return tuple(name for name in case.baseline_nonfinite if name not in compared or _is_nan(compared[name].baseline))


def random_outputs(case: CaseEvidence) -> tuple[str, ...]:
    """Outputs that another RNG state changed by clearly more than the noise of two equal runs."""
    return tuple(
        name
        for name, apart in case.randomness.items()
        if apart > NOISE_FACTOR * case.noise.get(name, 0.0) or math.isnan(apart)
    )


def is_random(case: CaseEvidence) -> bool:
    return bool(random_outputs(case)) or case.decision_random


def noisy_outputs(evidence: TrialEvidence, case: CaseEvidence) -> tuple[str, ...]:
    """Outputs whose FP32 noise alone exceeds the tolerance."""
    return tuple(name for name, apart in case.noise.items() if not apart <= _tolerance(evidence, name))


def _tolerance(evidence: TrialEvidence, output: str) -> float:
    """The widest difference that the criteria allow anywhere in this output."""
    atol, rtol = limits_for(evidence.criteria, output)
    output_range = evidence.baseline.outputs.get(output)
    largest = output_range.largest if output_range is not None and math.isfinite(output_range.largest) else 0.0
    return atol + rtol * largest


def explained(evidence: TrialEvidence, case: CaseEvidence, difference: TensorDifference) -> bool:
    """Whether a difference says nothing about precision: two FP32 runs of this output differ too much themselves."""
    name = difference.name
    return name in random_outputs(case) or name in noisy_outputs(evidence, case) or name in baseline_broken(case)


def _baseline_not_finite(evidence: TrialEvidence) -> Iterator[Finding]:
    broken = [case for case in evidence.cases if baseline_broken(case)]
    if broken:
        first = broken[0]
        yield finding_at(
            first,
            kind="not_precision",
            stage="output",
            fp32_ok=False,
            evidence=(f"{listed(baseline_broken(first))} is NaN in FP32 too", *others_text(broken)),
            advice="Mend this in FP32 first: look at the input of the case and at the formula behind this output.",
        )


def _randomness(evidence: TrialEvidence) -> Iterator[Finding]:
    random = [case for case in evidence.cases if is_random(case)]
    if not random:
        return
    first = random[0]
    outputs = random_outputs(first)
    apart = ", ".join(f"{listed([name])} by {number(first.randomness[name])}" for name in outputs[:3])
    yield finding_at(
        first,
        kind="randomness",
        stage="output" if outputs else "decision",
        module="" if outputs else "decide",
        fp32_ok=False,
        evidence=(
            f"FP32 runs with different RNG states differ: {apart}" if outputs else "FP32 runs decide differently",
            *others_text(random),
        ),
        advice="Evaluation must not draw random numbers: look for dropout, sampling or noise that ignores eval mode "
        "(F.dropout without training=self.training).",
    )


def _noise(evidence: TrialEvidence) -> Iterator[Finding]:
    noisy = [case for case in evidence.cases if not is_random(case) and noisy_outputs(evidence, case)]
    if not noisy:
        return
    first = noisy[0]
    name = noisy_outputs(evidence, first)[0]
    yield finding_at(
        first,
        kind="randomness",
        stage="output",
        fp32_ok=False,
        evidence=(
            f"two equal FP32 runs differ in {listed([name])} by {number(first.noise[name])}",
            f"the tolerance is {number(_tolerance(evidence, name))}",
            *others_text(noisy),
        ),
        advice="Use deterministic kernels (torch.use_deterministic_algorithms(True)), or a tolerance of at least four "
        "times this noise.",
    )


def finding_at(case: CaseEvidence, **values: object) -> Finding:
    """A fault at this case, unless `values` say otherwise; step is its index."""
    return Finding(**{"severity": "fault", "step": case.index, "case": case.case, **values})  # type: ignore[arg-type]


def others_text(cases: Sequence[CaseEvidence]) -> tuple[str, ...]:
    """How many cases after the first show the same, as evidence."""
    rest = [case.case for case in cases[1:]]
    return (f"the same in {counted(len(rest), 'more case')}: {listed(rest)}",) if rest else ()


def _is_nan(value: float | None) -> bool:
    return value is not None and math.isnan(value)
