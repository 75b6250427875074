"""From keys to commands: what the user wants, turned into what the engine is asked, in the order that is safe.

It holds no truth: everything is read off the session's state. What it remembers is what was asked and not answered yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from amptui.project import Criteria
from amptui.protocol import events as told
from amptui.protocol.commands import (
    Advance,
    Answer,
    Cancel,
    Command,
    Condition,
    Continue,
    FindCases,
    LockCriteria,
    Measure,
    MeasureSeeds,
    Pause,
    ProposeCriteria,
    RunBaseline,
    RunTrial,
)
from amptui.protocol.events import Event
from amptui.session.death import EngineDeath
from amptui.session.state import SessionState
from amptui.ui import policies as trying
from amptui.ui.criteria_form import with_value
from amptui.ui.dialogs import questions
from amptui.ui.mending import Mending
from amptui.ui.moves import Move, Situation, next_move, next_stage, to_measure
from amptui.ui.pages import Page
from amptui.ui.writing import Writing, WritingScreen

#: A stretch that is repeated is this many times as long.
EXTENDED = 10
#: Why criteria are others than before where the user wrote none of them.
PROPOSED_ANEW = "proposed anew by the same rules from a new baseline; no limit was changed by hand"


class Screen(WritingScreen, Protocol):
    """What steering needs of the screen."""

    @property
    def situation(self) -> Situation: ...

    @property
    def state(self) -> SessionState: ...

    def send(self, command: Command) -> None: ...

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
        #: Policies that were chosen before the criteria were locked: the limits are proposed for all of them.
        self._plan: tuple[trying.Given, ...] = ()
        #: Trials that were asked for together and have not been run yet.
        self._to_try: list[RunTrial] = []
        self._side_by_side = False
        self.mending = Mending(screen)
        self._writing = Writing(screen)

    # The next thing to do.

    def proceed(self) -> None:
        """`c`: goes on with what is paused, else starts what is due."""
        now = self._screen.situation
        move = next_move(now)
        pages: dict[Move, Page] = {
            "show criteria": "criteria",
            "show verdict": "verdict",
            "show measure": "measure",
            "show report": "report",
        }
        if move in pages:
            self._screen.go(pages[move])
        elif move == "run on":
            self._screen.send(Continue(until=self._until))
        elif move == "baseline":
            self._screen.go("baseline")
            self._screen.send(RunBaseline())
        elif move == "lock":
            self._lock()
        elif move == "trial":
            self._start(Continue())
        elif move == "trials":
            self._try(self._plan)
        elif move == "measure":
            self._measure(now.state)
        elif move == "write report":
            self._writing.report()
        elif move == "write cases":
            self._writing.cases(lambda path: self._screen.send(FindCases(path=str(path))))

    def phase(self) -> None:
        self._advance("phase")

    def iteration(self) -> None:
        self._advance("iteration")

    def _advance(self, unit: Literal["phase", "iteration"]) -> None:
        advance = Advance(unit=unit)
        self._until = None
        if self._screen.situation.in_trial:
            self._screen.send(advance)
        else:
            self._once_more(lambda: self._start(None if unit == "phase" else advance))

    def unattended(self) -> None:
        """A run to the verdict without stopping: every trip is the skip that it is. From here, or from the start."""
        if self._screen.situation.in_trial:
            self._until = None
            self._screen.send(Continue(attended=False))
        else:
            self._once_more(self._run_unattended)

    def _run_unattended(self, extend: int = 1) -> None:
        self._screen.go("trial")
        self._screen.send(RunTrial(attended=False, policy=self._again(), extend=extend))

    def _once_more(self, start: Callable[[], None]) -> None:
        """Starts a trial; asks first where one looks at a trial that has ended, whose keys went on with it before."""
        now = self._screen.situation
        trial = now.state.trial
        if now.page == "trial" and next_stage(now.state) is None and trial is not None:
            self._screen.ask(questions.another_trial(trial), lambda answer: start() if answer == "yes" else None)
        else:
            start()

    def extend(self) -> None:
        self._once_more(lambda: self._run_unattended(EXTENDED))

    def mend(self) -> None:
        self.mending.begin()

    def _again(self) -> dict[str, object]:
        return trying.again(self._screen.situation.state)

    def _start(self, first: Command | None) -> None:
        """An attended trial stops after its first phase; `first` is how it goes on from there."""
        self._until = None
        self._screen.go("trial")
        self._screen.send(RunTrial(attended=True, policy=self._again()))
        if first is not None:
            self._screen.send(first)

    # Side by side, and beyond the verdict.

    @property
    def planned(self) -> str:
        """The names of what was chosen before the lock and has not been tried."""
        return trying.names(self._screen.state, self._plan) if self._plan else ""

    def policies(self) -> None:
        """`p`: asks which policies to try, and runs them one after the other; before the lock, they are planned."""
        now = self._screen.situation
        self._screen.ask(questions.policies(now.state, now.keys), self._chosen)

    def _chosen(self, answer: str) -> None:
        if answer == "write":
            self._screen.ask(questions.written_policies(), lambda text: self._wanted(trying.read(text)))
            return
        for choice in trying.choices(self._screen.situation.state):
            if choice.key == answer:
                self._wanted(choice.policies)

    def _wanted(self, policies: Sequence[trying.Given]) -> None:
        if self._screen.situation.state.locked is not None:
            self._try(policies)
            return
        self._plan = tuple(policies)
        self._write(self._locked_or_proposed())  # what was changed was about other proposals
        self._screen.send(ProposeCriteria(dtype=trying.coarsest(policies)))

    def _try(self, policies: Sequence[trying.Given]) -> None:
        """Chosen before the first trial has run, none of them is an intervention; the engine counts the others."""
        planned = not self._screen.situation.state.trials
        self._plan = ()
        self._to_try = [RunTrial(attended=False, policy=dict(given), planned=planned) for given in policies]
        self._side_by_side = True
        self._try_next()

    def _try_next(self) -> None:
        self._screen.go("trial")
        self._screen.send(self._to_try.pop(0))

    def notice(self, event: Event | EngineDeath) -> None:
        """Goes on with the next policy when one has ended, also by being refused; with none where it was ended."""
        self.mending.notice(event)
        if isinstance(event, told.Paused) and event.why.startswith("until"):
            self._until = None  # reached: what runs on from here runs to the end
        if isinstance(event, EngineDeath | told.EngineStarted | told.EngineFailed | told.Cancelled):
            self._plan, self._to_try, self._side_by_side = (), [], False
        elif isinstance(event, told.StageEnded) and event.stage == "trial" and self._side_by_side:
            if self._to_try:
                self._try_next()
            else:
                self._side_by_side = False
                self._screen.go("measure")

    def _measure(self, state: SessionState) -> None:
        trial = to_measure(state)
        if trial is not None:
            self._screen.send(Measure(trial=trial.number))

    def yardstick(self) -> None:
        self._screen.send(MeasureSeeds())

    def find_cases(self) -> None:
        self._screen.go("cases")
        self._screen.send(FindCases())

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
        """Locks the proposal, or what the user made of it; what the user changed after a lock needs their reason.

        A proposal of a baseline that was run anew may differ from the last revision too: that is the reason then.
        """
        revisions = self._screen.situation.state.revisions
        if not revisions or revisions[-1].criteria == (self.changed or self._locked_or_proposed()):
            self._lock_because("")
        elif self.changed is None:
            self._lock_because(PROPOSED_ANEW)
        else:
            self._screen.ask(questions.reason(self._screen.situation.state), self._lock_because)

    def _lock_because(self, reason: str) -> None:
        self._screen.send(LockCriteria(criteria=self.changed, reason=reason))
        self.changed = None
        self._screen.changed_criteria(None)
