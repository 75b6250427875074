"""The FP32 baseline: cases three times, the stretch once, and the proof that it repeats bit for bit."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import zip_longest

import torch

from amptui.engine import rng
from amptui.engine.bench import Bench
from amptui.engine.compare import largest_difference
from amptui.engine.course import Course, run_iteration, run_stretch
from amptui.engine.decisions import same_decision
from amptui.engine.evaluate import Evaluated, evaluate, figures, nonfinite_outputs, quality
from amptui.engine.gradients import Fingerprint, FirstGradients, fingerprint
from amptui.engine.iteration import GuardedRun, Phase
from amptui.engine.precision import true_fp32
from amptui.engine.refusals import refuse_left_on
from amptui.engine.tape import RngTape
from amptui.findings.evidence import BaselineEvidence, OutputRange
from amptui.findings.words import counted
from amptui.protocol.events import BaselineCaseRun, BaselineDone, FinalCaseRun, IterationDone, RepeatProved
from amptui.protocol.facts import IterationRecord

#: How many iterations are run twice from the checkpoint and compared bit for bit.
REPEATED = 3
#: How many more random states a decision is asked under where something draws and nothing has differed yet.
MORE_DRAWS = 8


@dataclass(eq=False)
class Baseline:
    """What the trial is held against."""

    tape: RngTape
    first: FirstGradients
    cases: list[Evaluated]
    final_cases: list[Evaluated]
    noise: Mapping[str, Mapping[str, float]]
    randomness: Mapping[str, Mapping[str, float]]
    random_decisions: frozenset[str]
    evidence: BaselineEvidence
    reasons: tuple[str, ...] = ()
    losses: dict[str, list[float]] = field(default_factory=dict)
    #: By update, of each of its applied iterations: step and gradient norm by layer.
    norms: dict[str, dict[int, tuple[float, ...]]] = field(default_factory=dict)


def run_baseline(bench: Bench) -> Baseline:
    """Runs the whole baseline in true FP32; the state of the checkpoint is restored before and after.

    Raises `UserCodeError` where the project fails in FP32 itself, `Refusal` where it leaves autocast on.
    """
    started = time.perf_counter()
    live = bench.live
    with true_fp32() as own:
        bench.restart()
        cases, noise, randomness, random_decisions = _run_cases(bench)
        quality_before = quality(live, cases)
        bench.restart()
        expected = _first_iterations(bench)
        bench.restart()
        stretch = _Stretch(bench, expected)
        if live.updates:
            stretch.run()
        proof = stretch.proof()
        bench.emit(proof)
        final_cases = _final_cases(bench) if live.updates else []
        quality_after = quality(live, final_cases) if live.updates else quality_before
        refuse_left_on(own.left_on())
    bench.restart()
    evidence = BaselineEvidence(
        repeatable=proof.repeatable,
        difference=proof.difference,
        first_bad=stretch.course.first_bad(),
        outputs=_ranges(cases, noise, randomness),
        quality=quality_after,
        quality_before=quality_before,
        counts=stretch.course.counts(),
        late_loss=stretch.course.late_loss(),
    )
    baseline = Baseline(
        tape=stretch.tape,
        first=stretch.first,
        cases=cases,
        final_cases=final_cases,
        noise=noise,
        randomness=randomness,
        random_decisions=random_decisions,
        evidence=evidence,
        reasons=_reasons(cases, final_cases, evidence, randomness),
        losses={name: [r.loss for r in records] for name, records in stretch.course.records.items()},
        norms=stretch.course.norms(),
    )
    bench.emit(
        BaselineDone(
            finite=not evidence.first_bad and not any(map(nonfinite_outputs, (*cases, *final_cases))),
            repeatable=evidence.repeatable,
            reasons=baseline.reasons,
            quality_before=quality_before,
            quality=quality_after,
            counts=evidence.counts,
            seconds=time.perf_counter() - started,
        )
    )
    return baseline


def _run_cases(
    bench: Bench,
) -> tuple[list[Evaluated], dict[str, dict[str, float]], dict[str, dict[str, float]], frozenset[str]]:
    """All cases twice from one RNG state (kernel noise) and once from another (randomness)."""
    live, total = bench.live, 3 * len(bench.live.cases)
    done = 0
    draws = False

    def on_case(_index: int) -> None:
        nonlocal done, draws
        done += 1
        draws = draws or (done <= len(live.cases) and rng.capture(like=bench.rng) != bench.rng)
        bench.progress("baseline", "cases", done, total)
        bench.between()

    first = evaluate(live, nullcontext, state=bench.rng, on_case=on_case)
    again = evaluate(live, nullcontext, state=bench.rng, on_case=on_case)
    other = evaluate(live, nullcontext, state=another_state(bench.rng), on_case=on_case)
    noise: dict[str, dict[str, float]] = {}
    randomness: dict[str, dict[str, float]] = {}
    random_decisions = set()
    for one, two, three in zip(first, again, other, strict=True):
        noise[one.case.id] = _differences(one, two)
        randomness[one.case.id] = _differences(one, three)
        if not (same_decision(one.decision, two.decision) and same_decision(one.decision, three.decision)):
            random_decisions.add(one.case.id)
    if draws and live.project.decide is not None and not random_decisions and not any(randomness.values()):
        random_decisions |= _drawn_decisions(bench, first)
    for one in first:
        bench.emit(BaselineCaseRun(figures=figures(one), noise=noise[one.case.id], randomness=randomness[one.case.id]))
    return first, noise, randomness, frozenset(random_decisions)


def _drawn_decisions(bench: Bench, first: list[Evaluated]) -> set[str]:
    """Cases that draw their decision: two draws of a few candidates are often the same one."""
    state = another_state(bench.rng)
    for _ in range(MORE_DRAWS):
        state = another_state(state)
        again = evaluate(bench.live, nullcontext, state=state)
        drawn = {a.case.id for a, b in zip(first, again, strict=True) if not same_decision(a.decision, b.decision)}
        if drawn:
            return drawn
    return set()


def another_state(state: rng.RngState) -> rng.RngState:
    """A state of all generators that has nothing in common with `state`; the present one is left as it is."""
    before = rng.capture()
    rng.restore(state)
    seed = random.getrandbits(63)
    torch.manual_seed(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    other = rng.capture()
    rng.restore(before)
    return other


def _differences(one: Evaluated, other: Evaluated) -> dict[str, float]:
    """By output, the largest difference of two runs; only outputs that differ."""
    names = {**one.outputs, **other.outputs}
    found = {}
    for name in names:
        both = name in one.outputs and name in other.outputs
        apart = largest_difference(one.outputs[name], other.outputs[name]) if both else float("inf")
        if apart > 0.0:
            found[name] = apart
    return found


@dataclass(eq=False)
class _Stretch:
    """The FP32 stretch; its first iterations are compared with those of the run before it."""

    bench: Bench
    expected: list[Fingerprint]

    def __post_init__(self) -> None:
        self.tape = RngTape()
        self.first = FirstGradients()
        self.course = Course(tuple(update.name for update in self.bench.live.updates))
        self.again: list[Fingerprint] = []

    def run(self) -> None:
        bench = self.bench
        run = GuardedRun(bench.live, bench.policy, mixed=False, tape=self.tape)
        run_stretch(run, bench.live.batches.iterations, on_phase=self._on_phase, on_record=self._on_record)

    def _on_phase(self, phase: Phase) -> None:
        self.first.note(self.bench.live, phase)
        if phase.name == "check_grads" and phase.step < len(self.expected):
            _add_fingerprint(self.again, self.bench, phase)
        self.bench.between()

    def _on_record(self, record: IterationRecord) -> None:
        self.course.note(record)
        self.bench.emit(IterationDone(run="baseline", record=record))
        self.bench.progress("baseline", "stretch", record.step + 1, self.bench.live.batches.iterations)

    def proof(self) -> RepeatProved:
        """Whether the first iterations gave the same bits twice, and the first tensor that did not."""
        pairs: Iterator[tuple[Fingerprint, Fingerprint]] = zip_longest(self.expected, self.again, fillvalue={})
        for step, (one, two) in enumerate(pairs):
            different = next((name for name in {**one, **two} if one.get(name) != two.get(name)), None)
            if different is not None:
                return RepeatProved(
                    repeatable=False,
                    iterations=len(self.expected),
                    difference=different,
                    step=step,
                    advice="Two runs from the same checkpoint differ. Something the run changes is not restored: name "
                    "it in Project(extra_state={'name': object}) if it has a state of its own (a private generator, a "
                    "sampler, an EMA), keep tensors in buffers, or make the kernels deterministic.",
                )
        return RepeatProved(repeatable=True, iterations=len(self.expected))


def _first_iterations(bench: Bench) -> list[Fingerprint]:
    """Loss, gradients and buffers of the first iterations as digests, from the checkpoint."""
    found: list[Fingerprint] = []
    run = GuardedRun(bench.live, bench.policy, mixed=False, tape=RngTape())

    def on_phase(phase: Phase) -> None:
        if phase.name == "check_grads":
            _add_fingerprint(found, bench, phase)
        bench.between()

    steps = min(REPEATED, bench.live.batches.iterations) if bench.live.updates else 0
    for step in range(steps):
        run_iteration(run, step, on_phase)
        bench.progress("baseline", "repeat proof", step + 1, steps)
    return found


def _add_fingerprint(prints: list[Fingerprint], bench: Bench, phase: Phase) -> None:
    while len(prints) <= phase.step:
        prints.append({})
    prints[phase.step].update(fingerprint(bench.live, phase))


def _final_cases(bench: Bench) -> list[Evaluated]:
    results = evaluate(bench.live, nullcontext, state=bench.rng, on_case=lambda _index: bench.between())
    for evaluated in results:
        bench.emit(FinalCaseRun(run="baseline", figures=figures(evaluated)))
    return results


def _ranges(
    cases: list[Evaluated], noise: Mapping[str, Mapping[str, float]], randomness: Mapping[str, Mapping[str, float]]
) -> dict[str, OutputRange]:
    largest: dict[str, float] = {}
    for evaluated in cases:
        for facts in figures(evaluated).outputs:
            reach = max(abs(facts.lowest or 0.0), abs(facts.highest or 0.0))
            largest[facts.name] = max(largest.get(facts.name, 0.0), reach)
    return {
        name: OutputRange(
            name=name,
            largest=reach,
            noise=max((by_output.get(name, 0.0) for by_output in noise.values()), default=0.0),
            randomness=max((by_output.get(name, 0.0) for by_output in randomness.values()), default=0.0),
        )
        for name, reach in largest.items()
    }


def _reasons(
    cases: list[Evaluated],
    final_cases: list[Evaluated],
    evidence: BaselineEvidence,
    randomness: Mapping[str, Mapping[str, float]],
) -> tuple[str, ...]:
    """Why this baseline decides nothing, in words; empty where it does."""
    reasons = [f"the FP32 stretch is not finite: {name} at step {step}" for name, step in evidence.first_bad.items()]
    for when, evaluated in (("before", cases), ("after", final_cases)):
        bad = [e for e in evaluated if nonfinite_outputs(e)]
        if bad:
            are = counted(len(bad), "case is", "cases are")
            reasons.append(f"{are} not finite in FP32 {when} the stretch, such as {bad[0].case.id!r}")
    if not evidence.repeatable:
        reasons.append(f"two FP32 runs from the checkpoint differ, first in {evidence.difference}")
    random_cases = [case for case, by_output in randomness.items() if by_output]
    if random_cases:
        depend = counted(len(random_cases), "case depends", "cases depend")
        reasons.append(f"{depend} on the RNG state, such as {random_cases[0]!r}")
    return tuple(reasons)
