"""`amptui cases` as a client: one engine that opens the project and looks through its batches."""

from __future__ import annotations

import sys

from amptui.protocol.commands import FindCases
from amptui.session.checking import carried_out, open_command
from amptui.session.folder import SessionFolder
from amptui.session.process import EngineProcess
from amptui.session.state import SessionState
from amptui.spec.run_settings import RunSettings


def find_cases(settings: RunSettings, folder: SessionFolder, *, path: str | None, boundary: int = 5) -> SessionState:
    """The session's last state: `found_cases`, or the refusal or death that says why there are none.

    `path` (absolute) is the file that the engine writes for `torch.load`.
    """
    state = SessionState()
    with EngineProcess.start(settings.python or sys.executable, folder, on_disconnect="stop") as engine:
        for command in (open_command(settings), FindCases(path=path, boundary=boundary)):
            state, completed = carried_out(engine, command, state, lambda _event, _state: None)
            if not completed:
                break
    return state
