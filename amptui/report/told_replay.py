"""What `amptui replay` says: the retained cases of a session, and what came of one."""

from __future__ import annotations

from collections.abc import Sequence

from amptui.findings.verdict import suggested_regions
from amptui.protocol.events import CaseReplayed, CaseRetained
from amptui.report.figures import from_here, place, size, words
from amptui.report.told_next import where_regions_go
from amptui.text import safe_text, shell_word

_OUTCOMES = {
    "fixed": "FIXED: everything is finite now",
    "same": "SAME: it fails where it failed before",
    "other_place": "OTHER PLACE: it fails, but not where it failed before",
}


def list_retained(session: str, cases: Sequence[CaseRetained]) -> str:
    """One line for each case, and how to replay one."""
    if not cases:
        return f"session {safe_text(session)} retained no case: no update was held back"
    lines = [
        f"{safe_text(one.id)}   step {one.step}   update {safe_text(one.update)}   {one.outcome}   {size(one.bytes)}"
        for one in cases
    ]
    return "\n".join([*lines, "", f"amptui replay {safe_text(cases[0].id)} --session {shell_word(session)}"])


def say_replayed(event: CaseReplayed) -> str:
    """Outcome, place, what was varied, and the advice."""
    lines = [f"{safe_text(event.id)}: {_OUTCOMES[event.outcome]} ({safe_text(event.replayed)})", ""]
    width = max((len(varied) for varied, _ in event.variations), default=0)
    lines += [f"  {safe_text(varied):{width}}   {safe_text(happened)}" for varied, happened in event.variations]
    for finding in event.findings:
        where = " · ".join(
            safe_text(part) for part in (finding.stage, finding.module, finding.op, place(finding.line)) if part
        )
        lines += ["", f"  {finding.kind}: {where}"]
        lines += [f"    {safe_text(from_here(fact), 600)}" for fact in finding.evidence]
        lines += [f"    → {safe_text(finding.advice, 600)}"]
    regions = suggested_regions(event.findings)
    if regions:
        lines += ["", f"  Write it {words(where_regions_go(regions))}"]
    return "\n".join(lines)
