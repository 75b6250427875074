"""The account of stage 4: what differed from FP32, what the guard held back, what became of every update."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from amptui.findings.criteria import limits_for
from amptui.findings.evidence import TensorDifference
from amptui.findings.judgement import ScaleCourse, UpdateCounts
from amptui.findings.words import counted, listed, scale_text
from amptui.project import Criteria, Policy
from amptui.protocol.events import CaseRetained, CodeFailed, GuardTripped, TrialCaseRun, TrialDone, TrialStarted
from amptui.report.figures import duration, figure, name, place, size, words
from amptui.report.page import Mark, Page
from amptui.report.told_baseline import closest
from amptui.session.state import SessionState

#: How many changed decisions are named; the verdict's rows have them all.
_CHANGED = 5
_FRAMES = 6


@dataclass
class Held:
    """One kind of trip: how often it came, and its first and last step."""

    count: int
    first: int
    last: int


@dataclass
class TrialAccount:
    """What one trial's account must remember: each kind of trip and of failure is told once, and then counted."""

    cases_told: bool = False
    held: dict[tuple[str, str], Held] = field(default_factory=dict)
    failed: Counter[tuple[str, str | None]] = field(default_factory=Counter)


def tell_policy(page: Page, event: TrialStarted) -> None:
    page.field("policy", policy_text(event.policy))
    if event.attended:
        page.marked("warn", "Attended: what the user does in mid-run marks the verdict.")


def policy_text(policy: Policy) -> str:
    scaler = policy.effective_scaler
    parts = [
        f"{policy.dtype} autocast" if policy.autocast else f"autocast off ({policy.dtype})",
        f"loss scale from {scale_text(scaler.init_scale)}" if scaler is not None else "no loss scaler",
    ]
    if policy.fp32_regions:
        parts.append(f"in FP32: {', '.join(map(name, policy.fp32_regions))}")
    if policy.buffers == "rollback":
        parts.append("buffers go back after a skip")
    return " · ".join(parts)


# The cases, on the checkpoint's weights.


def tell_cases(page: Page, state: SessionState) -> None:
    """Each output's worst case against its tolerance, and the decisions."""
    runs = [case.trial for case in state.cases.values() if case.trial is not None]
    if not runs:
        return
    page.field("cases", f"{counted(len(runs), 'case')} on the checkpoint's weights, beside the baseline")
    outputs = dict.fromkeys(difference.name for run in runs for difference in run.differences)
    for output in outputs:
        _tell_output(page, output, runs, state.locked.criteria if state.locked is not None else None)
    _tell_decisions(page, runs)


def _tell_output(page: Page, output: str, runs: list[TrialCaseRun], criteria: Criteria | None) -> None:
    beside = [(run.figures.case, d) for run in runs for d in run.differences if d.name == output]
    case, worst = max(beside, key=lambda pair: _badness(pair[1]))
    beyond = sum(not _within(difference) for _, difference in beside)
    also = f"; {beyond:,} of {counted(len(beside), 'case')} beyond" if beyond > 1 else ""
    text = f"{name(output)}: {_apart(worst)} ({name(case)}), {_allowed(output, worst, criteria)}{also}"
    page.field("output", text, mark="fail" if beyond else "ok")


def _within(difference: TensorDifference) -> bool:
    return difference.nonfinite == 0 and difference.measured <= difference.limit


def _badness(difference: TensorDifference) -> tuple[int, float, float]:
    """Not finite first, then by how far the tolerance is exceeded or used up, then by the plain difference."""
    excess = difference.measured - difference.limit
    return (
        difference.nonfinite,
        math.inf if math.isnan(excess) else excess,
        math.inf if math.isnan(difference.largest) else difference.largest,
    )


def _apart(difference: TensorDifference) -> str:
    if difference.nonfinite:
        return f"{difference.nonfinite:,} of {counted(difference.elements, 'value')} not finite"
    if difference.largest == 0.0:
        return "the same bits"
    return f"off by at most {figure(difference.largest)}"


def _allowed(output: str, difference: TensorDifference, criteria: Criteria | None) -> str:
    rtol = limits_for(criteria, output)[1] if criteria is not None else 0.0
    return f"allowed {figure(difference.limit)}{f' + {figure(rtol)} × |baseline|' if rtol else ''}"


def _tell_decisions(page: Page, runs: list[TrialCaseRun]) -> None:
    judged = [run for run in runs if run.decision_stands is not None]
    if not judged:
        return
    changed = [run for run in judged if not run.decision_stands]
    if not changed:
        margins = [(run.figures.margin, run.figures.case) for run in judged if run.figures.margin is not None]
        page.field("decisions", f"all {len(judged):,} stand{closest(margins)}", mark="ok")
        return
    page.field("decisions", f"{len(changed):,} of {len(judged):,} changed", mark="fail")
    for run in changed[:_CHANGED]:
        margin = f", FP32 margin {figure(run.baseline_margin)}" if run.baseline_margin is not None else ""
        change = f"{figure(run.baseline_decision)} → {figure(run.figures.decision)}"
        page.field("", f"{name(run.figures.case)}: {change}{margin}")
    if len(changed) > _CHANGED:
        page.field("", f"and {len(changed) - _CHANGED:,} more, all in the verdict")


# The stretch.


def tell_trip(page: Page, event: GuardTripped, account: TrialAccount) -> None:
    """The first trip of its kind in words; the others are counted."""
    record = event.record
    held = account.held.setdefault((record.update, record.outcome), Held(0, record.step, record.step))
    held.count += 1
    held.last = record.step
    if held.count > 1:
        return
    mark: Mark = "skipped" if record.skipped else "withheld"
    page.marked(mark, (f"step {record.step}, {name(record.update)}: ", "bold"), words(event.words))


def tell_failure(page: Page, event: CodeFailed, account: TrialAccount) -> None:
    """The project's code raised: the first time in full, the others are counted."""
    kind = (event.exception, event.where)
    account.failed[kind] += 1
    if account.failed[kind] > 1:
        return
    during = (
        f" in case {name(event.case)}" if event.case else f" at step {event.step}" if event.step is not None else ""
    )
    under = "under the policy" if event.under == "trial" else "in FP32"
    page.marked("fail", f"The project's code fails {under}{during}: {name(event.exception)}: {words(event.message)}")
    tell_place(page, event)


def tell_place(page: Page, event: CodeFailed) -> None:
    """Where user code raised: the line, the module and the frames that led there."""
    where = [part for part in (place(event.where), name(event.module)) if part]
    if where:
        page.field("where", " · ".join(where))
    for number, frame in enumerate(event.frames[-_FRAMES:] if len(event.frames) > 1 else ()):
        page.field("" if number else "through", place(frame))


def tell_trial_done(page: Page, event: TrialDone, state: SessionState, account: TrialAccount) -> None:
    for (exception, where), count in account.failed.items():
        if count > 1:
            page.field("again", f"{name(exception)} at {place(where)}: {counted(count - 1, 'more time')}")
    for text in _held(account):
        page.field("held back", text)
    for counts in event.counts:
        page.field("updates", _updates(counts), mark=_updates_mark(counts))
    if event.scaler is not None:
        page.field("loss scale", scale_course(event.scaler))
    _tell_retained(page, state)
    if event.quality is not None:
        fp32 = state.baseline.quality if state.baseline is not None else None
        beside = f", in FP32 {figure(fp32)}" if fp32 is not None else ""
        page.field("quality", f"{figure(event.quality)} after the stretch{beside}")
    page.field("took", duration(event.seconds))
    if not event.completed:
        page.marked("warn", "The stretch was not run to its end.")


def _held(account: TrialAccount) -> Iterator[str]:
    """What came more than once, with its count; a single trip has been told."""
    for (update, outcome), held in account.held.items():
        if held.count > 1:
            kind = outcome.replace("_", " ")
            yield f"{name(update)}: {kind}, {held.count:,} times (steps {held.first} to {held.last})"


def _updates_mark(counts: UpdateCounts) -> Mark:
    if counts.iterations and not counts.applied:
        return "fail"
    if counts.withheld:
        return "withheld"
    return "ok" if counts.applied == counts.iterations else "skipped"


def _updates(counts: UpdateCounts) -> str:
    parts = [f"{name(counts.name)}: {counts.applied:,} of {counts.iterations:,} applied"]
    if counts.skipped:
        parts.append(f"{counts.skipped:,} skipped by the loss scaler's rule")
    if counts.withheld:
        parts.append(f"{counts.withheld:,} withheld by the guard")
    if counts.without_gradient:
        parts.append(f"{counts.without_gradient:,} without a gradient")
    if counts.applied > counts.changed:
        parts.append(f"{counts.applied - counts.changed:,} applied with an all-zero gradient")
    if counts.first_applied:
        parts.append(f"first applied at step {counts.first_applied}")
    return " · ".join(parts)


def scale_course(course: ScaleCourse) -> str:
    """`2^16 → 2^14`, with the lowest where it is neither."""
    if course.initial == course.final == course.lowest:
        return f"{scale_text(course.initial)} throughout"
    lowest = f", lowest {scale_text(course.lowest)}" if course.lowest not in (course.initial, course.final) else ""
    return f"{scale_text(course.initial)} → {scale_text(course.final)}{lowest}"


def _tell_retained(page: Page, state: SessionState) -> None:
    kept: tuple[CaseRetained, ...] = state.retained
    if not kept:
        return
    total = sum(case.bytes for case in kept)
    names = listed([case.id for case in kept])
    page.field("retained", f"{counted(len(kept), 'failing iteration')}, {size(total)}, in the session: {names}")
