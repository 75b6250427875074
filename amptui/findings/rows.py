"""The rows that decide: each one criterion, what the baseline and the trial showed, and whether it passed."""

from __future__ import annotations

import math
from collections.abc import Iterator

from amptui.findings.evidence import CaseEvidence, TensorDifference, TrialEvidence, TripEvidence
from amptui.findings.judgement import Row, UpdateCounts
from amptui.findings.settling import applied_share, counted_iterations, counts_of, idle_in_fp32, settles
from amptui.findings.words import counted, listed, scale_text


def rows(evidence: TrialEvidence) -> tuple[Row, ...]:
    """All rows, in the order in which the trial ran: cases, iteration 0, the stretch, what came after it.

    What does not apply has no row: no decisions without `decide`, no quality without `quality`, nothing after a stretch
    that was not run to its end. `passed` is None where a row only tells.
    """
    return (
        *(
            row
            for case in evidence.cases
            for row in _case_rows(case, "before the stretch" if evidence.iterations else "")
        ),
        *_decision_rows(evidence),
        *_first_iteration_rows(evidence),
        *_stretch_rows(evidence),
        *(_after_the_stretch(evidence) if evidence.completed else ()),
    )


def _case_rows(case: CaseEvidence, when: str) -> Iterator[Row]:
    for difference in case.differences:
        what = f"output {difference.name} {when}".rstrip()
        in_baseline = difference.name in case.baseline_nonfinite
        yield Row(
            criterion="finite",
            passed=difference.nonfinite == 0,
            baseline="not all finite" if in_baseline else "finite",
            trial=_nonfinite_text(difference, in_baseline),
            limit="the same infinities as the baseline" if in_baseline else "finite",
            case=case.case,
            what=what,
            measured=float(difference.nonfinite),
            output=difference.name,
        )
        yield _difference_row(difference, what, case=case.case)


def _nonfinite_text(difference: TensorDifference, in_baseline: bool) -> str:
    if difference.nonfinite:
        return f"{difference.nonfinite:,} of {counted(difference.elements, 'element')} not finite"
    return "infinite only where the baseline is" if in_baseline else "finite"


def _difference_row(difference: TensorDifference, what: str, *, case: str | None = None) -> Row:
    """Passes at ≤; a NaN among the figures never passes."""
    return Row(
        criterion="difference",
        passed=difference.measured <= difference.limit and difference.nonfinite == 0,
        baseline=difference.baseline,
        trial=difference.trial,
        limit=difference.limit,
        case=case,
        what=what,
        measured=difference.measured,
        update=difference.update,
        output=difference.name if case is not None else None,
    )


def _decision_rows(evidence: TrialEvidence) -> Iterator[Row]:
    judged = [case for case in evidence.cases if case.decision_stands is not None]
    if not judged:
        return
    changes = sum(not case.decision_stands for case in judged)
    allowed = evidence.criteria.decision_changes
    for case in judged:
        ties = " (a tie in the baseline)" if case.tied else ""
        yield Row(
            criterion="decision",
            # One of the allowed changes is shown; which of several were too many nobody can say, so all of them fail.
            passed=True if case.decision_stands else (None if changes <= allowed else False),
            baseline=case.decision,
            trial=case.trial_decision,
            limit="any of the tied" if case.tied and evidence.criteria.tie == "any" else "the same",
            case=case.case,
            what=f"decision{ties}",
            measured=case.trial_margin,
        )
    yield Row(
        criterion="decision",
        passed=changes <= allowed,
        baseline=0,
        trial=changes,
        limit=allowed,
        what=f"changed decisions in {counted(len(judged), 'case')}",
        measured=float(changes),
    )


def _first_iteration_rows(evidence: TrialEvidence) -> Iterator[Row]:
    """Loss and gradients on the same weights, batch and RNG.

    Where nothing but the scale was too high there is no gradient to compare; the row says so instead of failing.
    """
    for difference in evidence.first_iteration:
        settling = _settling_trip(evidence, difference)
        if settling is not None and not math.isfinite(difference.measured):
            fits = scale_text(settling.fitting_scale or 0.0)
            yield Row(
                criterion="difference",
                passed=None,
                baseline=difference.baseline,
                trial=f"not finite at scale {scale_text(settling.scale)}, finite at {fits}",
                limit=difference.limit,
                what=_of_iteration_0(difference),
                update=difference.update,
            )
        else:
            yield _difference_row(difference, _of_iteration_0(difference))


def _of_iteration_0(difference: TensorDifference) -> str:
    return f"{difference.name} of {difference.update}, iteration 0"


def _settling_trip(evidence: TrialEvidence, difference: TensorDifference) -> TripEvidence | None:
    if not difference.name.startswith("gradient"):
        return None
    return next((t for t in evidence.trips if t.step == 0 and t.update == difference.update and settles(t)), None)


def _stretch_rows(evidence: TrialEvidence) -> Iterator[Row]:
    for counts in evidence.counts:
        if not counts.iterations:
            continue
        bad = [trip for trip in evidence.trips if trip.update == counts.name and not settles(trip)]
        iterations = sum(trip.count for trip in bad)
        baseline_step = evidence.baseline.first_bad.get(counts.name)
        yield Row(
            criterion="finite",
            passed=not bad,
            baseline="finite" if baseline_step is None else f"not finite at step {baseline_step}",
            trial="finite" if not bad else f"not finite at step {min(trip.step for trip in bad)}",
            limit="finite",
            what=f"loss, gradients and buffers of {counts.name} over the stretch",
            measured=float(iterations),
            update=counts.name,
        )
        if evidence.completed:
            yield _updates_row(evidence, counts)


def _updates_row(evidence: TrialEvidence, counts: UpdateCounts) -> Row:
    baseline = counts_of(counts.name, evidence.baseline.counts)
    idle = idle_in_fp32(evidence, counts.name)
    share = applied_share(counts, evidence.iterations, idle)
    asked = counted_iterations(counts, evidence.iterations, idle)
    since = f" from step {counts.first_applied} on" if counts.first_applied else ""
    return Row(
        criterion="updates",
        passed=counts.applied > 0 and share >= evidence.criteria.applied_share,
        baseline=applied_share(baseline, evidence.iterations, idle) if baseline is not None else None,
        trial=share,
        limit=evidence.criteria.applied_share,
        what=f"{counts.applied:,} of {counted(asked, 'update')} of {counts.name} applied{since}",
        measured=share,
        update=counts.name,
    )


def _after_the_stretch(evidence: TrialEvidence) -> Iterator[Row]:
    for case in evidence.final_cases:
        new = [name for name in case.trial_nonfinite if name not in case.baseline_nonfinite]
        yield Row(
            criterion="finite",
            passed=not new,
            baseline=_named_nonfinite(case.baseline_nonfinite),
            trial=_named_nonfinite(case.trial_nonfinite),
            limit="finite where the baseline is",
            case=case.case,
            what="outputs after the stretch",
            measured=float(len(new)),
        )
    yield from _quality_rows(evidence)
    yield from _progress_rows(evidence)


def _named_nonfinite(names: tuple[str, ...]) -> str:
    return f"not finite: {listed(names)}" if names else "finite"


def _quality_rows(evidence: TrialEvidence) -> Iterator[Row]:
    baseline, trial = evidence.baseline.quality, evidence.quality
    if baseline is None or (trial is None and not evidence.iterations):
        return
    drop = math.nan
    if trial is not None:
        drop = baseline - trial if evidence.quality_better == "higher" else trial - baseline
        drop = 0.0 if baseline == trial else drop
    yield Row(
        criterion="quality",
        passed=drop <= evidence.criteria.quality_drop + _rounding(baseline, trial),
        baseline=baseline,
        trial=trial,
        limit=evidence.criteria.quality_drop,
        what=f"drop of quality ({evidence.quality_better} is better)",
        measured=drop,
    )


def _rounding(baseline: float, trial: float | None) -> float:
    """A few units in the last place: 0.90 → 0.88 is a drop of 0.02, although the subtraction gives a little more."""
    size = max(abs(baseline), abs(trial or 0.0))
    return 4.0 * 2.0**-52 * size if math.isfinite(size) else 0.0


def _progress_rows(evidence: TrialEvidence) -> Iterator[Row]:
    limit = evidence.criteria.progress
    for counts in evidence.counts:
        baseline, trial = evidence.baseline.late_loss.get(counts.name), evidence.late_loss.get(counts.name)
        if baseline is None or trial is None:
            continue
        above = _relative(baseline, trial)
        yield Row(
            criterion="progress",
            passed=None if limit is None else above <= limit + _rounding(1.0, above),
            baseline=baseline,
            trial=trial,
            limit=limit,
            what=f"mean loss of {counts.name} over the last quarter",
            measured=above,
            update=counts.name,
        )


def _relative(baseline: float, trial: float) -> float:
    """How far `trial` lies above `baseline`, as a share of its size; below it is negative, NaN stays NaN."""
    above = trial - baseline
    if baseline == 0.0:
        return above if above == 0.0 or math.isnan(above) else math.copysign(math.inf, above)
    return above / abs(baseline)
