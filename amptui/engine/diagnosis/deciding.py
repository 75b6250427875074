"""Why a decision changed although every output is within its tolerance: its rule, or the last rounding before it."""

from __future__ import annotations

from amptui.engine.diagnosis.deviation import Mends, last_half_op
from amptui.engine.diagnosis.mending import first_that_mends
from amptui.engine.diagnosis.observed import Observed
from amptui.findings.finding import Finding


def decision_by_dtype(observed: Observed) -> Finding:
    """The same outputs, cast to float32, decide as FP32 does: the rule looks at the dtype, or computes in it."""
    return Finding(
        kind="decision",
        severity="fault",
        stage="decision",
        step=observed.step,
        case=observed.case,
        module="decide",
        fp32_ok=True,
        evidence=(f"the same outputs decide as in FP32 once they are cast from {observed.policy.dtype} to float32",),
        advice="Cast the scores to float32 at the start of decide, and let no rule ask for the dtype.",
    )


def decision_by_rounding(observed: Observed, mends: Mends) -> tuple[Finding, ...]:
    """The op whose rounding decides, if the decision stands once its module runs in FP32."""
    place = last_half_op(observed)
    if place is None:
        return ()
    mend = first_that_mends(place.module, mends, observed.live, "decided as in FP32")
    if not mend.regions:
        return ()
    return (
        Finding(
            kind="decision",
            severity="fault",
            stage="decision",
            step=observed.step,
            case=observed.case,
            module=place.module,
            op=place.op,
            line=str(place.line) if place.line is not None else None,
            fp32_ok=True,
            evidence=(f"{place.op} rounds the scores to {observed.policy.dtype}", mend.words),
            advice="The margin is smaller than the rounding: compute the final scores in FP32, "
            f"Policy(fp32_regions={list(mend.regions)!r}), or let decide treat so small a margin as its own answer.",
            facts={"fp32_regions": list(mend.regions)},
        ),
    )
