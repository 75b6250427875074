"""What was diagnosed: place, evidence and mend of every finding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from amptui.findings.finding import Finding
from amptui.report.document import Block, Bullets, Code, Facts, Mark, Paragraph, Part, Section, Strong, Words
from amptui.report.figures import name, place, words
from amptui.report.recorded import Recorded
from amptui.report.told_next import where_regions_go


def findings_section(recorded: Recorded) -> Section | None:
    reached = recorded.verdict
    findings = reached.findings if reached is not None else recorded.state.findings
    if reached is None and not findings:
        return None
    blocks: list[Block] = [_part(finding) for finding in findings]
    if not blocks:
        blocks.append(Paragraph((Mark("ok"), "Nothing was found.")))
    if reached is not None and reached.verdict != "accept" and reached.fp32_regions:
        policy = recorded.trial.started.policy if recorded.trial is not None else None
        where = words(where_regions_go(reached.fp32_regions, policy))
        blocks.append(Paragraph(("What mends it: run in FP32 ", *_codes(reached.fp32_regions), f". Write it {where}")))
    return Section("findings", "Findings", blocks)


def _part(finding: Finding) -> Part:
    kind = finding.kind.replace("_", " ")
    title: Words = (
        Mark("fail" if finding.severity == "fault" else "warn"),
        f"{kind}: {finding.severity}{_when(finding)}",
    )
    rows: list[tuple[str, Words]] = []
    where = [part for part in (name(finding.module), name(finding.op or ""), place(finding.line)) if part]
    if where:
        rows.append(("Where", _joined([Code(part) for part in where])))
    rows.append(("Stage", finding.stage))
    if finding.update:
        rows.append(("Update", Code(finding.update)))
    if finding.fp32_ok is not None:
        rows.append(("In true FP32", "does not happen" if finding.fp32_ok else "happens too"))
    blocks: list[Block] = [Facts(rows)]
    if finding.evidence:
        blocks.append(Bullets([words(fact) for fact in finding.evidence]))
    if finding.advice:
        blocks.append(Paragraph((Strong("What to do:"), " ", words(finding.advice))))
    return Part(title, blocks)


def _when(finding: Finding) -> str:
    if finding.case is not None:
        return f", case {name(finding.case)}"
    return f", iteration {finding.step:,}" if finding.step is not None else ""


def _codes(texts: Iterable[str]) -> tuple[Code | str, ...]:
    return _joined([Code(text) for text in texts])


def _joined(codes: Sequence[Code]) -> tuple[Code | str, ...]:
    parts: list[Code | str] = []
    for code in codes:
        parts += [" · ", code] if parts else [code]
    return tuple(parts)
