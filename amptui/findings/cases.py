"""What the policy changed on the cases: outputs not finite or too far away, decisions that changed.

One finding of each sort, at the first case that shows it; how many others do is part of the evidence. All rows of all
cases are in the verdict's table.
"""

from __future__ import annotations

from collections.abc import Iterator

from amptui.findings.about_trip import or_bf16
from amptui.findings.evidence import CaseEvidence, TensorDifference, TrialEvidence
from amptui.findings.finding import Finding
from amptui.findings.steadiness import baseline_broken, explained, finding_at, is_random, others_text
from amptui.findings.words import counted, listed, number, plain_value


def case_findings(evidence: TrialEvidence) -> Iterator[Finding]:
    """Outputs, decisions, and outputs after the stretch; differences that FP32 shows between its own runs are left."""
    yield from _not_finite(evidence)
    yield from _beyond(evidence)
    yield from _decisions(evidence)
    yield from _after_the_stretch(evidence)


def beyond(difference: TensorDifference) -> bool:
    """Finite, and not within the limit."""
    return difference.nonfinite == 0 and not difference.measured <= difference.limit


def _not_finite(evidence: TrialEvidence) -> Iterator[Finding]:
    found = []
    for case in evidence.cases:
        bad = [d for d in case.differences if d.nonfinite and d.name not in baseline_broken(case)]
        if bad:
            found.append((case, bad))
    if not found:
        return
    first, bad = found[0]
    worst = bad[0]
    yield finding_at(
        first,
        kind="overflow",
        stage="output",
        fp32_ok=True,
        evidence=(
            f"{listed([d.name for d in bad])}: {worst.nonfinite:,} of {counted(worst.elements, 'element')} not finite",
            f"{evidence.policy.dtype} gives {_shown(worst.trial)} where FP32 gives {_shown(worst.baseline)}",
            *_decision_fact(first),
            *others_text([case for case, _ in found]),
        ),
        advice=f"Look for the first module whose result {evidence.policy.dtype} cannot hold, from "
        f"{listed([worst.name])} backwards, and name it in fp32_regions of the policy{or_bf16(evidence)}.",
        facts={"outputs": tuple(d.name for d in bad), "cases": tuple(case.case for case, _ in found)},
    )


def _beyond(evidence: TrialEvidence) -> Iterator[Finding]:
    found = []
    for case in evidence.cases:
        far = [d for d in case.differences if beyond(d) and not explained(evidence, case, d)]
        if far and not any(d.nonfinite for d in case.differences):
            found.append((case, far))
    if not found:
        return
    first, far = found[0]
    worst = max(far, key=lambda d: d.measured - d.limit)
    yield finding_at(
        first,
        kind="rounding",
        stage="output",
        fp32_ok=True,
        evidence=(
            f"{listed([worst.name])}: {worst.beyond:,} of {counted(worst.elements, 'element')} beyond the tolerance",
            *_figures(evidence, worst),
            *_decision_fact(first),
            *others_text([case for case, _ in found]),
        ),
        advice=f"Look at the modules that {listed([worst.name])} is made of, the last one first: name those that lose "
        "these digits in fp32_regions of the policy. If this difference is fine for the project, write a wider "
        "tolerance down before the trial.",
        facts={"outputs": tuple(d.name for d in far), "cases": tuple(case.case for case, _ in found)},
    )


def _decisions(evidence: TrialEvidence) -> Iterator[Finding]:
    """Decisions that changed although every output is within its tolerance."""
    changed = [case for case in evidence.cases if case.decision_stands is False]
    silent = [case for case in changed if _within(case) and not is_random(case)]
    if not silent:
        return
    first = silent[0]
    allowed = len(changed) <= evidence.criteria.decision_changes
    rule = _by_the_rule(first)
    yield finding_at(
        first,
        kind="decision",
        severity="notice" if allowed else "fault",
        stage="decision",
        module="decide" if rule else "",
        fp32_ok=True,
        evidence=(
            *_decision_fact(first),
            "every output is within its tolerance",
            *_margin_facts(first),
            *others_text(silent),
        ),
        advice=_decision_advice(first, allowed=allowed, rule=rule),
        facts={"cases": tuple(case.case for case in silent)},
    )


def _decision_advice(case: CaseEvidence, *, allowed: bool, rule: bool) -> str:
    if allowed:
        return "Nothing has to change: the criteria allow this many changed decisions."
    if case.tied:
        return (
            "The FP32 choice is one of exactly tied candidates. Give decide a rule for ties that does not depend on "
            "the last digit, or write Criteria(tie='any')."
        )
    if rule:
        return "Look at decide: a rule keyed on the dtype, a threshold or a tie. Cast the scores to float32 before it."
    return (
        "The margin is smaller than the rounding. Compute the final scores in FP32, or let decide treat so small a "
        "margin as its own answer."
    )


def _by_the_rule(case: CaseEvidence) -> bool:
    """Whether the outputs moved too little to explain the change, as far as the margin can say.

    Moving two scores by d each changes their gap by at most 2d.
    """
    moved = max((d.largest for d in case.differences), default=0.0)
    return case.margin is None or moved == 0.0 or 2.0 * moved < case.margin


def _after_the_stretch(evidence: TrialEvidence) -> Iterator[Finding]:
    """Outputs that only the trained weights (or their buffers) of the trial make non-finite."""
    before = {case.case for case in evidence.cases if any(d.nonfinite for d in case.differences)}
    found = []
    for case in evidence.final_cases:
        new = [name for name in case.trial_nonfinite if name not in case.baseline_nonfinite]
        if new and case.case not in before:
            found.append((case, new))
    if not found:
        return
    first, new = found[0]
    others = f"and {counted(len(found) - 1, 'more case')}"
    yield Finding(
        kind="overflow",
        severity="fault",
        stage="output",
        step=first.index,
        case=first.case,
        fp32_ok=True,
        evidence=(
            f"{listed(new)} not finite after the trial's stretch, finite after the FP32 one and before both",
            *((others,) if len(found) > 1 else ()),
        ),
        advice="Look at the buffers (running statistics) and weights that the stretch left, and at the findings of its "
        "iterations.",
        facts={"cases": tuple(case.case for case, _ in found), "after_stretch": True},
    )


# Parts.


def _within(case: CaseEvidence) -> bool:
    return all(d.nonfinite == 0 and d.measured <= d.limit for d in case.differences)


def _decision_fact(case: CaseEvidence) -> tuple[str, ...]:
    if case.decision_stands is None:
        return ()
    if case.decision_stands:
        return ("the decision stands",)
    return (f"the decision changed from {plain_value(case.decision)} to {plain_value(case.trial_decision)}",)


def _margin_facts(case: CaseEvidence) -> tuple[str, ...]:
    moved = max((d.largest for d in case.differences), default=0.0)
    facts = [f"outputs moved by at most {number(moved)}"]
    if case.margin is not None:
        facts.append(f"the margin in FP32 is {number(case.margin)}")
    if case.tied:
        facts.append("the best candidates are exactly tied in FP32")
    return tuple(facts)


def _figures(evidence: TrialEvidence, difference: TensorDifference) -> tuple[str, ...]:
    figures = [f"{number(difference.measured)} against at most {number(difference.limit)}"]
    if difference.baseline is not None and difference.trial is not None:
        place = f" at {list(difference.place)}" if difference.place else ""
        both = f"FP32 {number(difference.baseline)}, {evidence.policy.dtype} {number(difference.trial)}"
        figures.append(f"{both}{place}")
    return tuple(figures)


def _shown(value: float | None) -> str:
    return "none" if value is None else number(value)
