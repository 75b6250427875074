"""Why a decision changed although every output is within its tolerance: its rule, or the last rounding before it."""

from __future__ import annotations

from amptui.engine.diagnosis.deviation import Mends, half_ops_of
from amptui.engine.diagnosis.mending import TRIED, Mend, first_that_mends, proved
from amptui.engine.diagnosis.observed import Observed
from amptui.findings.finding import Finding

DECIDED = "decided as in FP32"


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
    """The last op that rounds the scores, if the decision stands once it (and what feeds it) runs in FP32."""
    half_ops = half_ops_of(observed)
    if not half_ops:
        return ()
    place = half_ops[-1]
    mend = _last_modules(tuple(dict.fromkeys(op.module for op in reversed(half_ops))), observed, mends)
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
            evidence=(f"{place.op} is the last to round the scores to {observed.policy.dtype}", mend.words),
            advice="The margin is smaller than the rounding: compute the final scores in FP32, "
            f"Policy(fp32_regions={list(mend.regions)!r}), or let decide treat so small a margin as its own answer.",
            facts={"fp32_regions": list(mend.regions)},
        ),
    )


def _last_modules(modules: tuple[str, ...], observed: Observed, mends: Mends) -> Mend:
    """The fewest of these modules, from the last one backwards, that mend the decision as FP32 regions."""
    mend = first_that_mends(modules[0], mends, observed.live, DECIDED)
    known = observed.live.named_modules()
    usable = [path for path in modules if path in known and path not in observed.live.modules]
    for count in range(2, 1 + min(len(usable), TRIED)):
        if mend.regions:
            break
        mend = proved(tuple(reversed(usable[:count])), mends, DECIDED)
    return mend
