"""One run of the stretch as its iterations add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from amptui.findings.judgement import ScaleCourse, UpdateCounts
from amptui.protocol.facts import IterationRecord, UpdateRecord


@dataclass(frozen=True, kw_only=True)
class RunState:
    """One run of the stretch as far as it has come; `counts` by update, exact once the run is done."""

    iterations: int = 0
    last: IterationRecord | None = None
    counts: Mapping[str, UpdateCounts] = field(default_factory=dict)
    scale: ScaleCourse | None = None


def advanced(run: RunState, record: IterationRecord) -> RunState:
    counts = dict(run.counts)
    for update in record.updates:
        counts[update.update] = _counted(counts.get(update.update), update)
    course = run.scale or ScaleCourse(initial=record.scale_before, final=0.0, lowest=record.scale_before)
    lowest = min(course.lowest, record.scale_after)
    return RunState(
        iterations=run.iterations + 1,
        last=record,
        counts=counts,
        scale=replace(course, final=record.scale_after, lowest=lowest),
    )


def _counted(counts: UpdateCounts | None, update: UpdateRecord) -> UpdateCounts:
    counts = counts or UpdateCounts(name=update.update, iterations=0, applied=0, skipped=0, withheld=0, changed=0)
    first = counts.first_applied
    return replace(
        counts,
        iterations=counts.iterations + 1,
        applied=counts.applied + update.applied,
        skipped=counts.skipped + update.skipped,
        withheld=counts.withheld + update.withheld,
        changed=counts.changed + (update.applied and not update.zero_gradient),
        first_applied=update.step if first is None and update.applied else first,
        without_gradient=counts.without_gradient + (update.outcome == "no_gradient"),
    )


def exact(run: RunState, counts: tuple[UpdateCounts, ...], scale: ScaleCourse | None) -> RunState:
    """The engine's own counts: telemetry that added up to them may have been left out on the line."""
    return replace(run, counts={count.name: count for count in counts}, scale=scale)
