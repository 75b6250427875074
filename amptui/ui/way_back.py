"""`F`: from anywhere after the checkpoint was written back to it, also while a phase hangs or the engine is dead.

What runs is asked to end at its next safe point; then the restore is sent. Where that takes too long, a new engine is
offered; it opens the project, restores the checkpoint of the session, and compares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from amptui.protocol import events as told
from amptui.protocol.commands import Cancel, Command, FallBack
from amptui.protocol.events import Event
from amptui.session.death import EngineDeath
from amptui.session.state import SessionState
from amptui.ui.dialogs import questions
from amptui.ui.dialogs.question import Question
from amptui.ui.key_names import KeyNames

#: Seconds that a phase may take to its end before a new engine is offered.
PATIENCE_S = 5.0
#: Seconds that a new engine may take to open the project: it imports torch and the user's code.
OPENING_S = 30.0
#: Engines that are started in a row before it is given up: what dies while it opens the project does so again.
_ENGINES = 2


class Surroundings(Protocol):
    """What the way back needs of the screen."""

    @property
    def state(self) -> SessionState: ...

    @property
    def connected(self) -> bool: ...

    @property
    def starting(self) -> bool:
        """Whether a new engine was asked for and has not said anything yet."""

    @property
    def session(self) -> str:
        """What a command finds the session by."""

    @property
    def keys(self) -> KeyNames:
        """How questions call the keys."""

    def send(self, command: Command) -> None: ...

    def ask(self, question: Question, answered: Callable[[str], None]) -> None: ...

    def withdraw(self, question: Question) -> None:
        """Leaves `question` if it is still asked."""

    def later(self, seconds: float, callback: Callable[[], None]) -> object: ...

    def restart_engine(self) -> None:
        """Ends the engine whatever it does, starts a new one for the session and opens the project there."""


class WayBack:
    """One fall back at a time, from the question to the restored checkpoint."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings
        #: Whether a fall back was asked for and has neither ended nor been refused.
        self.underway = False
        self._sent = False
        #: Engines that were started for it.
        self._engines = 0
        #: The question whether to wait on, once it was asked.
        self._asked: Question | None = None
        #: Counts what was sent, so that a timer of something earlier says nothing about this.
        self._attempt = 0

    def ask(self) -> None:
        """`F`; `F` again confirms. Where the project cannot be opened there is nothing to put the weights back into."""
        state = self._around.state
        if state.project is None and state.obstacle is not None:
            asked = questions.nothing_to_restore(state.obstacle, self._around.session, self._around.keys)
            self._around.ask(asked, lambda _: None)
        else:
            self._around.ask(questions.fall_back(state, self._around.keys), lambda _: self.begin())

    def begin(self) -> None:
        state = self._around.state
        self.underway, self._sent, self._engines = True, False, 0
        if self._around.starting:  # after an edit, say: the engine to come is brought back
            self._engines = 1
            self._wait(OPENING_S)
        elif not self._around.connected or state.engine in ("dead", "ended", "failed"):
            self._restart()
        elif "running" in state.stages.values():
            self._around.send(Cancel())
            self._wait()
        else:
            self._restore()

    def notice(self, event: Event | EngineDeath) -> None:
        """Goes on when what ran has ended; ends with the restore or with what stands in its way."""
        if not self.underway:
            return
        if isinstance(event, EngineDeath):
            if self._engines < _ENGINES:
                self._restart()
            else:
                self._end()
        elif isinstance(event, told.FellBack | told.Refused):
            self._end()
        elif isinstance(event, told.StageEnded) and not self._sent and self._opened:
            self._restore()

    @property
    def _opened(self) -> bool:
        """Whether the engine has the project open; what is told before it starts is the last word of the one before."""
        return self._around.state.project is not None and not self._around.starting

    def _end(self) -> None:
        self.underway = False
        if self._asked is not None:
            self._around.withdraw(self._asked)

    def _restore(self) -> None:
        self._sent = True
        self._around.send(FallBack())
        self._wait()

    def _restart(self) -> None:
        self._sent = False
        self._engines += 1
        self._around.restart_engine()
        self._wait(OPENING_S)

    def _wait(self, patience: float = PATIENCE_S) -> None:
        self._attempt += 1
        attempt = self._attempt
        self._around.later(patience, lambda: self._look_again(attempt, patience))

    def _look_again(self, attempt: int, patience: float) -> None:
        """The engine has had its time: still nothing means that user code hangs."""
        if self.underway and attempt == self._attempt:
            opening = self._engines > 0 and not self._sent
            self._asked = questions.engine_hangs(patience, self._around.session, opening=opening)
            self._around.ask(self._asked, lambda choice: self._decided(choice, patience))

    def _decided(self, choice: str, patience: float) -> None:
        if not self.underway:
            return
        if choice == "new":
            self._engines = 0
            self._restart()
        elif choice == "stop":
            self.underway = False
        else:
            self._wait(patience)
