"""The stretch: all iterations of one pass, and what is counted along the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from amptui.engine.iteration import Choice, GuardedRun, Phase
from amptui.findings.judgement import ScaleCourse, UpdateCounts
from amptui.protocol.facts import IterationRecord, UpdateRecord


class Stopped(Exception):
    """The user ended the pass at a safe point, between two phases."""


OnPhase = Callable[[Phase], "Choice | None"]


def run_stretch(
    run: GuardedRun, iterations: int, *, on_phase: OnPhase, on_record: Callable[[IterationRecord], None]
) -> None:
    """Runs `iterations` guarded iterations. `on_phase` is called after every phase; its answer to a trip is obeyed.

    Raises `UserCodeError` where user code raised, and whatever `on_phase` raises (such as `Stopped`).
    """
    for step in range(iterations):
        on_record(run_iteration(run, step, on_phase))


def run_iteration(run: GuardedRun, step: int, on_phase: OnPhase) -> IterationRecord:
    phases = run.iteration(step)
    choice: Choice | None = None
    while True:
        try:
            phase = phases.send(choice)
        except StopIteration as end:
            record: IterationRecord = end.value
            return record
        choice = on_phase(phase)


@dataclass(eq=False)
class Course:
    """Counts, losses and the course of the scale over one pass."""

    updates: tuple[str, ...]
    records: dict[str, list[UpdateRecord]] = field(default_factory=dict)
    iterations: int = 0
    initial_scale: float | None = None
    final_scale: float = 1.0
    lowest_scale: float = math.inf
    seconds: float = 0.0

    def note(self, record: IterationRecord) -> None:
        self.iterations += 1
        self.seconds += record.seconds
        if record.growth_interval:
            self.initial_scale = record.scale_before if self.initial_scale is None else self.initial_scale
            self.final_scale = record.scale_after
            self.lowest_scale = min(self.lowest_scale, record.scale_before, record.scale_after)
        for update in record.updates:
            self.records.setdefault(update.update, []).append(update)

    def counts(self) -> tuple[UpdateCounts, ...]:
        return tuple(self._count(name) for name in self.updates)

    def _count(self, name: str) -> UpdateCounts:
        records = self.records.get(name, [])
        return UpdateCounts(
            name=name,
            iterations=len(records),
            applied=sum(r.applied for r in records),
            skipped=sum(r.skipped for r in records),
            withheld=sum(r.withheld for r in records),
            changed=sum(r.applied and not r.zero_gradient for r in records),
            first_applied=next((r.step for r in records if r.applied), None),
            without_gradient=sum(r.outcome == "no_gradient" for r in records),
        )

    def scale_course(self) -> ScaleCourse | None:
        if self.initial_scale is None:
            return None
        return ScaleCourse(initial=self.initial_scale, final=self.final_scale, lowest=self.lowest_scale)

    def first_bad(self) -> dict[str, int]:
        """By update, the first step at which something was not finite."""
        found = {}
        for name, records in self.records.items():
            step = next((r.step for r in records if r.outcome not in ("ok", "no_gradient")), None)
            if step is not None:
                found[name] = step
        return found

    def norms(self) -> dict[str, dict[int, tuple[float, ...]]]:
        """By update and step, the gradient norms by layer of what was applied (-1 for a layer without gradient)."""
        return {name: {r.step: tuple(r.norms) for r in records if r.applied} for name, records in self.records.items()}

    def late_loss(self) -> dict[str, float]:
        """By update, the mean loss of the last quarter of its iterations (NaN where one of them is)."""
        return {name: _mean_of_last_quarter([r.loss for r in records]) for name, records in self.records.items()}


def _mean_of_last_quarter(losses: list[float]) -> float:
    late = losses[-max(1, len(losses) // 4) :]
    if not all(map(math.isfinite, late)):
        return math.nan
    return math.fsum(late) / len(late)
