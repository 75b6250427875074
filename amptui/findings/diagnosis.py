"""All findings of a trial: general ones from the evidence, traced ones in their place, causes first."""

from __future__ import annotations

from collections.abc import Iterator

from amptui.findings.cases import case_findings
from amptui.findings.evidence import TrialEvidence
from amptui.findings.finding import Finding, causes_first
from amptui.findings.gradients import baseline_alone, first_iteration, no_gradient, silent_layers, zero_gradients
from amptui.findings.lasting import consequences_of
from amptui.findings.located import with_located
from amptui.findings.raised import raised_findings
from amptui.findings.steadiness import baseline_findings
from amptui.findings.trips import cause_of


def diagnose(evidence: TrialEvidence) -> tuple[Finding, ...]:
    """The findings of a trial, faults first; every `fp32_ok` is known, because a baseline ran."""
    return causes_first(with_located(_general(evidence), evidence.located, evidence.details))


def _general(evidence: TrialEvidence) -> Iterator[Finding]:
    for trip in evidence.trips:
        cause = cause_of(evidence, trip)
        yield cause
        yield from consequences_of(evidence, trip, cause)
    yield from raised_findings(evidence)
    yield from first_iteration(evidence)
    for counts in evidence.counts:
        yield from zero_gradients(evidence, counts)
        yield from no_gradient(evidence, counts)
    for silent in evidence.silent:
        yield silent_layers(evidence, silent)
    yield from baseline_findings(evidence)
    yield from case_findings(evidence)
    yield from baseline_alone(evidence)
