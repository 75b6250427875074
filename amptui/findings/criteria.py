"""What the trial must hold: proposals with their reasons, the digest that locks them, the bound of one output.

The rules, where the project left something open:

* rtol 16·eps, atol the same share of the output's largest baseline value, but at least four times the noise of two
  equal FP32 runs. eps is the dtype's unit of precision (float16 2^-10, bfloat16 2^-7): sixteen roundings that all go
  the same way, which a network of ordinary depth does not reach. Noise that exceeds this share by itself widens
  nothing: no kernel makes it, two equal runs differ in something else, and such a baseline decides nothing.
* `atol` given alone bounds the whole difference (rtol 0): who writes 1e-3 does not expect 12 % on top. `rtol` given
  alone gets the atol that allows the same share of the largest value, because no relative bound can hold at zero.
* `atol` and `rtol` are about outputs. Loss and gradients of iteration 0 have bounds of their own, under the names
  `loss` and `gradient` in `outputs`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from amptui.findings.evidence import OutputRange
from amptui.findings.judgement import Proposal
from amptui.findings.words import listed, number
from amptui.project import DTYPE_NAMES, Criteria

LOSS = "loss"
GRADIENT = "gradient"

#: Roundings in the same direction that an output may show; for a gradient, whose terms cancel, four times as many.
ROUNDINGS = 16
GRADIENT_ROUNDINGS = 64
#: How many times the FP32 noise a tolerance must be before it can tell anything.
NOISE_FACTOR = 4
#: Proposals that are named as the fields of `Criteria` are; all others are bounds of outputs.
PLAIN = ("decision_changes", "tie", "quality_drop", "applied_share", "progress", "atol", "rtol")
#: Proposals about decisions.
DECISIONS = ("decision_changes", "tie")
#: The share of the baseline's quality that a proposal lets go.
QUALITY_SHARE = 0.02

_ATOL_ALONE = (
    "atol alone was given, so rtol is 0: atol bounds the whole difference; write rtol too to allow a share as well"
)


@dataclass(frozen=True)
class _Precision:
    name: str
    #: Distance from 1.0 to the next number, and as text.
    eps: float
    eps_text: str
    #: The smallest number above zero.
    tiny: float


_PRECISIONS = {
    "float16": _Precision("float16", 2.0**-10, "2^-10", 2.0**-24),
    "bfloat16": _Precision("bfloat16", 2.0**-7, "2^-7", 2.0**-133),
}


@dataclass(frozen=True)
class _Bound:
    atol: float
    rtol: float
    atol_reason: str | None
    rtol_reason: str | None

    def proposals(self, name: str) -> tuple[Proposal, Proposal]:
        return (
            _proposal(f"outputs.{name}.atol", self.atol, self.atol_reason),
            _proposal(f"outputs.{name}.rtol", self.rtol, self.rtol_reason),
        )


def written_fields(criteria: Criteria | None, given_fields: Collection[str] = ()) -> frozenset[str]:
    """The fields that somebody wrote down.

    Those named in `given_fields` and those that differ from their default. Where `given_fields` names none, the
    Criteria is a project's own, written as a whole: then its `quality_drop` of 0.0 is meant too. A None always asks for
    a proposal.
    """
    if criteria is None:
        return frozenset()
    default = Criteria()
    named = set(given_fields) if given_fields else {"decision_changes", "tie", "quality_drop", "applied_share"}
    differing = {f.name for f in fields(criteria) if getattr(criteria, f.name) != getattr(default, f.name)}
    return frozenset(name for name in named | differing if getattr(criteria, name, None) is not None)


def propose(
    given: Criteria | None,
    given_fields: Collection[str],
    outputs: Mapping[str, OutputRange],
    dtype: str,
    updates: Sequence[str],
    has_quality: bool,
    quality: float | None,
) -> tuple[Criteria, tuple[Proposal, ...]]:
    """Complete criteria, and one proposal per figure with its reason (`given` where the project wrote it).

    In the result every output of the baseline has both bounds under `Criteria.outputs`; so have `loss` and `gradient`
    where there are updates. `dtype` is the trial's; `quality` the baseline's, None where it is not known.
    """
    wanted = given if given is not None else Criteria()
    written = written_fields(given, given_fields)
    precision = _PRECISIONS[DTYPE_NAMES[dtype]]
    bounds = {name: _output_bound(wanted, name, output, precision) for name, output in outputs.items()}
    if updates:
        bounds[LOSS] = _loss_bound(wanted, precision, bounds.get(LOSS))
        bounds[GRADIENT] = _gradient_bound(wanted, precision)
    unknown = [name for name in wanted.outputs if name not in bounds]
    bounds |= {name: _Bound(*limits_for(wanted, name), None, None) for name in unknown}
    idle = f"given by the project, and bounds nothing: the outputs are {listed(list(outputs)) or 'none, without cases'}"
    proposals = [
        replace(proposal, reason=idle) if name in unknown else proposal
        for name, bound in bounds.items()
        for proposal in bound.proposals(name)
    ]

    proposals.append(
        _kept(wanted, written, "decision_changes", "a decision that changes is what a project feels; none may")
    )
    proposals.append(_kept(wanted, written, "tie", "among tied candidates the FP32 choice must stand"))
    drop = wanted.quality_drop
    if has_quality:
        reason = None
        if "quality_drop" not in written:
            drop, reason = _quality_drop(quality, precision)
        proposals.append(_proposal("quality_drop", drop, reason))
    if updates:
        share = "what settling of the loss scale costs is not counted; one skip in ten may come after it"
        proposals.append(_kept(wanted, written, "applied_share", share))
        proposals.append(
            _kept(wanted, written, "progress", "shown, not judged: late losses of two runs part for many good reasons")
        )
    locked = {name: {"atol": bound.atol, "rtol": bound.rtol} for name, bound in bounds.items()}
    return replace(wanted, outputs=locked, quality_drop=drop), tuple(proposals)


def that_apply(proposals: Sequence[Proposal], *, decides: bool) -> tuple[Proposal, ...]:
    """Those worth showing: without a `decide` nothing decides, so limits on decisions are about nothing."""
    return tuple(p for p in proposals if decides or p.name not in DECISIONS)


def as_locked(proposals: Sequence[Proposal], criteria: Criteria) -> tuple[Proposal, ...]:
    """`proposals` with what `criteria` says in their place: where it differs, the user has written it."""
    now = [(proposal, value_of(criteria, proposal.name)) for proposal in proposals]
    return tuple(
        proposal
        if value == proposal.value
        else replace(proposal, value=value, given=False, changed=True, proposed=proposal.value)
        for proposal, value in now
    )


def value_of(criteria: Criteria, name: str) -> float | int | str | None:
    """The value of the field `name`: a field of `Criteria`, or a bound of an output, as proposed."""
    if name in PLAIN:
        value: float | int | str | None = getattr(criteria, name)
        return value
    output, part = split(name)
    bound = criteria.outputs.get(output)
    if isinstance(bound, Mapping):
        return bound.get(part)
    return bound if part == "atol" else None


def split(name: str) -> tuple[str, str]:
    """Output and bound of a proposal's name: ``outputs.logits.atol`` is the `atol` of `logits`."""
    output, _, part = name.removeprefix("outputs.").rpartition(".")
    return output, part


def limits_for(criteria: Criteria, output: str) -> tuple[float, float]:
    """`(atol, rtol)` of one output, of `loss` or of `gradient`; what nobody wrote down is 0."""
    parts = _parts(criteria, output)
    atol = parts.get("atol", criteria.atol)
    rtol = parts.get("rtol", criteria.rtol)
    return (0.0 if atol is None else float(atol), 0.0 if rtol is None else float(rtol))


def digest(criteria: Criteria) -> str:
    """SHA-256 over canonical JSON: equal criteria have equal digests, on every machine and in every session."""
    content = {
        "atol": _canonical(criteria.atol),
        "rtol": _canonical(criteria.rtol),
        "outputs": {
            name: {key: _canonical(value) for key, value in bound.items()}
            if isinstance(bound, Mapping)
            else _canonical(bound)
            for name, bound in criteria.outputs.items()
        },
        "decision_changes": criteria.decision_changes,
        "tie": criteria.tie,
        "quality_drop": _canonical(criteria.quality_drop),
        "applied_share": _canonical(criteria.applied_share),
        "progress": _canonical(criteria.progress),
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _canonical(value: float | None) -> str | None:
    return None if value is None else repr(float(value) + 0.0)  # + 0.0: minus zero is equal to zero


def _parts(criteria: Criteria, name: str) -> Mapping[str, float]:
    bound = criteria.outputs.get(name, {})
    return bound if isinstance(bound, Mapping) else {"atol": bound}


def _output_bound(wanted: Criteria, name: str, output: OutputRange, precision: _Precision) -> _Bound:
    parts = _parts(wanted, name)
    atol, rtol = parts.get("atol", wanted.atol), parts.get("rtol", wanted.rtol)
    if atol is not None:
        alone = None if rtol is not None else _ATOL_ALONE
        return _Bound(float(atol), 0.0 if rtol is None else float(rtol), None, alone)
    rtol_reason = None
    if rtol is None:
        rtol = ROUNDINGS * precision.eps
        rtol_reason = f"{ROUNDINGS} roundings of {precision.name} ({ROUNDINGS} × {precision.eps_text})"
    proposed, reason = _atol(float(rtol), output, precision)
    return _Bound(proposed, float(rtol), reason, rtol_reason)


def _atol(rtol: float, output: OutputRange, precision: _Precision) -> tuple[float, str]:
    by_noise, by_size = _finite(NOISE_FACTOR * output.noise), _finite(rtol * output.largest)
    floor = ROUNDINGS * precision.tiny
    if output.noise <= max(by_size, floor) < by_noise:
        return by_noise, f"{NOISE_FACTOR} × the noise of two equal FP32 runs ({number(output.noise)})"
    if by_size > floor:
        share = f"rtol's share ({number(rtol)}) of the largest value in the baseline ({number(output.largest)})"
        return by_size, share
    return floor, f"{ROUNDINGS} × the smallest step of {precision.name}: the baseline is zero or nearly so"


def _finite(value: float) -> float:
    """No tolerance can be drawn from a baseline that is not finite; the verdict says so."""
    return value if math.isfinite(value) and value > 0.0 else 0.0


def _loss_bound(wanted: Criteria, precision: _Precision, output: _Bound | None) -> _Bound:
    """Bound of the loss of iteration 0; where an output is called `loss` too, the wider of the two."""
    parts = _parts(wanted, LOSS)
    rtol = parts.get("rtol", 0.0 if "atol" in parts else ROUNDINGS * precision.eps)
    atol = parts.get("atol", precision.eps)
    rtol_reason = None if "rtol" in parts else f"{ROUNDINGS} roundings of {precision.name}, same weights and batch"
    if "atol" in parts and "rtol" not in parts:
        rtol_reason = _ATOL_ALONE
    atol_reason = None
    if "atol" not in parts:
        atol_reason = f"one rounding at 1 ({precision.eps_text}): a loss near zero is a difference of larger terms"
    if output is not None and not parts:
        atol, rtol = max(atol, output.atol), max(rtol, output.rtol)
    return _Bound(float(atol), float(rtol), atol_reason, rtol_reason)


def _gradient_bound(wanted: Criteria, precision: _Precision) -> _Bound:
    """The limit of ‖trial − baseline‖ over the layer's norm; a relative figure, so `rtol` may name it as well."""
    parts = _parts(wanted, GRADIENT)
    limit = parts.get("atol", parts.get("rtol"))
    if limit is not None:
        return _Bound(float(limit), 0.0, None, "the gradient's limit is a relative norm: one figure bounds it")
    reason = f"{GRADIENT_ROUNDINGS} roundings of {precision.name} ({GRADIENT_ROUNDINGS} × {precision.eps_text}), "
    return _Bound(
        GRADIENT_ROUNDINGS * precision.eps,
        0.0,
        reason + "for the difference's share of a layer's norm: terms of a gradient cancel, so rounding weighs more",
        "the gradient's limit is a relative norm: one figure bounds it",
    )


def _quality_drop(quality: float | None, precision: _Precision) -> tuple[float, str]:
    size = abs(quality) if quality is not None and math.isfinite(quality) else 0.0
    if QUALITY_SHARE * size > precision.eps:
        return QUALITY_SHARE * size, f"2 % of the baseline's quality ({number(size)})"
    return precision.eps, f"one rounding at 1 of {precision.name} ({precision.eps_text}): 2 % of the quality is less"


def _kept(wanted: Criteria, written: frozenset[str], name: str, reason: str) -> Proposal:
    return _proposal(name, getattr(wanted, name), None if name in written else reason)


def _proposal(name: str, value: float | int | str | None, reason: str | None) -> Proposal:
    return Proposal(name=name, value=value, reason=reason or "given by the project", given=reason is None)
