"""What a run of the stretch leaves for plots, timelines and tables; `SessionState` keeps only its last record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from amptui.protocol.facts import IterationRecord, UpdateRecord
from amptui.ui.raster.timeline import Outcome
from amptui.ui.series import Outcomes, Series

#: Steps of which every layer's norm is kept, to lay a trial's beside the baseline's.
NORM_STEPS = 1000


@dataclass
class UpdateHistory:
    """One update over a run: its figures by step, and every layer's norm for the first `NORM_STEPS` of them."""

    loss: Series = field(default_factory=Series)
    norm: Series = field(default_factory=Series)
    learning_rate: Series = field(default_factory=Series)
    outcomes: Outcomes = field(default_factory=Outcomes)
    layer_norms: dict[int, Sequence[float]] = field(default_factory=dict)
    last: UpdateRecord | None = None

    def take(self, record: UpdateRecord) -> None:
        self.loss.append(record.step, record.loss)
        self.norm.append(record.step, record.norm if record.outcome != "no_gradient" else None)
        self.learning_rate.append(record.step, record.learning_rate)
        self.outcomes.append(record.step, outcome_of(record))
        self.last = record
        if len(self.layer_norms) < NORM_STEPS:
            self.layer_norms[record.step] = record.norms


@dataclass
class RunHistory:
    """One run of the stretch: every update's history, and what the updates share."""

    updates: dict[str, UpdateHistory] = field(default_factory=dict)
    scale: Series = field(default_factory=Series)
    memory: Series = field(default_factory=Series)
    #: Iterations a second, smoothed over the last few.
    rate: float = math.nan

    def take(self, record: IterationRecord) -> None:
        for update in record.updates:
            self.updates.setdefault(update.update, UpdateHistory()).take(update)
        absent = [history for name, history in self.updates.items() if name not in {u.update for u in record.updates}]
        for history in absent:
            history.outcomes.append(record.step, "absent")
        # As the last attempt used it: after retries, no longer what the iteration began with.
        self.scale.append(record.step, record.updates[-1].scale if record.updates else record.scale_before)
        self.memory.append(record.step, float(record.memory))
        now = 1.0 / record.seconds if record.seconds > 0 else math.nan
        self.rate = now if math.isnan(self.rate) else 0.9 * self.rate + 0.1 * now

    def outcomes(self) -> Mapping[str, Outcomes]:
        return {name: history.outcomes for name, history in self.updates.items()}


def outcome_of(record: UpdateRecord) -> Outcome:
    """What the timeline shows of an update."""
    if record.applied:
        return "applied"
    if record.outcome == "no_gradient":
        return "absent"
    return "skipped" if record.skipped else "withheld"
