"""Puts places to failures while a trial runs: the weights are still those of the failing moment."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec

from amptui.engine.bench import Bench
from amptui.engine.diagnosis.deviation import stale_cast, why_case_deviates
from amptui.engine.diagnosis.randomness import first_random_op
from amptui.engine.diagnosis.replaying import (
    faithfulness,
    origins_of_window,
    trace_case,
    trace_window,
)
from amptui.engine.diagnosis.translating import finding_of_error, findings_of_origins
from amptui.engine.evaluate import Evaluated
from amptui.engine.failures import UserCodeError
from amptui.engine.iteration import GuardedRun
from amptui.engine.live import LiveUpdate
from amptui.engine.tracing.blame import Site
from amptui.findings.finding import Finding
from amptui.project import Policy
from amptui.protocol.events import Remarked
from amptui.protocol.facts import UpdateRecord
from amptui.text import safe_text

#: Cases that are traced; the others of a failing set fail for the same reasons.
CASES = 3


P = ParamSpec("P")


def _never_fatal(traced: Callable[Concatenate[Locator, P], None]) -> Callable[Concatenate[Locator, P], None]:
    """Code that cannot be traced costs the place of its failure, not the trial."""

    @functools.wraps(traced)
    def told(self: Locator, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            traced(self, *args, **kwargs)
        except (Exception, SystemExit) as error:
            said = safe_text(f"{type(error).__name__}: {error}", 300)
            message = f"where this failure began could not be traced ({said})"
            self.bench.emit(Remarked(code="not-traced", message=message))

    return told


@dataclass(eq=False)
class Locator:
    """Traces the first failure of each kind. A replay that did not fail names nothing."""

    bench: Bench
    policy: Policy
    found: list[Finding] = field(default_factory=list)
    #: Infinities that a healthy FP32 run has too: masks and sentinels, by place.
    accepted: frozenset[Site] = frozenset()
    traced_cases: int = 0
    traced_deviations: int = 0

    @_never_fatal
    def iteration(self, run: GuardedRun, update: LiveUpdate, record: UpdateRecord, *, fp32_finite: bool) -> None:
        """The origin of a tripped update, by a traced replay on the same weights, batch and RNG."""
        if fp32_finite:
            self._learn(run, update, record.step)
        traced = trace_window(run, update, record.step, scale=record.scale)
        origins = origins_of_window(traced, self.accepted)
        self.found += findings_of_origins(
            origins,
            step=record.step,
            update=update.name,
            fp32_ok=fp32_finite,
            replayed=faithfulness(run, update, traced),
        )

    @_never_fatal
    def case(self, evaluated: Evaluated, *, fp32_finite: bool) -> None:
        """The origin of a case whose outputs are not finite under the policy."""
        if self.traced_cases >= CASES:
            return
        self.traced_cases += 1
        live, case = self.bench.live, evaluated.case
        if fp32_finite:
            healthy = trace_case(live, case, self.policy, self.bench.rng, fp32=True, failing=False)
            self.accepted |= healthy.sites()
        traced = trace_case(live, case, self.policy, self.bench.rng)
        origins = traced.blame(outputs=traced.value, accepted=self.accepted) if traced.reproduced else ()
        self.found += findings_of_origins(
            origins,
            step=evaluated.index,
            case=case.id,
            fp32_ok=fp32_finite,
            replayed="the case was evaluated once more",
        )

    @_never_fatal
    def deviation(self, evaluated: Evaluated) -> None:
        """Why a case is finite and yet too far off, or decides otherwise."""
        if self.traced_deviations >= CASES:
            return
        self.traced_deviations += 1
        self.found += why_case_deviates(self.bench, self.policy, evaluated)

    @_never_fatal
    def first_loss(self, run: GuardedRun, update: LiveUpdate, *, expected: float, allowed: float) -> None:
        """Why the loss of iteration 0 is finite and yet too far from FP32's, on the same weights, batch and RNG."""
        if stale_cast(run, update, 0, expected=expected, allowed=allowed):
            self.found.append(
                Finding(
                    kind="autocast_state",
                    severity="fault",
                    stage="loss",
                    step=0,
                    update=update.name,
                    module="loss",
                    line=update.facts.loss_at,
                    fp32_ok=True,
                    evidence=(
                        "without autocast's weight cache the loss is FP32's",
                        "so weights change inside one autocast context, and casts made before are used again",
                    ),
                    advice="Open one autocast context per forward, or call torch.clear_autocast_cache() after the "
                    "weights were changed, or write torch.autocast(…, cache_enabled=False).",
                )
            )

    @_never_fatal
    def failure(self, run: GuardedRun | None, failure: UserCodeError) -> None:
        """The op, module and line of user code that raised under the policy, by a traced run."""
        live = self.bench.live
        if failure.case is not None:
            case = next(case for case in live.cases if case.id == failure.case)
            index = live.cases.index(case)
            if failure.phase != "outputs" or self.traced_cases >= CASES:
                return
            self.traced_cases += 1
            traced = trace_case(live, case, self.policy, self.bench.rng)
        elif run is not None and failure.update is not None and failure.step is not None:
            index = failure.step
            traced = trace_window(run, live.update(failure.update), failure.step)
        else:
            return
        if traced.error_place is not None:
            self.found.append(
                finding_of_error(
                    traced.error_place, step=index, case=failure.case, update=failure.update, where=failure.where
                )
            )

    @_never_fatal
    def randomness(self, cases: Sequence[Evaluated]) -> None:
        """The op that draws random numbers in the first case that depends on the RNG state."""
        for evaluated in cases[:1]:
            drawn = first_random_op(self.bench.live, evaluated.case, self.bench.rng)
            if drawn is not None:
                self.found.append(
                    Finding(
                        kind="randomness",
                        severity="fault",
                        stage="output",
                        step=evaluated.index,
                        case=evaluated.case.id,
                        module=drawn.module,
                        op=drawn.op,
                        line=drawn.line,
                        fp32_ok=False,
                        evidence=(f"{drawn.op} draws random numbers while the model is in eval mode",),
                        advice="Let it respect eval mode (nn.Dropout does; F.dropout needs training=self.training), or "
                        "draw from a generator that is seeded per case.",
                    )
                )

    def _learn(self, run: GuardedRun, update: LiveUpdate, step: int) -> None:
        """What the same window gives in true FP32, where it is healthy: those infinities are meant."""
        healthy = trace_window(run, update, step, fp32=True)
        if healthy.error is None:
            self.accepted |= healthy.sites()
