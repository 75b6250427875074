"""The guarded trial: the same cases and the same stretch under a policy, compared as it goes."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from amptui.engine.baseline import Baseline
from amptui.engine.bench import Bench
from amptui.engine.beside import beside
from amptui.engine.course import Course, Stopped, run_stretch
from amptui.engine.diagnosis.locator import Locator
from amptui.engine.evaluate import (
    Evaluated,
    evaluate,
    figures,
    nonfinite_outputs,
    quality,
)
from amptui.engine.failures import UserCodeError
from amptui.engine.first_iteration import FirstIteration
from amptui.engine.iteration import Choice, GuardedRun, Phase
from amptui.engine.odd_numbers import OddNumbers
from amptui.engine.precision import policy_autocast
from amptui.engine.regions import fp32_regions
from amptui.engine.silent import silent_layers
from amptui.engine.trips import Trips
from amptui.findings.evidence import (
    CaseEvidence,
    CodeFailure,
    FinalCaseEvidence,
    SilentLayers,
    TrialEvidence,
)
from amptui.findings.steadiness import baseline_broken
from amptui.project import Criteria, Policy
from amptui.protocol.events import (
    CodeFailed,
    FinalCaseRun,
    IterationDone,
    TrialCaseRun,
    TrialDone,
    TrialStarted,
)
from amptui.protocol.facts import IterationRecord


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
    failures: list[CodeFailure] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.course = Course(tuple(update.name for update in self.bench.live.updates))
        self.first = FirstIteration(self.baseline.first, self.criteria)
        self.locator = Locator(self.bench, self.policy, self._holds)
        self.trips = Trips(self.bench, self.baseline, self.policy, self.locator, self.first.trial)
        self.numbers = OddNumbers(self.bench, self.baseline, self.criteria, self.first, self.locator)
        self.guarded: GuardedRun | None = None
        #: The cases under the policy, on the checkpoint's weights.
        self.evaluated: list[Evaluated] = []
        #: How the user left the stretch, if they did.
        self.stopped: Stopped | None = None
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
            if completed and not self.failures:  # else a region may not have had its turn
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
        evidence = tuple(self._compared(evaluated) for evaluated in results)
        allowed = sum(compared.decision_stands is False for compared in evidence) <= self.criteria.decision_changes
        for evaluated, compared in zip(results, evidence, strict=True):
            if any(d.nonfinite for d in compared.differences):
                self.locator.case(evaluated, fp32_finite=not baseline_broken(compared))
            elif any(d.measured > d.limit for d in compared.differences):
                self.locator.deviation(evaluated, decision_alone=False)
            elif compared.decision_stands is False and not allowed:
                self.locator.deviation(evaluated, decision_alone=True)
        known = self.baseline
        random = [e for e in known.cases if known.randomness[e.case.id] or e.case.id in known.random_decisions]
        self.locator.randomness(random)
        return evidence

    def _holds(self, evaluated: Evaluated) -> bool:
        """Whether a case stays within the criteria, its decision included."""
        compared = beside(self.bench.live.project, self.baseline, self.criteria, evaluated)
        near = all(d.nonfinite == 0 and d.measured <= d.limit for d in compared.differences)
        return near and compared.decision_stands is not False

    def _compared(self, trial: Evaluated) -> CaseEvidence:
        """One case held against the baseline, told and returned."""
        compared = beside(self.bench.live.project, self.baseline, self.criteria, trial)
        self.bench.emit(
            TrialCaseRun(
                figures=figures(trial),
                differences=compared.differences,
                decision_stands=compared.decision_stands,
                baseline_decision=compared.decision,
                baseline_margin=compared.margin,
            )
        )
        return compared

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
        except Stopped as stopped:
            self.stopped = stopped
            return False
        return True

    def _on_phase(self, run: GuardedRun, phase: Phase) -> Choice | None:
        self.first.note(run, phase)
        if phase.trip is not None:
            if self.trips.note(run, phase.trip):  # the scale excuses the gradient, not the loss
                self.numbers.look(run, phase.trip.update, phase.step, phase.trip.loss)
        elif phase.name == "check_grads" and phase.update is not None and not phase.note:
            self.numbers.look(run, phase.update, phase.step, phase.values["loss"])
            self.numbers.look_for_zeros(run, phase.update, phase.step)
        self.bench.between()
        return self.walk.after_phase(phase, run)

    def _on_record(self, record: IterationRecord) -> None:
        self.course.note(record)
        self.bench.emit(IterationDone(run="trial", record=record))
        self.bench.progress("trial", "stretch", record.step + 1, self.iterations)
        self.walk.after_iteration(record)

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

    def _silent(self) -> tuple[SilentLayers, ...]:
        norms = self.course.norms()
        found = (
            silent_layers(u.name, u.facts.layers, norms.get(u.name, {}), self.baseline.norms.get(u.name, {}))
            for u in self.bench.live.updates
        )
        return tuple(silent for silent in found if silent is not None)

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
            first_iteration=self.first.compared(self.guarded),
            iterations=self.iterations,
            completed=completed,
            counts=self.course.counts(),
            scaler=self.course.scale_course(),
            trips=self.trips.evidence,
            failures=tuple(self.failures),
            quality=reached,
            quality_better=self.bench.live.project.quality_better,
            late_loss=self.course.late_loss(),
            interventions=self.walk.interventions,
            located=tuple(self.locator.found),
            details=tuple(self.locator.details),
            silent=self._silent(),
        )

    def _note_failure(self, failure: UserCodeError) -> None:
        self.locator.failure(self.guarded, failure)
        where = failure.where or self._loss_of(failure.update)
        index = next((i for i, case in enumerate(self.bench.live.cases) if case.id == failure.case), None)
        step = failure.step if failure.step is not None else index
        module = {"decide": "decide", "outputs": "outputs"}.get(failure.phase, "")
        self.failures.append(
            CodeFailure(
                under="policy",
                exception=failure.exception,
                message=failure.message,
                where=where,
                module=module,
                op=None,
                step=step,
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
                where=where,
                module=module,
                step=failure.step,
                case=failure.case,
                frames=failure.frames,
            )
        )

    def _loss_of(self, update: str | None) -> str | None:
        """Where the loss function of an update is written: the place of a failure without a line of its own."""
        return self.bench.live.update(update).facts.loss_at if update is not None else None
