"""A session as the screen holds it: the reduced state, the histories that plots are drawn from, the log of events.

Live events, a recorded session and an attached one all come in through `take`; no widget knows more than this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path

from amptui.protocol import events as told
from amptui.protocol.events import Event
from amptui.session.death import EngineDeath
from amptui.session.state import SessionState, died, reduce
from amptui.ui.event_words import entry_for
from amptui.ui.histories import RunHistory, UpdateHistory
from amptui.ui.raster.log import Entry

#: Entries of the event log that are kept; the session's file has them all.
ENTRIES = 1000


class SessionView:
    """What is known of one session so far."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.state = SessionState()
        self.baseline = RunHistory()
        self.trial = RunHistory()
        self.entries: deque[Entry] = deque(maxlen=ENTRIES)
        self.entries_total = 0

    def take(self, event: Event | EngineDeath) -> None:
        """One more event, or the end of the engine."""
        if isinstance(event, EngineDeath):
            self.state = died(self.state, event)
        else:
            self._note(event)
            self.state = reduce(self.state, event)
        entry = entry_for(event, self.state)
        if entry is not None:
            self.entries.append(entry)
            self.entries_total += 1

    def take_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.take(event)

    def _note(self, event: Event) -> None:
        if isinstance(event, told.IterationDone):
            (self.baseline if event.run == "baseline" else self.trial).take(event.record)
        elif isinstance(event, told.TrialStarted):
            self.trial = RunHistory()
        elif isinstance(event, told.StageStarted) and event.stage == "baseline":
            self.baseline = RunHistory()

    @property
    def update_names(self) -> tuple[str, ...]:
        project = self.state.project
        return tuple(update.name for update in project.updates) if project is not None else ()

    def update(self, name: str, run: RunHistory) -> UpdateHistory:
        """The history of update `name` in `run`; an empty one before its first iteration."""
        return run.updates.get(name) or UpdateHistory()
