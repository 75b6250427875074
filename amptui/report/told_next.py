"""After a verdict that is no accept: where a mend is to be written, and how to look closer, as commands to copy."""

from __future__ import annotations

import json
from collections.abc import Sequence

from amptui.project import Policy
from amptui.report.figures import words
from amptui.report.page import Page
from amptui.session.side_by_side import chosen
from amptui.session.state import SessionState
from amptui.text import shell_word


def tell_next(page: Page, state: SessionState, *, session: str, spec: str, options: Sequence[str]) -> None:
    """What can be done about the verdict. `options` are those that the check was given beside SPEC."""
    trial = chosen(state)
    if trial is None or trial.verdict is None or trial.verdict.verdict == "accept":
        return
    advice = " ".join(finding.advice for finding in trial.verdict.findings)
    if trial.verdict.fp32_regions:
        page.field("mend it", words(where_regions_go(trial.verdict.fp32_regions, trial.started.policy)))
    elif "Policy(" in advice or "Scaler(" in advice:
        page.field("mend it", "what the advice names goes into the project, Project(…, policy=Policy(…)), "
                   "or into amptui.yaml under policy:")  # fmt: skip
    page.field("step to it", "the same on the screen, phase by phase, where it can be diagnosed and tried again:")
    page.command("amptui run", shell_word(spec), *map(shell_word, options))
    kept = next((case for case in state.retained), None)
    if kept is not None:
        page.field("replay it", "the failing iteration that was kept, once more after an edit:")
        page.command("amptui replay", shell_word(kept.id), "--session", shell_word(session))
    page.field("show it", "a report on what the verdict rests, for a colleague to judge:")
    page.command("amptui report", shell_word(session), "-o report.html")


def where_regions_go(regions: Sequence[str], policy: Policy | None = None) -> str:
    """The two places for FP32 regions, each as it is to be written; those that `policy` names already stay."""
    before = policy.fp32_regions if policy is not None else ()
    listed = list(dict.fromkeys((*before, *regions)))
    dtype = policy.dtype if policy is not None and policy.dtype != Policy().dtype else None
    python = f"{f'dtype={dtype!r}, ' if dtype else ''}fp32_regions={listed!r}"
    yaml = f"fp32_regions: {json.dumps(listed, ensure_ascii=False)}"
    return f"in the project: policy=Policy({python}), or in amptui.yaml under policy: {yaml}"
