"""The account of stage 5: the verdict, the rows that decide it, what was found, and what to do about it."""

from __future__ import annotations

import math

from amptui.findings.finding import Finding
from amptui.findings.judgement import Row, Verdict
from amptui.findings.telling import most_telling
from amptui.findings.words import counted
from amptui.protocol.events import VerdictReached
from amptui.report.figures import figure, from_here, name, place, words
from amptui.report.page import LABEL, Mark, Page, cells
from amptui.report.told_baseline import margins_of, smallest
from amptui.report.told_interventions import say_interventions
from amptui.report.told_rows import ASKED, is_gradient, limit, made_of, measured, most_of_limit, of_limit_text
from amptui.session.state import SessionState

_SIGNS: dict[Verdict, tuple[Mark, str]] = {
    "accept": ("ok", "bold green"),
    "reject": ("fail", "bold red"),
    "inconclusive": ("warn", "bold yellow"),
}


def tell_verdict(page: Page, event: VerdictReached, state: SessionState, *, cause: Finding | None = None) -> None:
    """`cause`: the finding that is told right below the sentence, instead of behind the rows."""
    mark, style = _SIGNS[event.verdict]
    page.rule(heavy=True, style=style)
    page.marked(mark, (event.verdict.upper(), style))
    page.line(_sentence(event), indent=LABEL)
    page.rule(heavy=True, style=style)
    if cause is not None:
        tell_finding(page, cause)
    marked = say_interventions(event, state)
    if marked:
        if cause is not None:
            page.blank()
        page.marked("warn", marked)
    _tell_rows(page, event.rows)
    margins = list(margins_of(state))
    if margins:
        margin, case = smallest(margins)
        page.blank()
        page.field("margin", f"the smallest is {figure(margin)} ({name(case)})")
    most = most_of_limit(state)
    if most:
        if not margins:
            page.blank()
        page.field("of limit", most)
    _tell_findings(page, event.findings, told=cause)
    if event.fp32_regions:
        page.blank()
        page.field("suggested", f"run in FP32: {', '.join(map(name, event.fp32_regions))}")


def _sentence(event: VerdictReached) -> str:
    """The sentence without the verdict's own word, which stands above it."""
    text = from_here(words(event.words))
    word = f"{event.verdict}: "
    if not text.lower().startswith(word):
        return text
    text = text[len(word) :]
    return text[:1].upper() + text[1:]


# Rows.


def _tell_rows(page: Page, rows: tuple[Row, ...]) -> None:
    """One line per criterion; below it every row that failed or only tells."""
    apart = True
    for criterion in dict.fromkeys(row.criterion for row in rows):
        group = [row for row in rows if row.criterion == criterion]
        judged = [row for row in group if row.passed is not None]
        failed = [row for row in judged if not row.passed]
        shown = [row for row in group if row.passed is not True]
        if apart or shown:
            page.blank()
        apart = bool(shown)
        mark: Mark = "fail" if failed else "ok" if judged else "told"
        passed = f"{len(judged) - len(failed):,} of {len(judged):,} passed" if judged else "shown, not judged"
        parts = made_of(judged)
        page.field(criterion, f"{passed}{f' ({parts})' if parts else ''} · {ASKED[criterion]}", mark=mark)
        for key in dict.fromkeys(map(_subject, shown)):
            _tell_alike(page, [row for row in shown if _subject(row) == key])


def _subject(row: Row) -> tuple[str, str, bool | None]:
    return row.what, figure(row.limit), row.passed


def _tell_alike(page: Page, rows: list[Row]) -> None:
    """Rows about the same thing with the same limit, each in full: its case, baseline, trial and measured figure."""
    first = rows[0]
    parts = [words(first.what)]
    if first.limit is not None:
        parts.append(f"limit {limit(first)}")
    if first.passed is None and first.limit is not None:
        parts.append("shown, not judged")
    page.line(" · ".join(parts), indent=LABEL, hang=2)
    lines = [(name(row.case or ""), f"baseline {figure(row.baseline)}", _trial(row)) for row in rows]
    case_width = min(max(cells(case) for case, _, _ in lines), page.width // 3)
    width = min(max(cells(baseline) for _, baseline, _ in lines), (page.width - case_width) // 2 - LABEL)
    for case, baseline, trial in lines:
        columns = [(baseline, width), (trial, 0)]
        page.columns([(case, case_width), *columns] if case_width else columns, indent=LABEL + 2)


def _trial(row: Row) -> str:
    """The trial's side, and the measured figure where it says more than that."""
    said = f"trial {figure(row.trial)}"
    told = row.measured is not None and math.isfinite(row.measured) and row.measured != row.trial
    if not told:
        return said
    if row.criterion == "difference":
        if is_gradient(row):
            return f"{said} · difference {figure(row.measured)} of FP32's norm"
        if not isinstance(row.limit, int | float):
            return f"{said} · apart by {figure(row.measured)}"
        return f"{said} · {of_limit_text(row.measured or 0.0, row.limit)} of limit"
    if row.criterion == "progress":
        return f"{said} · {measured(row)}"
    return f"{said} · drop {figure(row.measured)}" if row.criterion == "quality" else said


# Findings.


def _tell_findings(page: Page, findings: tuple[Finding, ...], *, told: Finding | None = None) -> None:
    if told is not None:
        findings = tuple(finding for finding in findings if finding is not told)
        if not findings:
            return
    page.blank()
    if not findings:
        page.marked("ok", "no findings")
        return
    faults = sum(finding.severity == "fault" for finding in findings)
    both = [counted(faults, "fault")] * bool(faults) + [counted(len(findings) - faults, "notice")] * (
        faults < len(findings)
    )
    page.line((f"{'Further findings' if told is not None else 'Findings'}: {', '.join(both)}", "bold"))
    for finding in findings:
        page.blank()
        tell_finding(page, finding)


def tell_finding(page: Page, finding: Finding) -> None:
    """Kind and place on one line; module, operator and source line, evidence and advice below."""
    when = f" · case {name(finding.case)}" if finding.case is not None else ""
    if not when and finding.step is not None:
        when = f" · step {finding.step:,}"
    update = f" · update {name(finding.update)}" if finding.update else ""
    mark: Mark = "fail" if finding.severity == "fault" else "warn"
    page.marked(
        mark, (finding.kind.replace("_", " "), "bold"), f" · {finding.severity} · {finding.stage}{when}{update}"
    )
    where = [part for part in (name(finding.module), name(finding.op or ""), place(finding.line)) if part]
    if where:
        page.field("where", " · ".join(where))
    if finding.fp32_ok is not None:
        page.field("in FP32", "does not happen" if finding.fp32_ok else "happens too")
    telling, more = most_telling(finding.evidence)
    for number, fact in enumerate(telling):
        page.field("" if number else "evidence", from_here(words(fact)))
    if more:
        page.field("", (f"and {more} more in the report and the JSON", "dim"))
    if finding.advice:
        page.field("advice", words(finding.advice))
