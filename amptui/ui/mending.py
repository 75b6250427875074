"""`m`: the trial again with modules in FP32 that mend what failed; one that is held is left for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from amptui.protocol import events as told
from amptui.protocol.commands import Cancel, Command, RunTrial
from amptui.protocol.events import Event
from amptui.session.death import EngineDeath
from amptui.ui import policies as trying
from amptui.ui.dialogs import questions
from amptui.ui.dialogs.question import Question
from amptui.ui.moves import Situation, regions_to_mend
from amptui.ui.pages import Page


class Screen(Protocol):
    """What mending needs of the screen."""

    @property
    def situation(self) -> Situation: ...

    def send(self, command: Command) -> None: ...

    def ask(self, question: Question, answered: Callable[[str], None]) -> None: ...

    def go(self, page: Page) -> None: ...


class Mending:
    """One trial with further FP32 regions, begun at once or when the held one has ended."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        #: The trial that begins when the held one has been left.
        self._next: RunTrial | None = None

    def begin(self) -> None:
        """The modules are added to those that are in FP32 already; leaving a held trial is confirmed first."""
        now = self._screen.situation
        state, found = now.state, regions_to_mend(now.state)
        if not found or state.policy is None or state.project is None:
            return
        policy = replace(state.policy, fp32_regions=tuple(dict.fromkeys((*state.policy.fp32_regions, *found))))
        again = RunTrial(attended=False, policy=trying.given_for(policy, state.project.policy))
        if now.in_trial:
            self._screen.ask(questions.mend(found, now.keys), lambda _: self._leave_for(again))
        else:
            self._start(again)

    def give_up(self) -> None:
        """Something else was asked for meanwhile."""
        self._next = None

    def notice(self, event: Event | EngineDeath) -> None:
        """Goes on when the held trial has ended."""
        if isinstance(event, EngineDeath | told.EngineStarted | told.EngineFailed):
            self.give_up()
        elif isinstance(event, told.StageEnded) and event.stage == "trial" and self._next is not None:
            again, self._next = self._next, None
            self._start(again)

    def _leave_for(self, again: RunTrial) -> None:
        if self._screen.situation.in_trial:
            self._screen.send(Cancel())
            self._next = again

    def _start(self, again: RunTrial) -> None:
        self._screen.go("trial")
        self._screen.send(again)
