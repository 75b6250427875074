"""`e`: the line in question in the user's own editor, on the terminal that the screen gives up meanwhile."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from amptui.session.state import SessionState
from amptui.text import safe_text

if TYPE_CHECKING:
    from amptui.ui.desk import Desk
    from amptui.ui.moves import Situation

#: Editors that take `+LINE FILE`; others get the file alone.
_TAKE_LINE = ("vi", "vim", "nvim", "view", "nano", "emacs", "emacsclient", "micro", "kak", "joe", "ne", "mg", "jed")


def source_line(state: SessionState, looked_at: str | None = None) -> str | None:
    """`file:line` of what is most in question: `looked_at`, a finding's, a failure's, the loss's, the project's."""
    if looked_at is not None:
        return looked_at
    for finding in state.findings:
        if finding.line:
            return finding.line
    for diagnosed in reversed(state.trial.diagnoses if state.trial is not None else ()):
        for finding in diagnosed.findings:
            if finding.line:
                return finding.line
    for failure in reversed(state.failures):
        if failure.where:
            return failure.where
    if state.refusal is not None and state.refusal.where:
        return state.refusal.where
    project = state.project
    if project is None:
        return None
    loss = next((update.loss_at for update in project.updates if update.loss_at), None)
    return loss or project.defined_at


def editor_command(where: str, environ: Mapping[str, str] = os.environ) -> list[str]:
    """The command that opens `where` (`file:line`); $VISUAL, else $EDITOR, else vi."""
    file, line = _place(where)
    words = shlex.split(environ.get("VISUAL") or environ.get("EDITOR") or "vi") or ["vi"]
    at = [f"+{line}"] if line and Path(words[0]).name in _TAKE_LINE else []
    return [*words, *at, file]


def _place(where: str) -> tuple[str, str]:
    """File and line of `file:line`; no line where it has none."""
    file, _, line = where.rpartition(":")
    return (file, line) if file and line.isdecimal() else (where, "")


def edit_source(desk: Desk) -> None:
    """Opens the line; afterwards says how a change comes into effect."""
    app = desk.app
    where = source_line(desk.state, desk.looking.line)
    if where is None:
        app.notify("There is no source line to open yet.", severity="warning", markup=False)
        return
    try:
        command = editor_command(where)
    except ValueError as error:  # a quote that is not closed
        app.notify(f"$VISUAL or $EDITOR cannot be read ({error}): set EDITOR", severity="error", markup=False)
        return
    before = _content(where)
    try:
        with app.suspend():
            subprocess.run(command, check=False)  # noqa: S603 - the user's own editor
    except OSError as error:
        reason = safe_text(error.strerror or error)
        app.notify(f"{safe_text(command[0])} cannot be run ({reason}): set EDITOR", severity="error", markup=False)
        return
    if _content(where) != before:
        app.notify(after_edit(desk.situation), markup=False)


def _content(where: str) -> bytes | None:
    """What stands in the file of `where`; None where it cannot be read."""
    file, _ = _place(where)
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError):  # a name that no file can have
        return None


def after_edit(now: Situation) -> str:
    """How a change comes into effect."""
    alive = now.mode == "live" and now.connected and now.state.engine == "ready"
    loaded = "The engine still has the code that it loaded. " if alive else ""
    if now.can_reload:
        first = " and replays the failed iteration first" if now.state.retained else ""
        return now.keys.say("{loaded}{reload} loads it anew{first}.", loaded=loaded, first=first)
    if now.mode == "live" and now.can_restart and now.state.busy:
        return now.keys.say("{loaded}Once nothing runs, {reload} loads it anew.", loaded=loaded)
    return f"{loaded}A new amptui run judges the change."
