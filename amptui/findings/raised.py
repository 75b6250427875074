"""User code that raised: under the policy alone it is the policy's doing, in FP32 too it is the project's."""

from __future__ import annotations

import re

from amptui.findings.evidence import CodeFailure, TrialEvidence
from amptui.findings.finding import Finding, Kind
from amptui.findings.words import counted, regions_in_code
from amptui.text import safe_text

_NOT_FINITE = re.compile(r"\b(nan|nans|inf|infs|infinite|infinity|non-?finite|not finite)\b", re.IGNORECASE)

#: What code raises that looks at its own numbers, and torch's functions that do.
_OF_CHECKS = ("AssertionError", "ValueError", "RuntimeError", "FloatingPointError", "ArithmeticError", "_LinAlgError")
MET_BY_A_CHECK = "A check met a value that is not finite: find where it began and run that module in FP32."


def raised_findings(evidence: TrialEvidence) -> tuple[Finding, ...]:
    """One finding per error and place; a policy failure that FP32 shows as well is said once, as the project's own."""
    first: dict[tuple[str, str | None, str], list[CodeFailure]] = {}
    for failure in evidence.failures:
        if failure.under != "fp32" and _in_fp32_too(evidence, failure):
            continue
        first.setdefault((failure.exception, failure.where, failure.under), []).append(failure)
    return tuple(_finding(evidence, group) for group in first.values())


def policy_alone(evidence: TrialEvidence) -> bool:
    """Whether user code fails under the policy and not in FP32."""
    return any(f.under != "fp32" and not _in_fp32_too(evidence, f) for f in evidence.failures)


def fails_in_fp32(evidence: TrialEvidence) -> bool:
    return any(failure.under == "fp32" for failure in evidence.failures)


def _in_fp32_too(evidence: TrialEvidence, failure: CodeFailure) -> bool:
    return any(
        other.under == "fp32" and (other.exception, other.phase) == (failure.exception, failure.phase)
        for other in evidence.failures
    )


def _finding(evidence: TrialEvidence, group: list[CodeFailure]) -> Finding:
    failure = group[0]
    in_fp32 = failure.under == "fp32"
    others = (f"the same {counted(len(group) - 1, 'more time')}",) if len(group) > 1 else ()
    where = f" in {failure.phase}" if failure.phase else ""
    return Finding(
        kind="not_precision" if in_fp32 else kind_of_error(failure.exception, failure.message),
        severity="fault",
        stage="error",
        step=failure.step if failure.step is not None else _index(evidence, failure.case),
        case=failure.case,
        update=failure.update,
        module=failure.module,
        op=failure.op,
        line=failure.where,
        fp32_ok=not in_fp32,
        evidence=(
            f"{safe_text(failure.exception, 80)}: {safe_text(failure.message, 300)}",
            f"raised{where} {'in FP32' if in_fp32 else f'under {evidence.policy.dtype}, not in FP32'}",
            *others,
        ),
        advice=_advice(failure, in_fp32),
        facts={"exception": failure.exception, "phase": failure.phase},
    )


def kind_of_error(exception: str, message: str) -> Kind:
    """Mostly two dtypes that meet or a constant that does not fit; a project's own check for NaN names its cause."""
    if "autocast" in message.lower():
        return "autocast_state"
    return "overflow" if exception in _OF_CHECKS and _NOT_FINITE.search(message) else "dtype"


def _advice(failure: CodeFailure, in_fp32: bool) -> str:
    if in_fp32:
        return "Mend this first: the project does not run in FP32."
    if kind_of_error(failure.exception, failure.message) == "overflow":
        return MET_BY_A_CHECK
    cast = "Cast where two dtypes meet, as in x.to(y.dtype), and take constants from torch.finfo(x.dtype)"
    if failure.module in ("", "loss", "decide", "outputs", "quality"):
        return f"{cast}; or name the module that gives this value its dtype in fp32_regions of the policy."
    return f"{cast}; or keep the module in FP32: {regions_in_code([failure.module])}."


def _index(evidence: TrialEvidence, case: str | None) -> int | None:
    known = {c.case: c.index for c in evidence.cases} | {c.case: c.index for c in evidence.final_cases}
    return known.get(case) if case is not None else None
