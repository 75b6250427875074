"""`R`: after an edit. A new engine opens the session again with the source as it is now, and runs the kept case first.

The engine restores the checkpoint, verified, and remarks on sources that have changed. What is proven anew after that
is what `c` goes on with: the baseline, the criteria, the trial.
"""

from __future__ import annotations

from typing import Protocol

from amptui.protocol import events as told
from amptui.protocol.commands import Command, ReplayCase
from amptui.protocol.events import Event
from amptui.session.death import EngineDeath
from amptui.session.state import SessionState


class Surroundings(Protocol):
    """What reloading needs of the screen."""

    @property
    def state(self) -> SessionState: ...

    def send(self, command: Command) -> None: ...

    def restart_engine(self) -> None:
        """Ends the engine whatever it does, starts a new one for the session and opens the project there."""

    def show_failure(self, retained: str) -> None:
        """Shows what is known of the retained case."""


class Reload:
    """One reload at a time, from the key to the replayed case."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings
        #: Whether a reload was asked for and has neither ended nor failed.
        self.underway = False
        self._case: str | None = None
        self._opened = False

    def begin(self, case: str | None) -> None:
        """Reloads and replays the retained case `case`, or opens the project alone where there is none."""
        self.underway, self._case, self._opened = True, case, False
        self._around.restart_engine()

    def give_up(self) -> None:
        """Something else is asked for meanwhile."""
        self.underway = False

    def notice(self, event: Event | EngineDeath) -> None:
        """Goes on when the project is open; ends with the replay or with what stands in its way."""
        if not self.underway:
            return
        if isinstance(event, told.ProjectOpened):
            self._opened = True
        elif isinstance(event, EngineDeath | told.EngineFailed | told.Refused):
            self.underway = False
        elif isinstance(event, told.CaseReplayed):
            self.underway = False
            self._around.show_failure(event.id)
        elif isinstance(event, told.StageEnded) and self._opened:
            self._project_is_open(event)

    def _project_is_open(self, event: told.StageEnded) -> None:
        if event.stage == "project" and event.completed and self._case is not None:
            self._around.send(ReplayCase(id=self._case))
        else:  # nothing to replay, or it ended early
            self.underway = False


def case_to_replay(state: SessionState, looked_at: str | None) -> str | None:
    """The retained case that is looked at, else the newest."""
    if looked_at is not None:
        return looked_at
    return state.retained[-1].id if state.retained else None
