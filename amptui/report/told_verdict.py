"""The account of stage 5: the verdict, the rows that decide it, what was found, and what to do about it."""

from __future__ import annotations

from amptui.findings.finding import Finding
from amptui.findings.judgement import Criterion, Row, Verdict
from amptui.findings.words import counted
from amptui.protocol.events import VerdictReached
from amptui.report.figures import figure, name, place, words
from amptui.report.page import LABEL, VALUE, Mark, Page
from amptui.report.told_baseline import margins_of, smallest
from amptui.session.state import SessionState

_SIGNS: dict[Verdict, tuple[Mark, str]] = {
    "accept": ("ok", "bold green"),
    "reject": ("fail", "bold red"),
    "inconclusive": ("warn", "bold yellow"),
}
_ASKED: dict[Criterion, str] = {
    "finite": "no NaN, no infinity that FP32 does not have",
    "difference": "outputs, first loss and first gradient near FP32",
    "decision": "what the project decides stands",
    "quality": "the project's own measure does not fall too far",
    "updates": "enough updates reach the weights",
    "progress": "the late loss beside the baseline's",
}


def tell_verdict(page: Page, event: VerdictReached, state: SessionState) -> None:
    mark, style = _SIGNS[event.verdict]
    page.marked(mark, (event.verdict.upper(), style))
    page.line(_sentence(event), indent=LABEL)
    if event.interventions:
        page.marked("warn", f"{counted(event.interventions, 'intervention')}: an unattended run confirms a verdict.")
    _tell_rows(page, event.rows)
    margins = list(margins_of(state))
    if margins:
        margin, case = smallest(margins)
        page.field("margin", f"the smallest is {figure(margin)} ({name(case)})")
    _tell_findings(page, event.findings)
    if event.fp32_regions:
        page.blank()
        page.field("in FP32", f"suggested: {', '.join(map(name, event.fp32_regions))}")


def _sentence(event: VerdictReached) -> str:
    """The sentence without the verdict's own word, which stands above it."""
    text = words(event.words)
    word = f"{event.verdict}: "
    if not text.lower().startswith(word):
        return text
    text = text[len(word) :]
    return text[:1].upper() + text[1:]


# Rows.


def _tell_rows(page: Page, rows: tuple[Row, ...]) -> None:
    page.blank()
    for criterion in dict.fromkeys(row.criterion for row in rows):
        group = [row for row in rows if row.criterion == criterion]
        judged = [row for row in group if row.passed is not None]
        failed = [row for row in judged if not row.passed]
        mark: Mark = "fail" if failed else "ok" if judged else "told"
        passed = f"{len(judged) - len(failed):,} of {len(judged):,} passed" if judged else "shown, not judged"
        page.field(criterion, f"{passed} · {_ASKED[criterion]}", mark=mark)
        for row in group:
            if row.passed is not True:
                _tell_row(page, row)


def _tell_row(page: Page, row: Row) -> None:
    """One failed row, or one that only tells, in full."""
    case = f"case {name(row.case)} · " if row.case is not None else ""
    page.line(f"{case}{words(row.what)}", indent=VALUE, hang=2)
    figures = [f"baseline {figure(row.baseline)}", f"trial {figure(row.trial)}"]
    if (
        row.measured is not None
        and row.measured != row.trial
        and row.criterion in ("difference", "quality", "progress")
    ):
        figures.append(f"measured {figure(row.measured)}")
    if row.limit is not None:
        figures.append(f"limit {figure(row.limit)}")
    page.line(" · ".join(figures), indent=VALUE + 2)


# Findings.


def _tell_findings(page: Page, findings: tuple[Finding, ...]) -> None:
    page.blank()
    if not findings:
        page.marked("ok", "no findings")
        return
    faults = sum(finding.severity == "fault" for finding in findings)
    both = [counted(faults, "fault")] * bool(faults) + [counted(len(findings) - faults, "notice")] * (
        faults < len(findings)
    )
    page.line((f"Findings: {', '.join(both)}", "bold"))
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
    where = [name(part) for part in (finding.module, finding.op) if part] + [place(finding.line)] * bool(finding.line)
    if where:
        page.field("where", " · ".join(where))
    if finding.fp32_ok is not None:
        page.field("in FP32", "does not happen" if finding.fp32_ok else "happens too")
    for number, fact in enumerate(finding.evidence):
        page.field("" if number else "evidence", words(fact))
    if finding.advice:
        page.field("advice", words(finding.advice))
