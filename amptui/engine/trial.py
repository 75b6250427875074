"""The guarded trial: the same cases and the same stretch under a policy, compared as it goes."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from amptui.engine.baseline import Baseline
from amptui.engine.bench import Bench
from amptui.engine.compare import compare_gradients, compare_outputs
from amptui.engine.course import Course, Stopped, run_stretch
from amptui.engine.diagnosis.locator import Locator
from amptui.engine.evaluate import (
    Evaluated,
    decisions_agree,
    evaluate,
    figures,
    nonfinite_outputs,
    quality,
    tied_choices,
)
from amptui.engine.failures import UserCodeError
from amptui.engine.gradients import FirstGradients
from amptui.engine.iteration import Choice, GuardedRun, Phase
from amptui.engine.live import LiveUpdate
from amptui.engine.precision import policy_autocast
from amptui.engine.regions import fp32_regions
from amptui.engine.replay import fitting_scale, replay
from amptui.engine.retained import Retention
from amptui.findings.criteria import limits_for
from amptui.findings.evidence import (
    CaseEvidence,
    CodeFailure,
    FinalCaseEvidence,
    TensorDifference,
    TrialEvidence,
    TripEvidence,
)
from amptui.findings.words import scale_text, trip_words
from amptui.project import Criteria, Policy
from amptui.protocol.events import (
    CodeFailed,
    Diagnosed,
    FinalCaseRun,
    GuardTripped,
    IterationDone,
    TrialCaseRun,
    TrialDone,
    TrialStarted,
)
from amptui.protocol.facts import IterationRecord, UpdateRecord


class Walk(Protocol):
    """Who decides about the next phase: nobody (an unattended run) or the user."""

    @property
    def attended(self) -> bool: ...

    @property
    def interventions(self) -> int: ...

    def after_phase(self, phase: Phase, run: GuardedRun) -> Choice | None:
        """Called after every phase; may wait for the user, and answers a trip."""

    def after_iteration(self, record: IterationRecord) -> None: ...


@dataclass(eq=False)
class Trial:
    """One trial of `policy` on `bench`, held against `baseline` under the locked `criteria`."""

    bench: Bench
    baseline: Baseline
    criteria: Criteria
    policy: Policy
    number: int
    revision: int
    walk: Walk
    repeats: int = 1
    #: By update, outcome, and whether a lower loss scale mends it.
    trips: dict[tuple[str, str, bool], TripEvidence] = field(default_factory=dict)
    failures: list[CodeFailure] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.course = Course(tuple(update.name for update in self.bench.live.updates))
        self.first = FirstGradients()
        self.retention = Retention(self.bench.folder, self.bench.emit)
        self.locator = Locator(self.bench, self.policy)
        self.guarded: GuardedRun | None = None
        #: The cases under the policy, on the checkpoint's weights.
        self.evaluated: list[Evaluated] = []
        self.iterations = self.bench.live.batches.iterations * self.repeats if self.bench.live.updates else 0

    def run(self) -> TrialEvidence:
        """Runs cases, stretch and final cases; raises `Stopped` where the user ended it before the stretch began."""
        bench, started = self.bench, time.perf_counter()
        bench.emit(
            TrialStarted(
                trial=self.number,
                policy=self.policy,
                iterations=self.iterations,
                revision=self.revision,
                attended=self.walk.attended,
            )
        )
        bench.restart()
        bench.precision.restore()
        with fp32_regions(bench.live.modules, self.policy.fp32_regions, device=bench.live.device.type) as regions:
            cases = self._cases()
            bench.restart()  # a forward may change more than its outputs, also in eval mode
            completed = self._stretch()
            final_cases, reached = self._final_cases(completed)
            regions.check()
        evidence = self._evidence(cases, final_cases, reached, completed)
        bench.emit(
            TrialDone(
                trial=self.number,
                completed=completed,
                counts=evidence.counts,
                scaler=evidence.scaler,
                quality=reached,
                seconds=time.perf_counter() - started,
            )
        )
        return evidence

    # Cases on the checkpoint's weights.

    def _arithmetic(self) -> AbstractContextManager[object]:
        return policy_autocast(self.bench.live.device.type, self.policy.dtype, self.policy.autocast)

    def _cases(self) -> tuple[CaseEvidence, ...]:
        bench, total = self.bench, len(self.bench.live.cases)

        def on_case(index: int) -> None:
            bench.progress("trial", "cases", index + 1, total)
            bench.between()

        results = evaluate(
            bench.live,
            self._arithmetic,
            state=bench.rng,
            on_case=on_case,
            on_failure=self._note_failure,
        )
        self.evaluated = results
        for evaluated in results:
            if nonfinite_outputs(evaluated):
                finite = not nonfinite_outputs(self.baseline.cases[evaluated.index])
                self.locator.case(evaluated, fp32_finite=finite)
        evidence = tuple(self._beside(evaluated) for evaluated in results)
        for evaluated, beside in zip(results, evidence, strict=True):
            beyond = any(d.measured > d.limit and not d.nonfinite for d in beside.differences)
            if (beyond or beside.decision_stands is False) and not nonfinite_outputs(evaluated):
                self.locator.deviation(evaluated)
        self.locator.randomness([e for e in self.baseline.cases if self.baseline.randomness[e.case.id]])
        return evidence

    def _beside(self, trial: Evaluated) -> CaseEvidence:
        baseline = self.baseline.cases[trial.index]
        differences = []
        for name in {**baseline.outputs, **trial.outputs}:
            atol, rtol = limits_for(self.criteria, name)
            if name in baseline.outputs and name in trial.outputs:
                differences.append(
                    compare_outputs(name, baseline.outputs[name], trial.outputs[name], atol=atol, rtol=rtol)
                )
            else:
                differences.append(_missing(name, atol, name in trial.outputs))
        ties = tied_choices(baseline.outputs, baseline.decision)
        tied = ties is not None and any(len(row) > 1 for row in ties)
        stands = None
        if self.bench.live.project.decide is not None:
            allowed = ties if self.criteria.tie == "any" else None
            stands = decisions_agree(baseline.decision, trial.decision, allowed)
        self.bench.emit(
            TrialCaseRun(
                figures=figures(trial),
                differences=tuple(differences),
                decision_stands=stands,
                baseline_decision=baseline.decision,
                baseline_margin=baseline.margin,
            )
        )
        identity = trial.case.id
        return CaseEvidence(
            case=identity,
            index=trial.index,
            tag=trial.case.tag,
            differences=tuple(differences),
            decision=baseline.decision,
            trial_decision=trial.decision,
            margin=baseline.margin,
            trial_margin=trial.margin,
            decision_stands=stands,
            tied=tied,
            baseline_nonfinite=nonfinite_outputs(baseline),
            noise=self.baseline.noise[identity],
            randomness=self.baseline.randomness[identity],
            decision_random=identity in self.baseline.random_decisions,
        )

    # The stretch.

    def _stretch(self) -> bool:
        """Runs the stretch; False where user code failed or the user stopped it."""
        bench = self.bench
        if not self.iterations:
            return True
        run = GuardedRun(bench.live, self.policy, mixed=True, tape=self.baseline.tape, stepping=self.walk.attended)
        self.guarded = run
        try:
            run_stretch(
                run, self.iterations, on_phase=lambda phase: self._on_phase(run, phase), on_record=self._on_record
            )
        except UserCodeError as failure:
            self._note_failure(failure)
            return False
        except Stopped:
            return False
        return True

    def _on_phase(self, run: GuardedRun, phase: Phase) -> Choice | None:
        self.first.note(self.bench.live, phase)
        if phase.trip is not None:
            self._on_trip(run, phase.trip)
        elif phase.name == "check_grads" and phase.step == 0 and phase.update is not None:
            self._look_at_first_loss(run, phase.update, phase.values["loss"])
        self.bench.between()
        return self.walk.after_phase(phase, run)

    def _look_at_first_loss(self, run: GuardedRun, update: str, loss: float) -> None:
        """While the weights are still the checkpoint's: why is the first loss too far from FP32's, if it is?"""
        expected = self.baseline.first.losses.get(update)
        if expected is None:
            return
        atol, rtol = limits_for(self.criteria, "loss")
        allowed = atol + rtol * abs(expected)
        if abs(loss - expected) > allowed:
            self.locator.first_loss(run, self.bench.live.update(update), expected=expected, allowed=allowed)

    def _on_record(self, record: IterationRecord) -> None:
        self.course.note(record)
        self.bench.emit(IterationDone(run="trial", record=record))
        self.bench.progress("trial", "stretch", record.step + 1, self.iterations)
        self.walk.after_iteration(record)

    def _on_trip(self, run: GuardedRun, record: UpdateRecord) -> None:
        """Keeps and explains the first failure of each kind; counts the others."""
        update = self.bench.live.update(record.update)
        scale_alone = self._scale_alone(run, update, record)
        kind = (record.update, record.outcome, scale_alone)
        known = self.trips.get(kind)
        if known is not None:
            self.trips[kind] = replace(known, count=known.count + 1, last_step=record.step)
            self.bench.emit(GuardTripped(record=record, words=self._words(record), retained=None))
            return
        retained = self.retention.keep(run, record)
        self.bench.emit(GuardTripped(record=record, words=self._words(record), retained=retained))
        self.trips[kind] = self._examined(run, update, record, retained, scale_alone=scale_alone)

    def _scale_alone(self, run: GuardedRun, update: LiveUpdate, record: UpdateRecord) -> bool:
        """Whether the same window is finite at scale 1: then only the loss scale was too high."""
        if record.outcome != "bad_gradient" or run.scaler is None or record.scale <= 1.0:
            return False
        try:
            return replay(run, update, record.step, scale=1.0).finite
        except UserCodeError:
            return False

    def _examined(
        self, run: GuardedRun, update: LiveUpdate, record: UpdateRecord, retained: str | None, *, scale_alone: bool
    ) -> TripEvidence:
        """What replays of the failing iteration show: where it began, and whether true FP32 is finite there."""
        fp32_finite = replay(run, update, record.step, fp32=True).finite
        fits = fitting_scale(run, update, record.step) if scale_alone else None
        if fits is not None and record.step == 0:
            self._take_first_gradients(run, record, fits)
        self._diagnose_trip(run, update, record, retained, fp32_finite=fp32_finite, fits=fits)
        return TripEvidence(
            step=record.step,
            update=record.update,
            outcome=record.outcome,
            loss=record.loss,
            scale=record.scale,
            found_inf=record.found_inf,
            bad=record.bad,
            fp32_finite=fp32_finite,
            fitting_scale=fits,
            count=1,
            last_step=record.step,
            baseline_step=self.baseline.evidence.first_bad.get(record.update),
            buffers=tuple(name for name in record.bad if name in run.guard.buffers),
            retained=retained,
            loss_at=update.facts.loss_at,
        )

    def _diagnose_trip(
        self,
        run: GuardedRun,
        update: LiveUpdate,
        record: UpdateRecord,
        retained: str | None,
        *,
        fp32_finite: bool,
        fits: float | None,
    ) -> None:
        """Traces the failing window and tells what was found, with the table of replays."""
        before = len(self.locator.found)
        self.locator.iteration(run, update, record, fp32_finite=fp32_finite)
        variations = [
            (f"as it ran: {self.policy.dtype}, scale {scale_text(record.scale)}", "not finite"),
            ("true FP32, no scaling", "finite" if fp32_finite else "not finite"),
        ]
        if fits is not None:
            variations.append((f"{self.policy.dtype} at scale {scale_text(fits)}", "finite: the largest that fits"))
        self.bench.emit(
            Diagnosed(
                step=record.step,
                update=update.name,
                case=None,
                retained=retained,
                findings=tuple(self.locator.found[before:]),
                variations=tuple(variations),
            )
        )

    def _take_first_gradients(self, run: GuardedRun, record: UpdateRecord, scale: float) -> None:
        """Iteration 0 overflowed at the initial scale alone: its gradients are compared at the scale that fits."""
        fitted = replay(run, self.bench.live.update(record.update), record.step, scale=scale)
        self.first.gradients[record.update] = tuple(
            None if g is None else g.detach().to("cpu", copy=True) for g in fitted.gradients
        )

    # After the stretch.

    def _final_cases(self, completed: bool) -> tuple[tuple[FinalCaseEvidence, ...], float | None]:
        bench = self.bench
        if not self.iterations:
            return (), self._quality(self.evaluated)
        if not completed:
            return (), None
        results = evaluate(
            bench.live,
            self._arithmetic,
            state=bench.rng,
            on_case=lambda _index: bench.between(),
            on_failure=self._note_failure,
        )
        for evaluated in results:
            bench.emit(FinalCaseRun(run="trial", figures=figures(evaluated)))
        return tuple(self._final_beside(evaluated) for evaluated in results), self._quality(results)

    def _quality(self, results: list[Evaluated]) -> float | None:
        if len(results) != len(self.bench.live.cases):
            return None  # a case failed; that is told by itself
        try:
            return quality(self.bench.live, results)
        except UserCodeError as failure:
            self._note_failure(failure)
            return None

    def _final_beside(self, trial: Evaluated) -> FinalCaseEvidence:
        baseline = next(e for e in self.baseline.final_cases if e.index == trial.index)
        return FinalCaseEvidence(
            case=trial.case.id,
            index=trial.index,
            baseline_nonfinite=nonfinite_outputs(baseline),
            trial_nonfinite=nonfinite_outputs(trial),
        )

    def _first_iteration(self) -> tuple[TensorDifference, ...]:
        """Loss and gradients of iteration 0: same weights, batch and RNG as the baseline's."""
        found: list[TensorDifference] = []
        for update in self.bench.live.updates:
            expected = self.baseline.first.gradients.get(update.name)
            got = self.first.gradients.get(update.name)
            if expected is None or got is None:
                continue
            atol, rtol = limits_for(self.criteria, "loss")
            loss = compare_outputs(
                "loss",
                torch.tensor(self.baseline.first.losses[update.name], dtype=torch.float64),
                torch.tensor(self.first.losses[update.name], dtype=torch.float64),
                atol=atol,
                rtol=rtol,
            )
            limit, _ = limits_for(self.criteria, "gradient")
            gradients = compare_gradients(update.facts.layers, expected, got, limit=limit, update=update.name)
            found += [replace(loss, update=update.name), gradients]
        return tuple(found)

    def _evidence(
        self,
        cases: tuple[CaseEvidence, ...],
        final_cases: tuple[FinalCaseEvidence, ...],
        reached: float | None,
        completed: bool,
    ) -> TrialEvidence:
        return TrialEvidence(
            policy=self.policy,
            criteria=self.criteria,
            baseline=self.baseline.evidence,
            cases=cases,
            final_cases=final_cases,
            first_iteration=self._first_iteration(),
            iterations=self.iterations,
            completed=completed,
            counts=self.course.counts(),
            scaler=self.course.scale_course(),
            trips=tuple(self.trips.values()),
            failures=tuple(self.failures),
            quality=reached,
            quality_better=self.bench.live.project.quality_better,
            late_loss=self.course.late_loss(),
            interventions=self.walk.interventions,
            located=tuple(self.locator.found),
        )

    def _words(self, record: UpdateRecord) -> str:
        return trip_words(
            record.outcome,
            record.bad,
            scale=record.scale,
            layers=len(record.norms),
            scaler=self.policy.effective_scaler is not None,
        )

    def _note_failure(self, failure: UserCodeError) -> None:
        self.locator.failure(self.guarded, failure)
        module = {"decide": "decide", "outputs": "outputs"}.get(failure.phase, "")
        self.failures.append(
            CodeFailure(
                under="policy",
                exception=failure.exception,
                message=failure.message,
                where=failure.where,
                module=module,
                op=None,
                step=failure.step,
                case=failure.case,
                update=failure.update,
                phase=failure.phase,
            )
        )
        self.bench.emit(
            CodeFailed(
                under="trial",
                exception=failure.exception,
                message=failure.message,
                where=failure.where,
                module=module,
                step=failure.step,
                case=failure.case,
                frames=failure.frames,
            )
        )


def _missing(name: str, limit: float, in_trial: bool) -> TensorDifference:
    return TensorDifference(
        name=f"{name} (only in the {'trial' if in_trial else 'baseline'})",
        measured=float("inf"),
        limit=limit,
        largest=float("inf"),
        baseline=None,
        trial=None,
        place=(),
        elements=0,
        beyond=0,
        nonfinite=0,
    )
