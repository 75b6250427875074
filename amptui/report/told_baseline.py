"""The account of stages 2 and 3: what true FP32 showed, and the criteria that are locked on it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from amptui.findings.criteria import that_apply
from amptui.findings.judgement import Proposal, UpdateCounts
from amptui.findings.words import counted
from amptui.protocol.events import BaselineDone, CriteriaLocked, RepeatProved
from amptui.report.figures import duration, figure, name, short_digest, words
from amptui.report.page import MARGIN, Page, cells
from amptui.session.state import SessionState

_GIVEN = "given by the project"
#: From this width on a criterion's reason stands beside it.
_WIDE = 72


def tell_repeat(page: Page, event: RepeatProved) -> None:
    if not event.iterations:
        return
    runs = f"{counted(event.iterations, 'iteration')} run twice from the checkpoint"
    if event.repeatable:
        page.field("repeatable", f"{runs}: loss, gradients and buffers equal bit for bit", mark="ok")
        return
    step = f" at step {event.step}" if event.step is not None else ""
    page.field("repeatable", f"no: {runs} differ, first in {name(event.difference)}{step}", mark="fail")
    if event.advice:
        page.field("advice", words(event.advice))


def tell_baseline(page: Page, event: BaselineDone, state: SessionState) -> None:
    if event.finite:
        page.field("finite", "every loss, gradient and output", mark="ok")
    else:
        page.field("finite", "no: see below", mark="fail")
    if any(case.baseline for case in state.cases.values()):
        _tell_noise(page, state)
        _tell_decisions(page, state)
    for counts in event.counts:
        page.field("updates", baseline_updates(counts), mark="ok" if counts.applied == counts.iterations else "warn")
    if event.quality is not None:
        before = f", {figure(event.quality_before)} before it" if event.quality_before is not None else ""
        after = " after the stretch" if event.counts else ""
        page.field("quality", f"{figure(event.quality)}{after}{before if event.counts else ''}")
    page.field("took", duration(event.seconds))
    for reason in event.reasons:
        page.marked("fail", f"This baseline decides nothing: {words(reason)}.")


def baseline_updates(counts: UpdateCounts) -> str:
    return f"{name(counts.name)}: {counts.applied:,} of {counts.iterations:,} applied"


def _tell_noise(page: Page, state: SessionState) -> None:
    noise = _largest((id_, case.baseline.noise) for id_, case in state.cases.items() if case.baseline)
    other = _largest((id_, case.baseline.randomness) for id_, case in state.cases.items() if case.baseline)
    if noise is None:
        page.field("noise", "none: two equal runs of every case give the same bits", mark="ok")
    else:
        page.field("noise", f"two equal runs differ by up to {_apart(noise)}", mark="warn")
    if other is None or other == noise:
        page.field("randomness", "none: no output depends on the random state", mark="ok")
    else:
        page.field("randomness", f"another random state changes outputs by up to {_apart(other)}", mark="warn")


def _largest(cases: Iterable[tuple[str, Mapping[str, float]]]) -> tuple[float, str, str] | None:
    """The largest difference with its case and output; a NaN counts as larger than any number."""
    found = [(apart, case, output) for case, outputs in cases for output, apart in outputs.items()]
    return max(found, key=lambda item: math.inf if math.isnan(item[0]) else item[0], default=None)


def _apart(found: tuple[float, str, str]) -> str:
    apart, case, output = found
    return f"{figure(apart)} ({name(output)} of {name(case)})"


def _tell_decisions(page: Page, state: SessionState) -> None:
    if state.project is None or not state.project.has_decide:
        return
    decided = [case.baseline.figures for case in state.cases.values() if case.baseline]
    margins = [(figures.margin, figures.case) for figures in decided if figures.margin is not None]
    page.field("decisions", f"{len(decided):,}{closest(margins)}")


def closest(margins: Sequence[tuple[float, str]]) -> str:
    """Words about the smallest of the margins and its case, to follow a count of decisions; "" without margins."""
    if not margins:
        return ""
    margin, case = smallest(margins)
    return f", the closest with a margin of {figure(margin)} ({name(case)})"


def smallest(margins: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The smallest margin and its case; a NaN is the smallest of all."""
    return min(margins, key=lambda item: -math.inf if math.isnan(item[0]) else item[0])


def tell_criteria(page: Page, event: CriteriaLocked, state: SessionState) -> None:
    proposals = shown(event.proposals, state)
    by = {writer: [p for p in proposals if p.writer == writer] for writer in ("project", "you", "amptui")}
    widths = _widths(page, proposals)
    titles = {"project": "written by the project", "you": "written by the user", "amptui": "proposed by amptui"}
    for writer, written in by.items():
        if written:
            page.line((titles[writer], "dim"))
        for proposal in written:
            _tell_criterion(page, proposal, widths)
    if proposals:
        page.blank()
    page.field(
        "locked",
        f"revision {event.revision}, {'after a trial' if event.after_trial else 'before the trial'} · "
        f"{len(proposals) - len(by['amptui']):,} given, {len(by['amptui']):,} proposed · "
        f"SHA-256 {short_digest(event.digest)}",
        mark="warn" if event.after_trial else "ok",
    )
    if event.reason:
        page.field("reason", words(event.reason))


def shown(proposals: Sequence[Proposal], state: SessionState) -> tuple[Proposal, ...]:
    """The criteria that are about something in this project; what is locked is all of them."""
    return that_apply(proposals, decides=state.project is None or state.project.has_decide)


def _widths(page: Page, proposals: Sequence[Proposal]) -> tuple[int, int]:
    names = max((cells(name(p.name)) for p in proposals), default=0)
    values = max((cells(figure(p.value)) for p in proposals), default=0)
    return min(names, page.width // (3 if page.width >= _WIDE else 2)), min(values, page.width // 5)


def _tell_criterion(page: Page, proposal: Proposal, widths: tuple[int, int]) -> None:
    because = "" if proposal.given and proposal.reason == _GIVEN else words(reason(proposal))
    label, value = (name(proposal.name), widths[0]), (figure(proposal.value), widths[1])
    if page.width >= _WIDE:
        page.columns([label, value, (because, 0)], indent=MARGIN + 2)
        return
    page.columns([label, (value[0], 0)], indent=MARGIN + 2)
    if because:
        page.line((because, "dim"), indent=MARGIN + 4)


def reason(proposal: Proposal) -> str:
    """Why a criterion is what it is; of what the user wrote, in place of which proposal."""
    return (
        f"in place of {figure(proposal.proposed)}, proposed as {proposal.reason}"
        if proposal.changed
        else proposal.reason
    )


def margins_of(state: SessionState) -> Iterator[tuple[float, str]]:
    """Every margin of a case on the checkpoint's weights, in the baseline and in the trial."""
    for id_, case in state.cases.items():
        for told in (case.baseline, case.trial):
            if told is not None and told.figures.margin is not None:
                yield told.figures.margin, id_
