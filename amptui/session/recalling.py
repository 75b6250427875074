"""Retained cases from the client's side: listed, replayed in an engine of the session, exported."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import cast

from amptui.protocol.codec import decode
from amptui.protocol.commands import OpenProject, ReplayCase
from amptui.protocol.events import CaseRetained
from amptui.session.checking import Told, carried_out
from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from amptui.session.history import history
from amptui.session.process import EngineProcess
from amptui.session.state import SessionState, reduce
from amptui.session.store import OPENED_WITH, Store


def recorded_state(folder: SessionFolder) -> SessionState:
    """The session as its recorded events leave it. Raises SessionError."""
    state = SessionState()
    with Store.read(folder) as store:
        for envelope in history(store):
            state = reduce(state, envelope.event)
    return state


def retained_cases(folder: SessionFolder) -> tuple[CaseRetained, ...]:
    """Every retained case of the session, the oldest first."""
    with Store.read(folder) as store:
        return tuple(cast(CaseRetained, decode(record.body)) for record in store.retained())


def recorded_opening(folder: SessionFolder) -> OpenProject | None:
    """How the session's project was opened last; None where it never was. Raises SessionError."""
    with Store.read(folder) as store:
        said = store.meta().get(OPENED_WITH)
    return None if said is None else cast(OpenProject, decode(said))


def opened_with(folder: SessionFolder) -> OpenProject:
    """How the session's project was opened. Raises SessionError where it never was."""
    command = recorded_opening(folder)
    if command is None:
        raise SessionError(f"session {folder.session_id} never opened its project: there is nothing to open again")
    return command


def named_case(folder: SessionFolder, case: str) -> CaseRetained:
    """The retained case `case`. Raises SessionError with those that there are."""
    known = retained_cases(folder)
    kept = next((one for one in known if one.id == case), None)
    if kept is None:
        listed = ", ".join(one.id for one in known) if known else "none was retained"
        raise SessionError(f"session {folder.session_id} has no retained case {case!r}; it has: {listed}")
    return kept


def replay_case(folder: SessionFolder, case: str, *, on_event: Told) -> SessionState:
    """Opens the session's project again, in the interpreter that it ran in, and replays `case`.

    Raises SessionError where there is no such case, EngineUnavailable if no engine could be started.
    """
    named_case(folder, case)
    command = opened_with(folder)
    before = recorded_state(folder)
    python = before.environment.executable if before.environment is not None else sys.executable
    state = SessionState()
    with EngineProcess.start(python, folder, on_disconnect="stop") as engine:
        for wanted in (replace(command, aside=True), ReplayCase(id=case)):
            state, completed = carried_out(engine, wanted, state, on_event)
            if not completed:
                break
    return state
