"""Findings that the engine has traced to a place, put where the general ones of the same failure stood.

A located finding speaks about the same failure as a general one where the case is the same, or step and update are
(a located finding without an update fits any), and both are a cause, or both are damage to buffers, or to weights.
Then it takes the general one's place: its place, kind and evidence are the closer ones. Three things the general one
knows better, because tracing one iteration cannot see them:

* a skip that a lower scale mends stays what it is, however bad the traced value looked at that scale;
* what FP32 shows as well stays `not_precision`;
* `fp32_ok` is true only where both say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from amptui.findings.finding import Finding

#: Kinds that say how a number went wrong; `not_precision` overrules them, not a wrong loop or dtype.
_NUMERIC = ("overflow", "underflow", "rounding")
#: Kinds that say that FP32 does it too.
_FP32_TOO = ("not_precision", "randomness")


def with_located(
    general: Iterable[Finding], located: Sequence[Finding], details: Sequence[Finding] = ()
) -> tuple[Finding, ...]:
    """`general` with each finding replaced by the located ones of the same failure; the other located ones follow.

    `details` are located too, and left out where they replace nothing.
    """
    found: list[Finding] = []
    used: set[int] = set()
    told: dict[int, int] = {}
    for finding in general:
        detail = next((i for i, d in enumerate(details) if _same_failure(d, finding) and d.kind == finding.kind), None)
        if detail is not None and detail in told:  # two sides of one failure
            found[told[detail]] = _together(found[told[detail]], finding)
            continue
        if detail is not None:
            told[detail] = len(found)
            found.append(_merged(details[detail], finding))
            continue
        closer = [i for i, one in enumerate(located) if _same_failure(one, finding)]
        fresh = [i for i in closer if i not in used]
        found.extend(_merged(located[i], finding) for i in fresh)
        used.update(fresh)
        if not closer:
            found.append(finding)
    rest = [one for i, one in enumerate(located) if i not in used]
    # Whoever traced a failure replayed it in FP32; where it did not say, nothing speaks against FP32.
    found.extend(one if one.fp32_ok is not None else replace(one, fp32_ok=one.kind not in _FP32_TOO) for one in rest)
    return tuple(found)


def _together(told: Finding, finding: Finding) -> Finding:
    """A finding with what another one of the same failure adds; the later one knows better what to do."""
    return replace(
        told,
        severity="fault" if "fault" in (told.severity, finding.severity) else "notice",
        evidence=(*told.evidence, *(fact for fact in finding.evidence if fact not in told.evidence)),
        advice=finding.advice,
        facts={**told.facts, **finding.facts},
    )


def _same_failure(located: Finding, general: Finding) -> bool:
    if _role(located) != _role(general):
        return False
    if _is_skip(general) and located.stage not in ("backward", "gradient"):
        return False  # what goes wrong in the forward pass is not the scale's doing
    if general.stage == "error" and located.stage != "error":
        return False  # what made the project's own check raise is a finding of its own
    if located.case is not None or general.case is not None:
        return located.case == general.case
    if general.step is None and "baseline_step" in general.facts:  # FP32 alone failed: no step of the trial's did
        same_step = located.facts.get("baseline_step") == general.facts["baseline_step"]
        return same_step and located.update == general.update
    return (
        general.step is not None
        and located.step == general.step
        and (located.update is None or located.update == general.update)
    )


def _is_skip(general: Finding) -> bool:
    return general.kind == "scaler" and "fitting_scale" in general.facts


def _role(finding: Finding) -> str:
    """Damage and a collapsed scale are consequences; a tensor bad from the start is a cause, wherever it lies."""
    if finding.kind == "state_damage" or finding.stage == "scaler":
        return finding.stage
    return "decision" if finding.stage == "decision" else "cause"


def _merged(located: Finding, general: Finding) -> Finding:
    fp32_ok = general.fp32_ok is not False and located.fp32_ok is not False
    facts = {**general.facts, **located.facts}
    update = located.update if located.update is not None else general.update
    if _is_skip(general):
        return replace(
            general,
            module=located.module,
            op=located.op,
            line=located.line,
            evidence=(*general.evidence, *located.evidence),
            facts=facts,
        )
    kind = general.kind if general.kind in _FP32_TOO and located.kind in _NUMERIC else located.kind
    return replace(
        located,
        kind=kind,
        severity=general.severity,
        update=update,
        fp32_ok=fp32_ok,
        evidence=(*located.evidence, *(fact for fact in general.evidence if fact not in located.evidence)),
        advice=general.advice if kind != located.kind else located.advice or general.advice,
        facts=facts,
    )
