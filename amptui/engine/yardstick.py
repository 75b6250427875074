"""A yardstick for a trial's effect: the FP32 stretch under other seeds.

Another seed draws other dropout masks and noise, and brings the batches in another order; the batches of the last
quarter keep their place, so that the late loss is the mean over the same data.
"""

from __future__ import annotations

import random
import time
from contextlib import nullcontext
from dataclasses import replace

from amptui.engine import rng
from amptui.engine.baseline import Baseline, another_state
from amptui.engine.bench import Bench
from amptui.engine.course import Course, run_stretch
from amptui.engine.evaluate import evaluate, quality
from amptui.engine.iteration import GuardedRun, Phase
from amptui.engine.live import LiveProject
from amptui.engine.precision import true_fp32
from amptui.engine.tape import RngTape
from amptui.findings.gain import SeedSpread
from amptui.protocol.events import SeedsMeasured
from amptui.protocol.facts import IterationRecord


def measure_seeds(bench: Bench, baseline: Baseline, seeds: int) -> SeedsMeasured:
    """Runs the FP32 stretch under `seeds` other seeds; the checkpoint's state is restored afterwards.

    Raises `UserCodeError` where the project fails, `Stopped` where the user ends the stage.
    """
    started = time.perf_counter()
    losses: list[dict[str, float]] = []
    qualities: list[float] = []
    state = bench.rng
    try:
        for seed in range(seeds):
            state = another_state(state)
            late, reached = _run(bench, state, seed, seeds)
            losses.append(late)
            if reached is not None:
                qualities.append(reached)
    finally:
        bench.start.restore()
    evidence = baseline.evidence
    spreads = [
        SeedSpread(
            what=f"loss of {name}",
            subject="loss",
            baseline=loss,
            others=tuple(run[name] for run in losses if name in run),
        )
        for name, loss in evidence.late_loss.items()
    ]
    if evidence.quality is not None and qualities:
        spreads.append(
            SeedSpread(what="quality", subject="quality", baseline=evidence.quality, others=tuple(qualities))
        )
    return SeedsMeasured(seeds=seeds, spreads=tuple(spreads), seconds=time.perf_counter() - started)


def _run(bench: Bench, state: rng.RngState, seed: int, seeds: int) -> tuple[dict[str, float], float | None]:
    """The late loss by update and the quality, from the checkpoint's weights."""
    live = _reordered(bench.live, seed)
    iterations = live.batches.iterations
    course = Course(tuple(update.name for update in live.updates))
    bench.start.restore()
    rng.restore(state)

    def on_phase(_phase: Phase) -> None:
        bench.between()

    def on_record(record: IterationRecord) -> None:
        course.note(record)
        bench.progress("measure", "other seeds", seed * iterations + record.step + 1, seeds * iterations)

    with true_fp32():
        run = GuardedRun(live, bench.policy, mixed=False, tape=RngTape())
        run_stretch(run, iterations, on_phase=on_phase, on_record=on_record)
        cases = evaluate(live, nullcontext, state=bench.rng, on_case=lambda _index: bench.between())
        return course.late_loss(), quality(live, cases)


def _reordered(live: LiveProject, seed: int) -> LiveProject:
    """The project with the windows before the last quarter in another order."""
    frozen = live.batches
    windows = [
        frozen.batches[start : start + frozen.accumulate]
        for start in range(0, frozen.iterations * frozen.accumulate, frozen.accumulate)
    ]
    late = max(1, len(windows) // 4)
    early = windows[: len(windows) - late]
    random.Random(seed).shuffle(early)  # noqa: S311 - an order of batches, not a secret
    batches = [batch for window in (*early, *windows[len(windows) - late :]) for batch in window]
    return replace(live, batches=replace(frozen, batches=batches))
