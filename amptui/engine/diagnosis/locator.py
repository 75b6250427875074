"""Puts places to failures while a trial runs: the weights are still those of the failing moment."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Concatenate, ParamSpec

import torch
from torch import Tensor

from amptui.engine.bench import Bench
from amptui.engine.diagnosis.deciding import decision_by_dtype, decision_by_rounding
from amptui.engine.diagnosis.deviation import hidden_overflow, is_proved, stale_cast, why_it_deviates
from amptui.engine.diagnosis.mending import Mend, mend_of, with_regions
from amptui.engine.diagnosis.observed import observed_case, observed_window
from amptui.engine.diagnosis.raising import findings_of_failure
from amptui.engine.diagnosis.randomness import first_random_op
from amptui.engine.diagnosis.replaying import Window, faithfulness, origins_of_window, trace_case, traced_window
from amptui.engine.diagnosis.setting import HALF as HALF_NAMES
from amptui.engine.diagnosis.setting import Setting, place_of
from amptui.engine.diagnosis.translating import finding_of_stale_cast, findings_of_origins
from amptui.engine.evaluate import Evaluated, call_outputs, evaluate
from amptui.engine.failures import UserCodeError
from amptui.engine.iteration import GuardedRun
from amptui.engine.live import LiveUpdate
from amptui.engine.nested import map_tensors
from amptui.engine.precision import policy_autocast
from amptui.engine.regions import RegionError
from amptui.engine.replay import replay
from amptui.engine.tracing.blame import Site
from amptui.engine.tracing.ladder import Trace
from amptui.engine.tracing.origin import Origin
from amptui.findings.finding import Finding
from amptui.project import Case, Policy
from amptui.protocol.events import Remarked
from amptui.protocol.facts import UpdateRecord
from amptui.text import safe_text

#: Cases that are traced; the others of a failing set fail for the same reasons.
CASES = 3
#: Iterations of an update whose finite loss is looked at.
ODD_LOSSES = 4
HALF = (torch.float16, torch.bfloat16)


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
    #: Whether a case evaluated anew is within the criteria, decision included.
    holds: Callable[[Evaluated], bool]
    found: list[Finding] = field(default_factory=list)
    #: Infinities that a healthy FP32 run has too: masks and sentinels, by place.
    accepted: frozenset[Site] = frozenset()
    #: What is told only beside a general finding of the same failure.
    details: list[Finding] = field(default_factory=list)
    traced_cases: int = 0
    traced_deviations: int = 0
    #: By update: how often its loss was looked at, and how far off (in tolerances) it was at most.
    odd_losses: dict[str, tuple[int, float]] = field(default_factory=dict)

    @_never_fatal
    def iteration(self, run: GuardedRun, update: LiveUpdate, record: UpdateRecord, *, fp32_finite: bool) -> None:
        """The origin of a tripped update, by a traced replay on the same weights, batch and RNG."""
        step = record.step
        half_in_fp32 = self._learn(run, update, step, fp32_finite=fp32_finite)
        with traced_window(run, update, step, scale=record.scale) as traced:
            origins = origins_of_window(traced, self.accepted)
        setting = Setting(dtype=self.policy.dtype, fp32_ok=fp32_finite, half_in_fp32=half_in_fp32)
        self.found += findings_of_origins(
            origins,
            setting,
            step=step,
            update=update.name,
            replayed=faithfulness(run, update, traced),
            mend=self._mend_window(run, update, step, origins) if fp32_finite else None,
        )

    @_never_fatal
    def baseline_alone(self, run: GuardedRun, update: LiveUpdate, step: int) -> None:
        """Why FP32 failed in a window that the policy gets through: mostly half precision written into the code.

        Only where FP32 fails on the trial's own weights too; else it is the baseline that went another way.
        """
        with traced_window(run, update, step, fp32=True) as traced:
            origins = origins_of_window(traced, frozenset())
        found = findings_of_origins(
            origins,
            Setting(dtype=self.policy.dtype, fp32_ok=False, half_in_fp32=_half_places(origins)),
            step=step,
            update=update.name,
            replayed=f"true FP32 fails here on the trial's weights, {self.policy.dtype} does not",
        )
        self.found += [replace(finding, facts={**finding.facts, "baseline_step": step}) for finding in found]

    @_never_fatal
    def zeros(self, run: GuardedRun, update: LiveUpdate, step: int, names: Sequence[str]) -> None:
        """The op that rounds the gradients of these layers to zero."""
        with traced_window(run, update, step, failing=False) as traced:
            window = traced.value
            if not isinstance(window, Window):
                return
            origins = traced.vanished({name: window.gradients[name] for name in names})
        found = findings_of_origins(
            origins,
            Setting(dtype=self.policy.dtype, fp32_ok=True),
            step=step,
            update=update.name,
            replayed="seen in a replay of every operation",
        )
        self.details += [replace(finding, advice="") for finding in found[:1]]  # what lifts it is the scale's matter

    def _mend_window(self, run: GuardedRun, update: LiveUpdate, step: int, origins: Sequence[Origin]) -> Mend:
        def again(regions: tuple[str, ...]) -> Sequence[Origin]:
            # at scale 1: whether the loss scale fits is another question
            with with_regions(run.live, regions), traced_window(run, update, step, scale=1.0) as traced:
                if traced.error is not None:
                    raise RegionError(str(traced.error))
                return origins_of_window(traced, self.accepted)

        if run.scaler is not None and all(origin.phase == "backward" for origin in origins):
            origins = again(())
        return mend_of(origins, again, run.live)

    @_never_fatal
    def case(self, evaluated: Evaluated, *, fp32_finite: bool) -> None:
        """The origin of a case whose outputs are not finite under the policy."""
        if self.traced_cases >= CASES:
            return
        self.traced_cases += 1
        live, case = self.bench.live, evaluated.case
        healthy = trace_case(live, case, self.policy, self.bench.rng, fp32=True, failing=False)
        half_in_fp32: frozenset[tuple[str, str, str | None]] = frozenset()
        if fp32_finite:
            self.accepted |= healthy.sites()
        else:
            half_in_fp32 = _half_places(healthy.blame(outputs=healthy.value))
        traced = trace_case(live, case, self.policy, self.bench.rng)
        origins = traced.blame(outputs=traced.value, accepted=self.accepted) if traced.reproduced else ()
        self._add_new(
            findings_of_origins(
                origins,
                Setting(dtype=self.policy.dtype, fp32_ok=fp32_finite, half_in_fp32=half_in_fp32),
                step=evaluated.index,
                case=case.id,
                replayed="the case was evaluated once more",
                mend=mend_of(origins, lambda regions: self._case_with(case, regions), live) if fp32_finite else None,
            )
        )

    def _case_with(self, case: Case, regions: tuple[str, ...]) -> Sequence[Origin]:
        with with_regions(self.bench.live, regions):
            traced = trace_case(self.bench.live, case, self.policy, self.bench.rng)
            if traced.error is not None:
                raise RegionError(str(traced.error))
            return traced.blame(outputs=traced.value, accepted=self.accepted) if traced.reproduced else ()

    @_never_fatal
    def deviation(self, evaluated: Evaluated, *, decision_alone: bool) -> None:
        """Why a case is finite and yet too far off, or (`decision_alone`) decides otherwise within its tolerance."""
        if self.traced_deviations >= CASES:
            return
        self.traced_deviations += 1
        observed = observed_case(self.bench, self.policy, evaluated)
        mends = functools.partial(self._case_holds, evaluated.case)
        if not decision_alone:
            self._add_new(why_it_deviates(observed, mends))
            return
        if self._case_holds(evaluated.case, widened=True):
            self._add_new((decision_by_dtype(observed),))
            return
        inside = why_it_deviates(observed, mends)
        told = tuple(replace(finding, stage="decision", kind="decision") for finding in inside)
        if not is_proved(inside):
            told = decision_by_rounding(observed, mends) or told
        self._add_new(told)

    def _add_new(self, findings: Sequence[Finding]) -> None:
        """Adds what no earlier case has shown at the same place, with the same mend."""
        known = {_what(finding) for finding in self.found}
        self.found += [finding for finding in findings if _what(finding) not in known]

    def _case_holds(self, case: Case, regions: tuple[str, ...] = (), *, widened: bool = False) -> bool:
        """Whether the case stays within the criteria with these regions, or with its outputs cast to float32."""
        live = self.bench.live
        index = live.cases.index(case)

        def in_float32(_model: Any, inputs: Any) -> Any:
            return map_tensors(call_outputs(live, inputs), lambda t: t.float() if t.dtype in HALF else t)

        alone = replace(live, cases=(case,))
        if widened:
            alone = replace(alone, project=replace(live.project, outputs=in_float32))
        arithmetic = functools.partial(policy_autocast, live.device.type, self.policy.dtype, self.policy.autocast)
        with with_regions(live, regions):
            again = evaluate(alone, arithmetic, state=self.bench.rng)
        return all(self.holds(replace(one, index=index)) for one in again)

    @_never_fatal
    def loss(
        self, run: GuardedRun, update: LiveUpdate, step: int, *, got: float, expected: float, allowed: float
    ) -> None:
        """Why a finite loss is too far from FP32's: at iteration 0 whatever explains it, later a hidden overflow alone.

        Later the weights have moved apart, so first the loss is compared with FP32 on the weights of this moment. Few
        iterations are looked at, each only if it is twice as far off as all before it.
        """
        apart = abs(got - expected) / allowed if allowed > 0.0 else 0.0
        times, furthest = self.odd_losses.get(update.name, (0, 0.0))
        if not apart > max(1.0, 2.0 * furthest) or times >= ODD_LOSSES:
            return
        self.odd_losses[update.name] = times + 1, apart
        if step > 0:
            fp32 = replay(run, update, step, fp32=True)
            expected = sum(fp32.losses) / len(fp32.losses)
            if not abs(got - expected) > allowed:
                return
        elif stale_cast(run, update, step, expected=expected, allowed=allowed):
            self.found.append(finding_of_stale_cast(update, step))
            return

        def mends(regions: tuple[str, ...]) -> bool:
            with with_regions(run.live, regions):
                again = replay(run, update, step, scale=1.0)
            return abs(sum(again.losses) / len(again.losses) - expected) <= allowed

        observed = observed_window(run, update, step)
        found = hidden_overflow(observed, mends) if step > 0 else why_it_deviates(observed, mends)
        if found:
            self.odd_losses[update.name] = ODD_LOSSES, apart
        self.found += found

    @_never_fatal
    def gradient(
        self, run: GuardedRun, update: LiveUpdate, *, scale: float, holds: Callable[[Sequence[Tensor | None]], bool]
    ) -> None:
        """Why the gradient of iteration 0, taken at `scale`, is too far from FP32's although the loss is near."""

        def mends(regions: tuple[str, ...]) -> bool:
            with with_regions(run.live, regions):
                return holds(replay(run, update, 0, scale=scale).gradients)

        self.found += why_it_deviates(observed_window(run, update, 0), mends)

    @_never_fatal
    def failure(self, run: GuardedRun | None, failure: UserCodeError) -> None:
        """The op, module and line of user code that raised under the policy, by a traced run."""
        live = self.bench.live

        def trace_again(regions: tuple[str, ...], fp32: bool) -> Trace | None:
            with with_regions(live, regions):
                if failure.case is not None:
                    case = next(case for case in live.cases if case.id == failure.case)
                    return trace_case(live, case, self.policy, self.bench.rng, fp32=fp32, failing=not fp32)
                if run is None or failure.update is None or failure.step is None:
                    return None
                update = live.update(failure.update)
                with traced_window(run, update, failure.step, fp32=fp32, failing=not fp32) as traced:
                    return traced

        index = failure.step
        if failure.case is not None:
            if failure.phase != "outputs" or self.traced_cases >= CASES:
                return
            self.traced_cases += 1
            index = next(i for i, case in enumerate(live.cases) if case.id == failure.case)
        found = findings_of_failure(failure, trace_again, live, dtype=self.policy.dtype, step=index)
        self.found += [finding for finding in found if finding not in self.found]  # a case fails twice: also at the end

    @_never_fatal
    def randomness(self, cases: Sequence[Evaluated]) -> None:
        """The op that draws random numbers in the first case that depends on the RNG state."""
        for evaluated in cases[:1]:
            drawn = first_random_op(self.bench.live, evaluated.case, self.bench.rng)
            if drawn is not None:
                in_decide = drawn.module == "decide"
                finding = Finding(
                    kind="randomness",
                    severity="fault",
                    stage="decision" if in_decide else "output",
                    step=evaluated.index,
                    case=evaluated.case.id,
                    module=drawn.module,
                    op=drawn.op,
                    line=drawn.line,
                    fp32_ok=False,
                    evidence=(f"{drawn.op} draws random numbers while the model is in eval mode",),
                    advice="Take the best candidate instead of a drawn one, or draw from a generator seeded per case."
                    if in_decide
                    else "Let it respect eval mode (nn.Dropout does; F.dropout needs training=self.training), or "
                    "draw from a generator that is seeded per case.",
                )
                self.details.append(finding)

    def _learn(
        self, run: GuardedRun, update: LiveUpdate, step: int, *, fp32_finite: bool
    ) -> frozenset[tuple[str, str, str | None]]:
        """What the same window gives in true FP32.

        Where that is healthy, its infinities are meant. Where it is not, the places that go wrong in half precision
        even there are returned: somebody wrote that dtype into the code.
        """
        with traced_window(run, update, step, fp32=True, failing=False) as fp32:
            if fp32_finite:
                if fp32.error is None:
                    self.accepted |= fp32.sites()
                return frozenset()
            return _half_places(origins_of_window(fp32, frozenset()))


def _what(finding: Finding) -> tuple[object, ...]:
    regions = finding.facts.get("fp32_regions", ())
    return finding.kind, finding.stage, finding.module, finding.op, finding.line, str(regions), finding.case is None


def _half_places(origins: Sequence[Origin]) -> frozenset[tuple[str, str, str | None]]:
    return frozenset(place_of(origin) for origin in origins if origin.dtype in HALF_NAMES)
