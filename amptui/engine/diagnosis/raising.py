"""User code that raised under the policy alone: where, and what it met if a check of its own stopped the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from amptui.engine.diagnosis.mending import Mend, first_that_mends, proved_together
from amptui.engine.diagnosis.setting import Setting
from amptui.engine.diagnosis.translating import finding_of_error, findings_of_origins
from amptui.engine.failures import UserCodeError
from amptui.engine.live import LiveProject
from amptui.engine.tracing.ladder import Trace
from amptui.engine.tracing.origin import Origin
from amptui.findings.finding import Finding

#: Runs what failed once more under tracing, with these FP32 regions; the flag asks for true FP32.
TraceAgain = Callable[[tuple[str, ...], bool], Trace | None]
OUTCOME = "carried out without the error"


def findings_of_failure(
    failure: UserCodeError, trace_again: TraceAgain, live: LiveProject, *, dtype: str, step: int | None
) -> tuple[Finding, ...]:
    """The op, module and line that raised; first where the value began that a check of the project or of torch met."""
    traced = trace_again((), False)
    if traced is None or traced.error_place is None:
        return ()
    place = traced.error_place

    def mends(regions: tuple[str, ...]) -> bool:
        again = trace_again(regions, False)
        return again is not None and again.error is None

    origins: tuple[Origin, ...] = ()
    if place.problem == "other":
        healthy = trace_again((), True)
        if healthy is not None and healthy.error is None:
            origins = traced.standing(accepted=healthy.sites())
    causes = findings_of_origins(
        origins[:1],
        Setting(dtype=dtype, fp32_ok=True),
        step=step,
        case=failure.case,
        update=failure.update,
        replayed=f"{place.op or 'a check in the code'} then raised {place.error_type}",
        mend=_mend(origins[0], mends, live) if origins else None,
    )
    error = finding_of_error(
        place,
        step=step,
        case=failure.case,
        update=failure.update,
        where=failure.where,
        mend=first_that_mends(place.module, mends, live, OUTCOME) if not origins else None,
    )
    if not causes:
        return (error,)
    advice = "This check did its work: mend the cause above."
    return (*causes, replace(error, kind=causes[0].kind, advice=advice))


def _mend(origin: Origin, mends: Callable[[tuple[str, ...]], bool], live: LiveProject) -> Mend:
    """The module that the value began in, or with it those that made its operands half."""
    mend = first_that_mends(origin.module, mends, live, OUTCOME)
    return mend if mend.regions else proved_together(origin.module, origin.makers, mends, live, OUTCOME)
