"""What decided: each criterion's rows, and every case beside its baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from amptui.findings.criteria import limits_for
from amptui.findings.judgement import Row
from amptui.findings.policies import TrialSummary
from amptui.findings.words import listed
from amptui.protocol.events import BaselineCaseRun, TrialCaseRun
from amptui.protocol.facts import CaseFigures, OutputFacts
from amptui.report.document import Block, Code, Column, Mark, Paragraph, Section, Sign, Strong, Table, Words
from amptui.report.figures import figure, name, words
from amptui.report.recorded import Recorded
from amptui.report.sections.head import SIGNS, glance
from amptui.report.told_rows import ASKED, OF_LIMIT, limit, made_of, measured, of_limit, of_limit_text, unit_notes
from amptui.report.told_trial import scale_course
from amptui.session.side_by_side import recommendation, summaries
from amptui.session.state import SessionState

#: What a page can hold; the JSON has them all.
_MOST_ROWS = 100
_MOST_CASES = 200


def verdict_section(recorded: Recorded) -> Section:
    rows = recorded.verdict.rows if recorded.verdict is not None else ()
    blocks: list[Block] = [glance(recorded)]
    if rows:
        blocks.append(_criteria(rows))
        shown = [row for row in rows if row.passed is not True]
        if shown:
            blocks.append(_rows(shown))
    if len(recorded.state.trials) > 1:
        blocks += _trials(recorded)
    if recorded.opened_again:
        blocks.append(Paragraph("The project was opened once more after this trial, without another one."))
    return Section("verdict", "Verdict", blocks)


def _criteria(rows: Sequence[Row]) -> Table:
    lines: list[Sequence[Words]] = []
    for criterion in dict.fromkeys(row.criterion for row in rows):
        judged = [row for row in rows if row.criterion == criterion and row.passed is not None]
        passed = sum(row.passed is True for row in judged)
        result: Words = (Mark("told"), "shown, not judged")
        if judged:
            sign: Sign = "ok" if passed == len(judged) else "fail"
            result = (Mark(sign), "passed" if sign == "ok" else "failed")
        parts = made_of(judged)
        count = f"{passed:,} of {len(judged):,}{f' ({parts})' if parts else ''}" if judged else ""
        lines.append((criterion, ASKED[criterion], count, result))
    columns = (Column("Criterion"), Column("Asks that"), Column("Rows passed", number=True), Column("Result"))
    return Table("Rows that decide", columns, lines)


def _rows(rows: Sequence[Row]) -> Table:
    """Rows about the same thing with the same limit in one line, with the figures of the first of them."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.passed is None):
        groups.setdefault((row.criterion, row.what, figure(row.limit), row.passed), []).append(row)
    lines: list[Sequence[Words]] = [_group(group) for group in list(groups.values())[:_MOST_ROWS]]
    columns = (
        Column("Row"),
        Column("Cases"),
        Column("FP32", number=True),
        Column("Trial", number=True),
        Column("Measured", number=True),
        Column("Limit", number=True),
        Column("Result"),
    )
    note = " ".join(("Where cases share a line, its figures are those of the first.", *unit_notes(rows)))
    if len(groups) > _MOST_ROWS:
        note += f" {len(groups) - _MOST_ROWS:,} more lines are in the report's JSON."
    return Table("Rows that failed, and rows that only tell", columns, lines, note)


def _group(rows: Sequence[Row]) -> Sequence[Words]:
    first = rows[0]
    cases = [row.case for row in rows if row.case is not None]
    return (
        words(first.what),
        f"{len(cases):,}: {listed(cases)}" if len(cases) > 1 else name(cases[0]) if cases else "",
        figure(first.baseline),
        figure(first.trial),
        measured(first),
        limit(first) if first.limit is not None else "",
        (Mark("fail"), "failed") if first.passed is False else (Mark("told"), "not judged"),
    )


def _policy(trial: TrialSummary) -> str:
    regions = f", {listed(trial.policy.fp32_regions)} in FP32" if trial.policy.fp32_regions else ""
    return f"{name(trial.name)}{regions}"


def _trials(recorded: Recorded) -> list[Block]:
    """Several policies side by side, and which one to take."""
    state, subject = recorded.state, recorded.trial
    lines: list[Sequence[Words]] = []
    for trial, told in zip(summaries(state), state.trials, strict=True):
        applied = [f"{count.applied:,} of {count.iterations:,}" for count in trial.counts]
        time, memory = trial.claim("time"), trial.claim("memory")
        lines.append(
            (
                f"{trial.trial}{' (this report)' if told is subject else ''}",
                _policy(trial),
                f"{told.started.revision}",
                (Mark(SIGNS[trial.verdict]), trial.verdict) if trial.verdict is not None else "not finished",
                ", ".join(trial.failed) or "none",
                ", ".join(applied),
                scale_course(trial.scaler) if trial.scaler is not None else "none",
                figure(trial.quality) if trial.quality is not None else "",
                "; ".join(words(claim.words) for claim in (time, memory) if claim is not None) or "not measured",
            )
        )
    columns = (
        Column("Trial"),
        Column("Policy"),
        Column("Criteria", number=True),
        Column("Verdict"),
        Column("Failed"),
        Column("Applied updates", number=True),
        Column("Loss scale"),
        Column("Quality", number=True),
        Column("Time and memory"),
    )
    blocks: list[Block] = [Table("Policies side by side", columns, lines, "Criteria: the revision that was in force.")]
    advised = recommendation(state)
    return (
        [*blocks, Paragraph((Strong("Recommendation:"), " ", words(advised.words)))] if advised is not None else blocks
    )


# Cases.


def cases_section(recorded: Recorded) -> Section | None:
    state, trial, curves = recorded.state, recorded.trial, recorded.curves
    runs = trial.cases if trial is not None else {}
    cases = [
        _Case(case, told.baseline, runs.get(case), curves.final.get(case) if curves is not None else None)
        for case, told in state.cases.items()
        if told.baseline is not None or case in runs
    ]
    if not cases:
        return None
    decides = state.project is not None and state.project.has_decide
    columns = [Column("Case"), Column("Tag")]
    if decides:
        columns += [Column("FP32 decides"), Column("Trial decides"), Column("Margin FP32 → trial", number=True)]
    columns += [Column("Off by", number=True), Column("Of limit", number=True), Column("Result")]
    note = f"Before the stretch, on the checkpoint's weights. {_tolerances(cases, state)}".strip()
    if len(cases) > _MOST_CASES:
        note += f" {len(cases) - _MOST_CASES:,} more cases are in the report's JSON."
    lines = [case.line(decides=decides) for case in cases[:_MOST_CASES]]
    return Section("cases", "Cases", [Table("Evaluation cases, trial beside FP32", columns, lines, note)])


def _tolerances(cases: Sequence[_Case], state: SessionState) -> str:
    """What each output may differ by."""
    limits = {
        difference.name: difference.limit
        for case in cases
        if case.trial is not None
        for difference in case.trial.differences
    }
    if not limits or state.locked is None:
        return ""
    parts = []
    for output, atol in limits.items():
        rtol = limits_for(state.locked.criteria, output)[1]
        parts.append(f"{name(output)} by {figure(atol)}{f' + {figure(rtol)} × |FP32|' if rtol else ''}")
    return f"Allowed to differ: {', '.join(parts)}. Off by: the largest difference. Of limit: {OF_LIMIT}."


@dataclass(frozen=True)
class _Case:
    """One case: in FP32, in the trial, and in the trial after its stretch."""

    name: str
    baseline: BaselineCaseRun | None
    trial: TrialCaseRun | None
    final: CaseFigures | None

    def line(self, *, decides: bool) -> Sequence[Words]:
        told = self.trial or self.baseline
        assert told is not None
        line: list[Words] = [Code(self.name), told.figures.tag]
        if decides:
            line += [
                figure(self.baseline.figures.decision) if self.baseline is not None else "",
                figure(self.trial.figures.decision) if self.trial is not None else "",
                " → ".join(
                    figure(run.figures.margin)
                    for run in (self.baseline, self.trial)
                    if run is not None and run.figures.margin is not None
                ),
            ]
        if self.trial is None:
            return [*line, "", "", (Mark("warn"), "not run in the trial")]
        largest = max((d.largest for d in self.trial.differences), key=_badness, default=0.0)
        worst = max(self.trial.differences, key=lambda d: _badness(of_limit(d.measured, d.limit)), default=None)
        share = of_limit_text(worst.measured, worst.limit) if worst is not None else ""
        return [*line, figure(largest), share, self._result(self.trial)]

    def _result(self, trial: TrialCaseRun) -> Words:
        if any(d.nonfinite for d in trial.differences):
            return (Mark("fail"), "not finite")
        if trial.decision_stands is False:
            return (Mark("fail"), "decision changed")
        if any(not d.measured <= d.limit for d in trial.differences):
            return (Mark("fail"), "out of tolerance")
        before = {output.name for output in trial.figures.outputs if _nonfinite(output)}
        after = self.final.outputs if self.final is not None else ()
        if any(_nonfinite(output) and output.name not in before for output in after):
            return (Mark("fail"), "not finite after the stretch")
        return (Mark("ok"), "held")


def _nonfinite(output: OutputFacts) -> bool:
    return bool(output.nan or output.positive_inf or output.negative_inf)


def _badness(value: float) -> float:
    return math.inf if math.isnan(value) else value
