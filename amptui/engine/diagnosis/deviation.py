"""Why finite results are too far off: a hidden overflow, a choice that flipped, a stale cast, or plain rounding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from amptui.engine import rng
from amptui.engine.bench import Bench
from amptui.engine.diagnosis.choices import Choice, ChoiceRecorder, Flip, first_flip
from amptui.engine.diagnosis.local_error import LocalError, local_errors
from amptui.engine.diagnosis.replaying import trace_case
from amptui.engine.diagnosis.translating import findings_of_origins
from amptui.engine.evaluate import Evaluated, call_outputs, eval_mode
from amptui.engine.iteration import GuardedRun
from amptui.engine.live import LiveUpdate
from amptui.engine.nested import copied
from amptui.engine.precision import policy_autocast, torch_dtype, true_fp32
from amptui.engine.replay import replay
from amptui.findings.finding import Finding
from amptui.project import Policy

#: A module is named for its rounding only where its own error is at least this many roundings of the dtype.
ROUNDINGS = 4.0


def why_case_deviates(bench: Bench, policy: Policy, evaluated: Evaluated) -> tuple[Finding, ...]:
    """What explains a case whose outputs are finite and beyond tolerance, or whose decision changed; may be nothing."""
    hidden = _hidden_overflow(bench, policy, evaluated)
    if hidden:
        return hidden
    flip = _flipped_choice(bench, policy, evaluated)
    if flip is not None:
        return (_finding_of_flip(flip, evaluated, policy),)
    errors = local_errors(bench.live, lambda: _evaluated(bench, evaluated), lambda: _autocast(bench, policy))
    eps = torch.finfo(torch_dtype(policy.dtype)).eps
    if errors and errors[0].relative >= ROUNDINGS * eps:
        return (_finding_of_rounding(errors[0], evaluated, policy),)
    return ()


def stale_cast(run: GuardedRun, update: LiveUpdate, step: int, *, expected: float, allowed: float) -> bool:
    """Whether the loss is right once autocast keeps no casts: then weights changed inside an autocast context."""
    with _without_cast_cache():
        uncached = replay(run, update, step, scale=1.0)
    loss = sum(uncached.losses) / len(uncached.losses)
    return abs(loss - expected) <= allowed


def _hidden_overflow(bench: Bench, policy: Policy, evaluated: Evaluated) -> tuple[Finding, ...]:
    """Overflows that a later op made finite again (x / inf is 0), which true FP32 does not have."""
    traced = trace_case(bench.live, evaluated.case, policy, bench.rng, failing=False)
    if traced.error is not None:
        return ()
    healthy = trace_case(bench.live, evaluated.case, policy, bench.rng, fp32=True, failing=False)
    origins = traced.healed(outputs=traced.value, accepted=healthy.sites())
    return findings_of_origins(
        origins,
        step=evaluated.index,
        case=evaluated.case.id,
        fp32_ok=True,
        replayed="the case was evaluated once more",
    )


def _flipped_choice(bench: Bench, policy: Policy, evaluated: Evaluated) -> Flip | None:
    def record(arithmetic: Callable[[], AbstractContextManager[object]]) -> list[Choice]:
        recorder = ChoiceRecorder(bench.live, "outputs")
        with arithmetic(), recorder.stack, recorder.calls, recorder:
            _evaluated(bench, evaluated)
        return recorder.choices

    try:
        with true_fp32():
            baseline = record(contextlib.nullcontext)
        trial = record(lambda: _autocast(bench, policy))
    except Exception:  # code that does not run under a dispatch mode: nothing is claimed
        return None
    return first_flip(baseline, trial)


def _evaluated(bench: Bench, evaluated: Evaluated) -> Any:
    rng.restore(bench.rng)
    with eval_mode(bench.live.modules), torch.no_grad():
        return call_outputs(bench.live, copied(evaluated.case.inputs, bench.live.device))


def _autocast(bench: Bench, policy: Policy) -> AbstractContextManager[object]:
    return policy_autocast(bench.live.device.type, policy.dtype, policy.autocast)


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


def _finding_of_flip(flip: Flip, evaluated: Evaluated, policy: Policy) -> Finding:
    place = flip.place
    measured = (("FP32", flip.baseline_gap), (policy.dtype, flip.trial_gap))
    gaps = [f"smallest gap of the two best in {name}: {gap:.4g}" for name, gap in measured if gap is not None]
    return Finding(
        kind="decision",
        severity="fault",
        stage="output",
        step=evaluated.index,
        case=evaluated.case.id,
        module=place.module,
        op=place.op,
        line=str(place.line) if place.line is not None else None,
        fp32_ok=True,
        evidence=(
            f"{place.op} inside the model chooses otherwise in {flip.differing} of {flip.of} places",
            *gaps,
        ),
        advice="Compute the scores that this choice is made from in FP32 "
        f"(Policy(fp32_regions=[{place.module!r}])), or break near ties by a rule.",
        facts={"fp32_regions": [place.module] if place.module not in ("", "outputs") else []},
    )


def _finding_of_rounding(error: LocalError, evaluated: Evaluated, policy: Policy) -> Finding:
    return Finding(
        kind="rounding",
        severity="fault",
        stage="output",
        step=evaluated.index,
        case=evaluated.case.id,
        module=error.module,
        fp32_ok=True,
        evidence=(
            f"on FP32 inputs this module alone is off by {error.relative:.3g} of its largest output in {policy.dtype}",
        ),
        advice=f"Run it in FP32: Policy(fp32_regions=[{error.module!r}]); positions, indices, time steps and running "
        "sums need more digits than half precision has.",
        facts={"fp32_regions": [error.module] if error.module else []},
    )
