"""From what a checkpoint holds to findings with advice: pure functions on plain values."""

from __future__ import annotations

from collections.abc import Iterator

from amptui.findings.finding import Finding
from amptui.inspection.rules.code_rules import code_findings
from amptui.inspection.rules.evidence import Evidence
from amptui.inspection.rules.resume_rules import resume_findings
from amptui.inspection.rules.scaler_rules import scaler_findings
from amptui.inspection.rules.tensor_rules import tensor_findings

__all__ = ["Evidence", "findings_of"]


def findings_of(evidence: Evidence) -> tuple[Finding, ...]:
    """Every finding: faults before notices, and within these in the order of the rules."""
    found: list[Finding] = [*_all(evidence)]
    return tuple(sorted(found, key=lambda finding: finding.severity == "notice"))


def _all(evidence: Evidence) -> Iterator[Finding]:
    yield from code_findings(evidence)
    yield from scaler_findings(evidence)
    yield from tensor_findings(evidence)
    yield from resume_findings(evidence)
