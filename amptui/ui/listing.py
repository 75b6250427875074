"""`amptui sessions` and `amptui paths`: what is there, and where, as plain lines."""

from __future__ import annotations

import calendar
import time

from amptui.findings.words import counted
from amptui.protocol.channel import ChannelError, runtime_folder
from amptui.protocol.codec import ProtocolError, decode
from amptui.protocol.events import Event, ProjectOpened
from amptui.session.engine_file import read_engine_file
from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from amptui.session.paths import HOME_VARIABLE, list_sessions, sessions_home
from amptui.session.side_by_side import chosen
from amptui.session.state import SessionState, reduce
from amptui.session.store import Store
from amptui.text import safe_text
from amptui.ui.screen_settings import config_path

_NOTHING = "no project was opened"
#: What comes at every iteration says nothing about how a session stands.
_TELEMETRY = frozenset({"IterationDone", "PhaseDone", "LayersMeasured", "Progressed", "OutputCaptured"})


def session_lines(*, everything: bool = False) -> list[str]:
    """One line a session, the oldest first: id, when it began, project, policy, how it stands.

    Those that no project was opened in are counted alone, unless `everything` is asked for.
    """
    home = sessions_home()
    known = list_sessions(home)
    if not known:
        return [f"There is no session in {safe_text(home, 4096)} yet. Begin one: amptui run SPEC"]
    rows = [(safe_text(session), _began(session), *_row(SessionFolder(home / session))) for session in known]
    shown = [row for row in rows if everything or row[-1] != _NOTHING]
    widths = [max((len(row[column]) for row in shown), default=0) for column in range(4)]
    lines = ["  ".join((*(row[c].ljust(widths[c]) for c in range(4)), row[4])).rstrip() for row in shown]
    left = len(rows) - len(shown)
    if left:
        lines.append(f"{'and ' if lines else ''}{counted(left, 'session')} that no project was opened in: --all")
    return lines


def _began(session: str) -> str:
    """The moment in a session's id, which is UTC, by the clock of this place."""
    try:
        moment = calendar.timegm(time.strptime(session[:15], "%Y%m%d-%H%M%S"))
    except ValueError:  # somebody named a folder so
        return "-"
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def _row(folder: SessionFolder) -> tuple[str, str, str]:
    """Project, dtype, and the verdict or what else is known."""
    engine = read_engine_file(folder)
    alive = engine is not None and engine.is_alive
    try:
        project, dtype, ended = _read(folder)
    except SessionError as error:
        return "-", "-", f"cannot be read: {safe_text(error, 120)}"
    waits = f"engine alive, amptui attach {safe_text(folder.session_id)}" if alive else ""
    return project, dtype, " · ".join(part for part in (ended, waits) if part)


def _read(folder: SessionFolder) -> tuple[str, str, str]:
    """As the trial stands that speaks for the session, here as in its report."""
    state, opened = SessionState(), None
    with Store.read(folder) as store:
        for stored in store.events():
            if stored.kind in _TELEMETRY:
                continue
            try:
                event = decode(stored.body)
            except ProtocolError:
                continue
            opened = event if isinstance(event, ProjectOpened) else opened
            state = reduce(state, event) if isinstance(event, Event) else state
    trial = chosen(state)
    project = safe_text(opened.name, 40) if opened is not None else "-"
    if trial is not None and trial.verdict is not None:
        return project, trial.started.policy.dtype, trial.verdict.verdict
    begun = opened is not None or bool(state.checkpoints)
    return project, opened.policy.dtype if opened is not None else "-", "no verdict" if begun else _NOTHING


def path_lines() -> list[str]:
    """Every place that amptui reads or writes, and what chooses it."""
    try:
        sockets = safe_text(runtime_folder(), 4096)
    except (ChannelError, OSError) as error:
        sockets = f"not usable: {safe_text(error)}"
    config = config_path()
    there = "" if config.is_file() else "   (not written yet; everything has a default)"
    return [
        f"sessions       {safe_text(sessions_home(), 4096)}   ({HOME_VARIABLE} chooses another folder)",
        "               each has session.sqlite, checkpoints/, retained/, output.log",
        f"configuration  {safe_text(config, 4096)}{there}",
        f"sockets        {sockets}",
    ]
