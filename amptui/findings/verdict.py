"""Accept, reject or inconclusive: what decides, in which order, and the one sentence that says it.

1. User code that fails under the policy and not in FP32: reject.
2. A baseline that decides nothing (not finite, not repeatable, random, without an update of its own): inconclusive.
3. A failed row or a fault, other than by noise or by too few updates: reject.
4. Noise above the tolerance, too few applied updates, a stretch that was not run to its end, nothing to judge:
   inconclusive.
5. Otherwise accept. So accept means that no row failed and that no finding is a fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from amptui.findings.diagnosis import diagnose
from amptui.findings.evidence import TrialEvidence
from amptui.findings.finding import Finding
from amptui.findings.judgement import Row, UpdateCounts, Verdict
from amptui.findings.raised import fails_in_fp32, policy_alone
from amptui.findings.rows import rows
from amptui.findings.settling import idle_in_fp32, settles, too_few
from amptui.findings.steadiness import baseline_broken, is_random, noisy_outputs, random_outputs
from amptui.findings.words import counted, listed, number, percent, plain_value, scale_text


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A verdict with all that led to it. `fp32_regions` are module paths whose FP32 run mends what was found."""

    verdict: Verdict
    #: One sentence for a newcomer.
    words: str
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]
    fp32_regions: tuple[str, ...] = ()


def judge(evidence: TrialEvidence) -> Judgement:
    """The verdict on a trial. Never raises on evidence that is not finite, and never accepts beside a fault."""
    judged, findings = rows(evidence), diagnose(evidence)
    verdict, reason = _decide(evidence, judged, findings)
    return Judgement(
        verdict=verdict,
        words=f"{verdict.capitalize()}{_interventions(evidence)}: {reason}.",
        rows=judged,
        findings=findings,
        fp32_regions=suggested_regions(findings),
    )


def _decide(evidence: TrialEvidence, judged: Sequence[Row], findings: Sequence[Finding]) -> tuple[Verdict, str]:
    if policy_alone(evidence):
        return "reject", _code_fails(evidence, findings)
    undecided = list(_baseline_decides_nothing(evidence))
    if undecided:
        return "inconclusive", "; ".join(undecided)
    faults = [f for f in findings if f.severity == "fault" and f.kind != "randomness"]
    failed = [row for row in judged if row.passed is False]
    blamed = [row for row in failed if not _excused(evidence, row)]
    if faults or blamed:
        return "reject", _what_failed(evidence, judged, blamed, faults)
    missing = list(_missing(evidence, judged, findings))
    if missing:
        return "inconclusive", "; ".join(missing)
    return "accept", _what_held(evidence)


def suggested_regions(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Module paths under the fact `fp32_regions` of any finding, in the findings' order, each once."""
    regions: dict[str, None] = {}
    for finding in findings:
        named = finding.facts.get("fp32_regions", ())
        if isinstance(named, list | tuple):
            regions.update(dict.fromkeys(str(name) for name in named))
    return tuple(regions)


# What keeps a verdict from being reached.


def _baseline_decides_nothing(evidence: TrialEvidence) -> Iterator[str]:
    baseline = evidence.baseline
    if fails_in_fp32(evidence):
        yield "the project's code fails in FP32 itself"
    broken = [f"{name} at step {step}" for name, step in baseline.first_bad.items()]
    for case in evidence.cases:
        broken += [f"{name} of case {case.case!r}" for name in baseline_broken(case)]
    known = {case.case: case.baseline_nonfinite for case in evidence.cases}
    for final in evidence.final_cases:
        worse = set(final.baseline_nonfinite) - set(known.get(final.case, final.baseline_nonfinite))
        broken += [f"{name} of case {final.case!r} after the stretch" for name in sorted(worse)]
    if baseline.quality is not None and not math.isfinite(baseline.quality):
        broken.append(f"the quality is {number(baseline.quality)}")
    if broken:
        yield f"the FP32 baseline itself is not finite ({listed(broken)})"
    if not baseline.repeatable:
        first = f", first in {listed([baseline.difference])}" if baseline.difference else ""
        yield f"the FP32 baseline is not repeatable: two runs from the checkpoint differ{first}"
    random = [case for case in evidence.cases if is_random(case)]
    if random:
        names = listed(random_outputs(random[0])) or "the decision"
        yield (
            f"{counted(len(random), 'case depends', 'cases depend')} on the RNG state in FP32 already "
            f"({names} of case {random[0].case!r})"
        )
    idle = [c.name for c in baseline.counts if c.iterations and not c.applied and c.name not in baseline.first_bad]
    if idle:
        yield f"the FP32 baseline applied no update of {listed(idle)}: its loss gives no gradient"


def _missing(evidence: TrialEvidence, judged: Sequence[Row], findings: Sequence[Finding]) -> Iterator[str]:
    noisy = [case for case in evidence.cases if noisy_outputs(evidence, case)]
    if noisy:
        name = noisy_outputs(evidence, noisy[0])[0]
        yield (
            f"the noise of two equal FP32 runs ({number(noisy[0].noise[name])} in {listed([name])} of case "
            f"{noisy[0].case!r}) is larger than the tolerance"
        )
    if not evidence.completed:
        yield "the stretch was not run to its end"
    else:
        for counts in evidence.counts:
            if _too_few(evidence, counts):
                yield (
                    f"too few updates of {listed([counts.name])} were applied: {counts.applied:,} of "
                    f"{counted(counts.iterations, 'iteration')}{_settling_hint(evidence, counts)}"
                )
    # Noise and randomness of the cases were said above; what is left was traced by the engine.
    traced = [f for f in findings if f.severity == "fault" and f.kind == "randomness"]
    if traced and not noisy:
        yield f"two FP32 runs differ as much ({_place(traced[0])}{listed(traced[0].evidence, 1) or 'randomness'})"
    if not any(row.passed is not None for row in judged):
        yield "nothing was compared: give the project cases or updates"


def _too_few(evidence: TrialEvidence, counts: UpdateCounts) -> bool:
    return too_few(counts, idle_in_fp32(evidence, counts.name))


def _settling_hint(evidence: TrialEvidence, counts: UpdateCounts) -> str:
    for trip in evidence.trips:
        if trip.update == counts.name and settles(trip) and trip.fitting_scale is not None:
            fits = scale_text(trip.fitting_scale)
            if counts.first_applied is not None and trip.step > counts.first_applied:
                return f", scale {scale_text(trip.scale)} was too high at step {trip.step:,}, where {fits} fits"
            return f", the scale was still settling; give more batches, or start at scale {fits}"
    return ""


def _excused(evidence: TrialEvidence, row: Row) -> bool:
    """Whether a failed row is no evidence against the policy: noise in FP32 explains it, or too few updates do."""
    if row.criterion == "updates":
        return any(counts.name == row.update and _too_few(evidence, counts) for counts in evidence.counts)
    if row.criterion != "difference" or row.case is None:
        return False
    noisy = (noisy_outputs(evidence, case) for case in evidence.cases if case.case == row.case)
    return any(row.output in names for names in noisy)


# The sentence.


def _interventions(evidence: TrialEvidence) -> str:
    if not evidence.interventions:
        return ""
    count = counted(evidence.interventions, "intervention")
    return f", with interventions ({count}; run it once more, unattended, to confirm)"


def _code_fails(evidence: TrialEvidence, findings: Sequence[Finding]) -> str:
    first = next((f for f in findings if f.severity == "fault" and f.stage == "error"), None)
    place = f" at {listed([first.line])}" if first is not None and first.line else ""
    said = f" ({first.evidence[0]})" if first is not None and first.evidence else ""
    return f"the project's code fails under {evidence.policy.dtype} and not in FP32{place}{said}"


def _what_failed(
    evidence: TrialEvidence, judged: Sequence[Row], failed: Sequence[Row], faults: Sequence[Finding]
) -> str:
    decisions = [row for row in judged if row.criterion == "decision" and row.case is not None]
    numbers_only = bool(failed) and all(row.criterion == "difference" for row in failed)
    if numbers_only and decisions and all(row.passed is True for row in decisions):
        worst = max(failed, key=_excess)
        return f"numbers failed, decisions hold, smallest margin {_smallest_margin(evidence)}; {_row_text(worst)}"
    if faults:
        fault = faults[0]
        return f"{_place(fault)}{fault.evidence[0] if fault.evidence else fault.kind}"
    more = f", and {counted(len(failed) - 1, 'more row')}" if len(failed) > 1 else ""
    return f"{_row_text(failed[0])}{more}"


def _place(finding: Finding) -> str:
    if finding.case is not None:
        return f"in case {finding.case!r}, "
    return f"at step {finding.step}, " if finding.step is not None else ""


def _excess(row: Row) -> float:
    limit = row.limit if isinstance(row.limit, float) else 0.0
    excess = math.inf if row.measured is None else row.measured - limit
    return math.inf if math.isnan(excess) else excess


def _row_text(row: Row) -> str:
    where = f"in case {row.case!r}, " if row.case is not None else ""
    if row.measured is not None and isinstance(row.limit, int | float):
        asked = "at least" if row.criterion == "updates" else "at most"
        if row.criterion == "progress":
            above = f"{percent(row.measured)} above the baseline's"
            return f"{where}{row.what}: {above}, where {asked} {percent(row.limit)} is asked for"
        if row.criterion == "difference" and row.what.startswith("gradient"):
            share = f"the difference is {number(row.measured)} of FP32's norm"
            return f"{where}{row.what}: {share}, where {asked} {number(row.limit)} is asked for"
        return f"{where}{row.what}: {number(row.measured)}, where {asked} {number(row.limit)} is asked for"
    return f"{where}{row.what}: {plain_value(row.trial)} instead of {plain_value(row.baseline)}"


def _smallest_margin(evidence: TrialEvidence) -> str:
    margins = [m for case in evidence.cases for m in (case.margin, case.trial_margin) if m is not None]
    return number(min(margins)) if margins else "unknown"


def _what_held(evidence: TrialEvidence) -> str:
    parts = []
    if evidence.cases:
        parts.append(counted(len(evidence.cases), "case"))
    if evidence.counts:
        parts.append(counted(evidence.iterations, "iteration"))
    note = f"; {skipped}" if (skipped := _skipped(evidence)) else ""
    under = f"{evidence.policy.dtype} autocast" if evidence.policy.autocast else "the policy"
    return f"{' and '.join(parts)} under {under} stayed within the locked criteria{note}"


def _skipped(evidence: TrialEvidence) -> str:
    """What the loss scaler's rule cost; "settled" is said only where the rest of the stretch shows it."""
    skipped = sum(counts.skipped for counts in evidence.counts)
    if not skipped:
        return ""
    course = evidence.scaler
    were = counted(skipped, "update was", "updates were")
    last = max((trip.last_step for trip in evidence.trips if trip.found_inf), default=0)
    if course is None:
        return f"{were} skipped"
    if 2 * last < evidence.iterations:
        return f"{were} skipped until the scale settled at {scale_text(course.lowest)}"
    at = f"at step {last}" if skipped == 1 else f"the last at step {last}"
    end = scale_text(course.final)
    return f"{were} skipped by the loss scaler's rule, {at} of {evidence.iterations:,}; the scale ended at {end}"
