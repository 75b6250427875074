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
    file, _, line = where.rpartition(":")
    if not file or not line.isdecimal():
        file, line = where, ""
    words = shlex.split(environ.get("VISUAL") or environ.get("EDITOR") or "vi") or ["vi"]
    at = [f"+{line}"] if line and Path(words[0]).name in _TAKE_LINE else []
    return [*words, *at, file]


def edit_source(desk: Desk) -> None:
    """Opens the line; afterwards says how the change comes into effect."""
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
    try:
        with app.suspend():
            subprocess.run(command, check=False)  # noqa: S603 - the user's own editor
    except OSError as error:
        reason = safe_text(error.strerror or error)
        app.notify(f"{safe_text(command[0])} cannot be run ({reason}): set EDITOR", severity="error", markup=False)
        return
    app.notify(after_edit(can_reload=desk.situation.can_reload), markup=False)


def after_edit(*, can_reload: bool) -> str:
    """How a change comes into effect."""
    loaded = "The engine still has the code that it loaded."
    if can_reload:
        return f"{loaded} R loads it anew and replays the failed iteration first."
    return f"{loaded} A new amptui run judges the change."
