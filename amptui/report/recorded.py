"""A recorded session as a report needs it: the state that its events reduce to, and both runs' figures by iteration."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from amptui.project import Policy
from amptui.protocol import events as told
from amptui.protocol.codec import Envelope
from amptui.protocol.facts import CaseFigures, IterationRecord, UpdateRecord
from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from amptui.session.history import history
from amptui.session.lock import lock_holder
from amptui.session.paths import name_of
from amptui.session.side_by_side import chosen
from amptui.session.state import SessionState, TrialState, reduce
from amptui.session.store import Store

Taken = Literal["applied", "skipped", "withheld", "no gradient"]
TAKEN: tuple[Taken, ...] = ("applied", "skipped", "withheld", "no gradient")


@dataclass
class UpdateCurves:
    """One update over a run: by iteration in which it took part, loss, unscaled norm and what became of it."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    losses: array[float] = field(default_factory=lambda: array("d"))
    norms: array[float] = field(default_factory=lambda: array("d"))
    #: Places in `TAKEN`.
    taken: array[int] = field(default_factory=lambda: array("b"))
    #: Whether its loss function returned a mapping.
    mapped_loss: bool = False

    def add(self, record: UpdateRecord) -> None:
        self.steps.append(record.step)
        self.losses.append(record.loss)
        self.norms.append(record.norm)
        self.taken.append(TAKEN.index(_taken(record)))
        self.mapped_loss |= record.mapped_loss


@dataclass
class RunCurves:
    """One run of the stretch: its updates, and the loss scale that each iteration ran with (empty without scaler)."""

    updates: dict[str, UpdateCurves] = field(default_factory=dict)
    steps: array[int] = field(default_factory=lambda: array("q"))
    scales: array[float] = field(default_factory=lambda: array("d"))
    #: The cases after the stretch, by id.
    final: dict[str, CaseFigures] = field(default_factory=dict)

    def add(self, record: IterationRecord) -> None:
        for update in record.updates:
            self.updates.setdefault(update.update, UpdateCurves()).add(update)
        if record.growth_interval:
            self.steps.append(record.step)
            self.scales.append(record.scale_before)


def _taken(record: UpdateRecord) -> Taken:
    if record.applied:
        return "applied"
    if record.outcome == "no_gradient":
        return "no gradient"
    return "skipped" if record.skipped else "withheld"


@dataclass(frozen=True)
class Recorded:
    """What one session recorded.

    `state` is the session at its end, or as it was before the project was opened once more without another trial:
    what a report says about a trial must not be mixed with another project.
    """

    session: str
    path: str
    state: SessionState
    baseline: RunCurves
    #: One for each of `state.trials`, in the same order.
    trials: tuple[RunCurves, ...]
    #: Unix times of the first and the last event; None for a session without events.
    began: float | None
    ended: float | None
    fallbacks: tuple[told.FellBack, ...] = ()
    opened_again: bool = False
    #: Whether an engine drives the session, which has not ended.
    alive: bool = False
    #: What a command finds the session by, where its id is not enough: it lies in a folder of its own.
    found_by: str = ""

    @property
    def trial(self) -> TrialState | None:
        """The trial that speaks for the session, and that the report is about."""
        return chosen(self.state)

    @property
    def verdict(self) -> told.VerdictReached | None:
        trial = self.trial
        return trial.verdict if trial is not None else None

    @property
    def policy(self) -> Policy | None:
        trial = self.trial
        return trial.started.policy if trial is not None else self.state.policy

    @property
    def curves(self) -> RunCurves | None:
        """Those of `trial`."""
        trial = self.trial
        return next((run for run, its in zip(self.trials, self.state.trials, strict=True) if its is trial), None)


def read(folder: SessionFolder) -> Recorded:
    """Everything that a session recorded, without torch and without any of the project's code.

    Raises SessionError where there is no store, or where it is damaged.
    """
    with Store.read(folder) as store:
        return collect(
            history(store),
            session=folder.session_id,
            path=str(folder.path),
            alive=_driven(folder),
            found_by=name_of(folder),
        )


def _driven(folder: SessionFolder) -> bool:
    """Whether an engine holds the session's lock; no, where the file system does not tell."""
    with suppress(OSError, SessionError):
        return lock_holder(folder) is not None
    return False


def collect(
    events: Iterable[Envelope], *, session: str, path: str, alive: bool = False, found_by: str = ""
) -> Recorded:
    """Reduces `events`, which come in the order of the session."""
    state, judged = SessionState(), None
    baseline, trials = RunCurves(), list[RunCurves]()
    began = ended = None
    fallbacks = list[told.FellBack]()
    for envelope in events:
        event = envelope.event
        began, ended = (envelope.time if began is None else began), envelope.time
        if isinstance(event, told.StageStarted) and event.stage == "project" and state.trials:
            judged = judged or (state, baseline)
        elif isinstance(event, told.StageStarted) and event.stage == "baseline":
            baseline = RunCurves()
        elif isinstance(event, told.TrialStarted):
            judged = None
            trials.append(RunCurves())
        elif isinstance(event, told.IterationDone):
            run = baseline if event.run == "baseline" or not trials else trials[-1]
            run.add(event.record)
        elif isinstance(event, told.FinalCaseRun) and event.run == "trial" and trials:
            trials[-1].final[event.figures.case] = event.figures
        elif isinstance(event, told.FellBack):
            fallbacks.append(event)
        state = reduce(state, event)
    opened_again = judged is not None
    state, baseline = judged or (state, baseline)
    return Recorded(
        session=session,
        path=path,
        state=state,
        baseline=baseline,
        trials=tuple(trials),
        began=began,
        ended=ended,
        fallbacks=tuple(fallbacks),
        opened_again=opened_again,
        alive=alive,
        found_by=found_by,
    )
