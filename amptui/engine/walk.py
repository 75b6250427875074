"""Who decides what happens after a phase: nobody, or the user who steps, runs to a condition and answers trips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from amptui.engine.course import Stopped
from amptui.engine.inbox import Inbox
from amptui.engine.iteration import Choice, GuardedRun, Phase
from amptui.engine.layer_figures import before_clipping, layer_figures
from amptui.engine.live import LiveProject
from amptui.engine.until import reached
from amptui.protocol.commands import (
    Advance,
    Answer,
    Cancel,
    Close,
    Command,
    Condition,
    Continue,
    FallBack,
    Pause,
)
from amptui.protocol.events import Event, Intervened, Paused, PhaseDone, Refused, Running
from amptui.protocol.facts import IterationRecord, UpdateRecord


class Unattended:
    """A clean run: nothing is waited for, every trip is the skip that it is."""

    attended = False
    interventions = 0

    def after_phase(self, phase: Phase, run: GuardedRun) -> Choice | None:  # noqa: ARG002 - as every walk has it
        return "go_on" if phase.trip is not None else None

    def after_iteration(self, record: IterationRecord) -> None:
        """Nothing is waited for."""


class LeftTrial(Stopped):
    """The user left the trial by a command that the conductor must still carry out."""

    def __init__(self, command: Command) -> None:
        super().__init__(type(command).__name__)
        self.command = command


@dataclass(eq=False)
class Attended:
    """Stops where the user wants to: after a phase, an iteration, at a condition, at every trip."""

    inbox: Inbox
    emit: Callable[[Event], object]
    attended: bool = True
    interventions: int = 0
    #: "phase" and "iteration" stop at the next one; "run" goes on until something stops it.
    pace: str = "phase"
    until: Condition | None = None
    #: Whether trips are waited for.
    waits: bool = True
    #: Iterations since an update was last applied.
    without_update: int = 0
    #: The project of the run, once a phase of it has been seen.
    live: LiveProject | None = None
    #: By update, the last step whose layers were measured before clipping.
    measured: dict[str, int] = field(default_factory=dict)

    def after_phase(self, phase: Phase, run: GuardedRun) -> Choice | None:
        self.live = run.live
        run.stepping = self.pace == "phase"
        if self.pace == "phase" or phase.trip is not None:
            self.emit(
                PhaseDone(
                    step=phase.step,
                    update=phase.update,
                    phase=phase.name,
                    micro_batch=phase.micro_batch,
                    values=dict(phase.values),
                    note=phase.note,
                )
            )
        if phase.update is not None and phase.trip is not None and phase.name != "check_grads":
            self._measure(run.live, phase.trip)  # it was clipped before a hook of the optimizer spoiled it
        elif phase.update is not None and (phase.trip is not None or self._looks_at(phase)):
            self.emit(layer_figures(run.live.update(phase.update), phase.step))
            self.measured[phase.update] = phase.step
        if phase.trip is not None:
            return self._answered(phase, run)
        if self.pace == "phase":
            self._wait(phase.step, "after this phase")
        else:
            self._look(phase.step)
        run.stepping = self.pace == "phase"
        return None

    def after_iteration(self, record: IterationRecord) -> None:
        self.without_update = 0 if any(u.applied for u in record.updates) else self.without_update + 1
        if self.pace == "iteration":
            self._measure_after(record)
            self._wait(record.step, "after this iteration")
        elif self.pace == "run" and self.until is not None:
            why = reached(self.until, record, self.without_update)
            if why is not None:
                self._measure_after(record)
                self._wait(record.step, why)

    def _measure_after(self, record: IterationRecord) -> None:
        """The layers of those updates of the iteration that has just ended that nobody was known to look at before."""
        for update in record.updates:
            if self.live is not None and self.measured.get(update.update) != record.step:
                self._measure(self.live, update)

    def _measure(self, live: LiveProject, record: UpdateRecord) -> None:
        update = live.update(record.update)
        by_value = update.update.clip_value is not None
        self.emit(before_clipping(layer_figures(update, record.step), record, by_value=by_value))

    def _looks_at(self, phase: Phase) -> bool:
        """Whether the user will stand where the gradients of this phase show: now, or after this iteration."""
        return self.pace in ("phase", "iteration") and phase.name == "check_grads"

    def _answered(self, phase: Phase, run: GuardedRun) -> Choice:
        """Waits for what the user wants to do about a trip; where none is waited for, it is the skip that it is."""
        if not self.waits:
            self._look(phase.step)
            return "go_on"
        command = self._wait(phase.step, "the guard held an update back")
        choice: Choice = command.choice if isinstance(command, Answer) else "go_on"
        if choice == "retry":
            self.interventions += 1
            self.emit(Intervened(what="retry", step=phase.step))
        run.stepping = self.pace == "phase"
        return choice

    def _wait(self, step: int, why: str) -> Command:
        """Blocks until a command says how to go on, and takes its pace over."""
        self.emit(Paused(step=step, why=why))
        while True:
            command = self.inbox.next()
            if command is None or isinstance(command, Cancel | Close | FallBack):
                raise LeftTrial(command if command is not None else Close())
            if isinstance(command, Advance | Continue | Answer):
                self._take(command)
                self.emit(Running(what=self.pace))
                return command
            self._refuse(command)

    def _look(self, step: int) -> None:
        """Takes what has arrived meanwhile, without waiting."""
        command = self.inbox.poll()
        while command is not None:
            if isinstance(command, Cancel | Close | FallBack):
                raise LeftTrial(command)
            if isinstance(command, Pause):
                self._wait(step, "paused")
            else:
                self._take(command)
                self._refuse(command)
            command = self.inbox.poll()

    def _refuse(self, command: Command) -> None:
        """What belongs to another stage is not dropped in silence."""
        if not isinstance(command, Advance | Continue | Answer | Pause):
            hint = "let it run to its end, or cancel it, and ask again"
            self.emit(Refused(code="order", message="a trial is running", hint=hint))

    def _take(self, command: Command) -> None:
        if isinstance(command, Advance):
            self.pace, self.until, self.waits = command.unit, None, True
        elif isinstance(command, Continue):
            self.pace, self.until, self.waits = "run", command.until, command.attended
        elif isinstance(command, Answer):
            self.waits = True
