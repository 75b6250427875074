"""From keys to commands: what the user wants, turned into what the engine is asked, in the order that is safe.

It holds no truth: everything is read off the session's state. What it remembers is what was asked and not answered yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from amptui.project import Criteria
from amptui.protocol.commands import (
    Advance,
    Answer,
    Cancel,
    Command,
    Condition,
    Continue,
    LockCriteria,
    Pause,
    RunBaseline,
    RunTrial,
)
from amptui.ui.criteria_form import with_value
from amptui.ui.dialogs import questions
from amptui.ui.dialogs.question import Question
from amptui.ui.moves import Page, Situation, next_stage

#: A stretch that is repeated is this many times as long.
EXTENDED = 10


class Screen(Protocol):
    """What steering needs of the screen."""

    @property
    def situation(self) -> Situation: ...

    def send(self, command: Command) -> None: ...

    def ask(self, question: Question, answered: Callable[[str], None]) -> None:
        """Asks; `answered` is called unless the question is left."""

    def go(self, page: Page) -> None: ...

    def changed_criteria(self, criteria: Criteria | None) -> None:
        """Shows what was written and is not locked yet."""

    def repaint(self) -> None: ...


class Steering:
    """Runs the stages in their order and the trial at the user's pace."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        #: Criteria as changed by the user and not locked yet.
        self.changed: Criteria | None = None
        self._until: Condition | None = None

    # The next thing to do.

    def proceed(self) -> None:
        """`c`: goes on with what is paused, else starts what is due."""
        now = self._screen.situation
        if now.in_trial:
            self._screen.send(Continue(until=self._until))
            return
        due = next_stage(now.state)
        if due == "baseline":
            self._screen.go("baseline")
            self._screen.send(RunBaseline())
        elif due == "criteria" and now.page != "criteria":
            self._screen.go("criteria")
        elif due == "criteria" or (now.page == "criteria" and self.changed is not None):
            self._lock()
        elif due == "trial":
            self._start(Continue())
        elif now.state.verdict is not None:
            self._screen.go("verdict")

    def phase(self) -> None:
        self._advance("phase")

    def iteration(self) -> None:
        self._advance("iteration")

    def _advance(self, unit: str) -> None:
        advance = Advance(unit="phase" if unit == "phase" else "iteration")
        self._until = None
        if self._screen.situation.in_trial:
            self._screen.send(advance)
        else:
            self._start(None if unit == "phase" else advance)

    def unattended(self) -> None:
        """A clean run to the verdict: every trip is the skip that it is."""
        self._screen.go("trial")
        self._screen.send(RunTrial(attended=False))

    def extend(self) -> None:
        self._screen.go("trial")
        self._screen.send(RunTrial(attended=False, extend=EXTENDED))

    def mend(self) -> None:
        """The trial again with the modules in FP32 that the verdict suggests, beside those that already are."""
        state = self._screen.situation.state
        if state.verdict is None or state.policy is None:
            return
        regions = dict.fromkeys((*state.policy.fp32_regions, *state.verdict.fp32_regions))
        self._screen.go("trial")
        self._screen.send(RunTrial(attended=False, policy={"fp32_regions": tuple(regions)}))

    def _start(self, first: Command | None) -> None:
        """An attended trial stops after its first phase; `first` is how it goes on from there."""
        self._until = None
        self._screen.go("trial")
        self._screen.send(RunTrial(attended=True))
        if first is not None:
            self._screen.send(first)

    # While the trial runs.

    def pause(self) -> None:
        """`space`: pauses what runs, runs what is paused."""
        now = self._screen.situation
        self._screen.send(Pause() if now.state.paused is None else Continue(until=self._until))

    def retry(self) -> None:
        self._screen.send(Answer(choice="retry"))

    def cancel(self) -> None:
        self._screen.send(Cancel())

    def until(self) -> None:
        """Asks for a condition, and for its figure where it has one."""
        self._screen.ask(questions.until(), self._until_chosen)

    def _until_chosen(self, name: str) -> None:
        asked = questions.until_value(name)
        if asked is None:
            self._run_until(questions.condition(name))
        else:
            self._screen.ask(asked, lambda text: self._run_until(questions.condition(name, text)))

    def _run_until(self, condition: Condition) -> None:
        self._until = condition
        self._screen.send(Continue(until=condition))

    # Criteria.

    def change(self, selected: str | None) -> None:
        """Asks for a new value of the criterion `selected`."""
        proposed = self._screen.situation.state.proposed
        if proposed is None:
            return
        proposal = next((p for p in proposed.proposals if p.name == selected), None)
        if proposal is None:
            return
        criteria = self.changed or self._locked_or_proposed()
        question = questions.criterion(proposal, criteria)
        self._screen.ask(question, lambda text: self._write(with_value(criteria, proposal.name, text)))

    def _write(self, criteria: Criteria) -> None:
        self.changed = criteria if criteria != self._locked_or_proposed() else None
        self._screen.changed_criteria(self.changed)

    def _locked_or_proposed(self) -> Criteria:
        state = self._screen.situation.state
        if state.locked is not None:
            return state.locked.criteria
        return state.proposed.criteria if state.proposed is not None else Criteria()

    def _lock(self) -> None:
        """Locks the proposal, or what the user made of it; what differs from the last revision needs a reason."""
        revisions = self._screen.situation.state.revisions
        if revisions and revisions[-1].criteria != (self.changed or self._locked_or_proposed()):
            self._screen.ask(questions.reason(self._screen.situation.state), self._lock_because)
        else:
            self._lock_because("")

    def _lock_because(self, reason: str) -> None:
        self._screen.send(LockCriteria(criteria=self.changed, reason=reason))
        self.changed = None
        self._screen.changed_criteria(None)
