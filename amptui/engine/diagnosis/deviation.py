"""Why finite results are too far off: a hidden overflow, a choice that flipped, a stale cast, or plain rounding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch

from amptui.engine.diagnosis.choices import ChoiceRecorder, Flip, first_flip
from amptui.engine.diagnosis.local_error import local_errors
from amptui.engine.diagnosis.mending import Mend, first_that_mends, proved_together
from amptui.engine.diagnosis.observed import Observed
from amptui.engine.diagnosis.parting import Parting, first_parting
from amptui.engine.diagnosis.replaying import Window
from amptui.engine.diagnosis.setting import Setting
from amptui.engine.diagnosis.translating import findings_of_origins
from amptui.engine.iteration import GuardedRun
from amptui.engine.live import LiveUpdate
from amptui.engine.precision import torch_dtype, true_fp32
from amptui.engine.replay import replay
from amptui.engine.tracing.tape import Place
from amptui.findings.finding import Finding, Stage

#: A module is named for its rounding only where its own error is at least this many roundings of the dtype.
ROUNDINGS = 4.0
WITHIN = "within its tolerance"
_UNFIT = "the constant is infinite in this dtype; keep it in float32, or divide before."
_NEED_DIGITS = "positions, indices, time steps and running sums need more digits than half precision has."

#: Repeats the run with these modules in FP32, and says whether it is then what it should be.
Mends = Callable[[tuple[str, ...]], bool]


def why_it_deviates(observed: Observed, mends: Mends) -> tuple[Finding, ...]:
    """What explains finite results beyond their tolerance, or another decision; may be nothing."""
    hidden = hidden_overflow(observed, mends)
    if is_proved(hidden):
        return hidden
    flip = _flipped_choice(observed, mends)
    if not hidden:
        return flip or _rounding_outside(observed, mends) or _rounding_inside(observed, mends)
    # An overflow that nothing was seen to mend may be harmless: a gate that is closed either way.
    other = flip if is_proved(flip) else _rounding_inside(observed, mends)
    return other if is_proved(other) else hidden


def is_proved(found: tuple[Finding, ...]) -> bool:
    """Whether FP32 regions were seen to mend what the first of these says."""
    return bool(found and found[0].facts.get("fp32_regions"))


def half_ops_of(observed: Observed) -> list[Place]:
    """The ops that autocast runs in half, in their order."""
    return _recorded(observed, observed.arithmetic).half_ops


def stale_cast(run: GuardedRun, update: LiveUpdate, step: int, *, expected: float, allowed: float) -> bool:
    """Whether the loss is right once autocast keeps no casts: then weights changed inside an autocast context."""
    with _without_cast_cache():
        uncached = replay(run, update, step, scale=1.0)
    loss = sum(uncached.losses) / len(uncached.losses)
    return abs(loss - expected) <= allowed


def hidden_overflow(observed: Observed, mends: Mends) -> tuple[Finding, ...]:
    """Overflows that a later op made finite again (x / inf is 0), which true FP32 does not have."""
    with observed.traced(True) as healthy:
        accepted = healthy.sites()
    with observed.traced(False) as traced:
        if traced.error is not None:
            return ()
        window = traced.value
        if isinstance(window, Window):
            origins = traced.healed(outputs=window.losses, gradients=window.gradients, accepted=accepted)
        else:
            origins = traced.healed(outputs=window, accepted=accepted)
    if not origins:
        return ()
    return findings_of_origins(
        origins,
        Setting(dtype=observed.policy.dtype, fp32_ok=True),
        step=observed.step,
        case=observed.case,
        update=observed.update,
        replayed="seen in a replay of every operation",
        mend=_mend(origins[0].module, *origins[0].makers, observed=observed, mends=mends),
    )


def _flipped_choice(observed: Observed, mends: Mends) -> tuple[Finding, ...]:
    try:
        with true_fp32():
            baseline = _recorded(observed, contextlib.nullcontext)
        trial = _recorded(observed, observed.arithmetic)
    except (Exception, SystemExit):  # code that does not run under a dispatch mode: nothing is claimed
        return ()
    flip = first_flip(baseline.choices, trial.choices)
    if flip is None:
        return ()
    maker = (flip.maker or flip.place).module
    mend = _mend(maker, flip.place.module, observed=observed, mends=mends)
    if not mend.regions:
        mend = proved_together(maker, trial.makers_of(maker), mends, observed.live, WITHIN)
    return (_finding_of_flip(flip, observed, mend),)


def _recorded(observed: Observed, arithmetic: Callable[[], AbstractContextManager[object]]) -> ChoiceRecorder:
    recorder = ChoiceRecorder(observed.live, observed.outside)
    with arithmetic(), recorder.stack, recorder.calls, recorder:
        observed.forward()
    return recorder


@contextlib.contextmanager
def _without_cast_cache() -> Iterator[None]:
    """Every autocast context that is entered inside keeps no casts of weights."""
    enter = torch.autocast.__enter__

    def entered(self: torch.autocast) -> Any:
        kept = self._cache_enabled
        self._cache_enabled = False
        try:
            return enter(self)  # type: ignore[no-untyped-call]
        finally:
            self._cache_enabled = kept

    torch.autocast.__enter__ = entered  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autocast.__enter__ = enter  # type: ignore[method-assign]


def _mend(*modules: str, observed: Observed, mends: Mends) -> Mend:
    """The first of these modules (or of what is around them) that mends the run as an FP32 region."""
    for module in modules:
        found = first_that_mends(module, mends, observed.live, WITHIN)
        if found.regions:
            return found
    return Mend()


def _finding_of_flip(flip: Flip, observed: Observed, mend: Mend) -> Finding:
    """At the op that made the scores, where there is one; the choice itself loses nothing."""
    choice, maker = flip.place, flip.maker or flip.place
    measured = (("FP32", flip.baseline_gap), (observed.policy.dtype, flip.trial_gap))
    gaps = [f"the two best were {gap:.4g} apart in {name}" for name, gap in measured if gap is not None]
    where = f" in {choice.module}" if choice.module else ""
    return _finding(
        observed,
        maker,
        Finding(
            kind="decision",
            severity="fault",
            stage="output",
            module=maker.module,
            op=maker.op,
            fp32_ok=True,
            evidence=(
                f"{choice.op}{where}{_at(choice)} chooses otherwise than FP32 in {flip.differing} of {flip.of} places",
                *gaps,
                *((f"{maker.op} made the scores in {observed.policy.dtype}",) if flip.maker is not None else ()),
                *((mend.words,) if mend.words else ()),
            ),
            advice="A choice between nearly equal scores turns the last digit into another path through the model. "
            f"{_compute(mend, 'Compute the scores')}, or break near ties by a rule.",
            facts={"fp32_regions": list(mend.regions)},
        ),
    )


def _rounding_inside(observed: Observed, mends: Mends) -> tuple[Finding, ...]:
    """The module whose own rounding is the largest, if it is more than roundings add up to."""
    errors = local_errors(observed.live, observed.forward, observed.arithmetic, observed.mode)
    limit = ROUNDINGS * _eps(observed)
    if not errors or errors[0].relative < limit:
        return ()
    error = errors[0]
    recorded = _recorded(observed, observed.arithmetic)
    ops = [op for op in recorded.half_ops if op.module == error.module]
    parting = None if ops else _parting(observed, error.module, limit)
    if parting is None:
        ops = ops or [op for op in recorded.half_ops if op.module.startswith(f"{error.module}.")]
    makers = recorded.makers_of(error.module) if error.rounded_inputs else ()
    mend = _mend(error.module, observed=observed, mends=mends)
    if not mend.regions and makers:
        mend = proved_together(error.module, makers, mends, observed.live, WITHIN)
    name = error.module or "the model"
    inputs = f"on inputs rounded to {observed.policy.dtype}" if error.rounded_inputs else "on FP32's inputs"
    unfit = parting is not None and parting.constant
    finding = Finding(
        kind="dtype" if unfit else "rounding",
        severity="fault",
        stage="forward" if unfit else _stage(observed),
        module=error.module,
        op=_begins_at(parting)[0],
        line=_begins_at(parting)[1],
        fp32_ok=True,
        evidence=(
            f"{inputs} {name} is off by {error.relative:.2g} of its largest output",
            f"one rounding to {observed.policy.dtype} is {_eps(observed):.2g}",
            *((f"its first operation in {observed.policy.dtype} is {ops[0].op}",) if ops else ()),
            *(_parting_facts(parting) if parting is not None else ()),
            *((mend.words,) if mend.words else ()),
        ),
        advice=f"{_compute(mend, 'Compute it')}: {_UNFIT if unfit else _NEED_DIGITS}",
        facts={"fp32_regions": list(mend.regions)},
    )
    return (_finding(observed, ops[0] if ops else None, finding),)


def _rounding_outside(observed: Observed, _mends: Mends) -> tuple[Finding, ...]:
    """The first call in a user function that makes more than rounding of what was no more than rounded."""
    limit = ROUNDINGS * _eps(observed)
    parting = _parting(observed, None, limit)
    if parting is None:
        return ()
    finding = Finding(
        kind="rounding",
        severity="fault",
        stage="loss" if observed.outside == "loss" else "output",
        module=observed.outside,
        op=_begins_at(parting)[0],
        line=_begins_at(parting)[1],
        fp32_ok=True,
        evidence=(*_parting_facts(parting), f"one rounding to {observed.policy.dtype} is {_eps(observed):.2g}"),
        advice=f"Cast to float32 before this line ({observed.outside}: x.float()): {_NEED_DIGITS}",
        facts={"fp32_regions": []},
    )
    return (_finding(observed, None, finding),)


def _parting(observed: Observed, module: str | None, limit: float) -> Parting | None:
    return first_parting(observed.live, observed.forward, observed.arithmetic, module=module, limit=limit)


def _begins_at(parting: Parting | None) -> tuple[str | None, str | None]:
    """Op and line: where digits were cut off, if the same code did it, else where it shows."""
    if parting is None:
        return None, None
    return parting.rounded_at or (parting.op, parting.line)


def _parting_facts(parting: Parting) -> tuple[str, ...]:
    where = f" ({parting.line})" if parting.line is not None else ""
    if parting.constant:
        return (f"the constant that {parting.op}{where} makes is infinite there, and finite in FP32",)
    shows = f"{parting.op}{where} is the first whose result is off by more than rounding: by {parting.apart:.2g} of its"
    return (f"{shows} largest value, what goes in by {parting.apart_before:.2g}",)


def _stage(observed: Observed) -> Stage:
    return "output" if observed.case is not None else "forward"


def _finding(observed: Observed, place: Place | None, finding: Finding) -> Finding:
    return replace(
        finding,
        step=observed.step,
        case=observed.case,
        update=observed.update,
        op=place.op if place is not None else finding.op,
        line=finding.line if place is None else str(place.line) if place.line is not None else None,
    )


def _compute(mend: Mend, what: str) -> str:
    return f"{what} in FP32" + (f": Policy(fp32_regions={list(mend.regions)!r})" if mend.regions else "")


def _at(place: Place) -> str:
    return f" ({place.line})" if place.line is not None else ""


def _eps(observed: Observed) -> float:
    return float(torch.finfo(torch_dtype(observed.policy.dtype)).eps)
