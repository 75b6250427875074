"""Where sessions live and how one is named and found again."""

from __future__ import annotations

import os
import re
import secrets
import time
from pathlib import Path

from amptui.session.errors import SessionError, SessionNotFound
from amptui.session.folder import DATABASE_NAME, SessionFolder
from amptui.session.named_file import named_path
from amptui.session.newest import living, newest, remember
from amptui.text import safe_text

HOME_VARIABLE = "AMPTUI_HOME"

_SESSION_ID = re.compile(r"\d{8}-\d{6}-[a-z0-9_-]+-[0-9a-f]{4}")
_LONGEST_SLUG = 32


def sessions_home() -> Path:
    """The folder of sessions: AMPTUI_HOME, else `amptui` in the platform's state folder. It need not exist.

    Raises SessionError where AMPTUI_HOME names no folder.
    """
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen:
        return named_path(chosen, HOME_VARIABLE)
    import platformdirs  # noqa: PLC0415 - the client's own library; the engine never asks for this folder

    return platformdirs.user_state_path("amptui", appauthor=False)


def new_session_id(name: str, now: float | None = None) -> str:
    """An id such as ``20261129-160455-digits-3fa9``: UTC time, the project's name as a slug, four random hex digits."""
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    slug = re.sub(r"[^a-z0-9_]+", "-", name.lower())[-_LONGEST_SLUG:].strip("-") or "project"  # the end tells apart
    return f"{moment}-{slug}-{secrets.token_hex(2)}"


def create_session(name: str, path: Path | None = None) -> SessionFolder:
    """A new session folder, at `path` or under a new id in the home, remembered as the last one.

    Raises SessionError if it cannot be made.
    """
    home = sessions_home()
    folder = SessionFolder.create(path if path is not None else home / new_session_id(name))
    remember(home, folder)
    return folder


def name_of(folder: SessionFolder) -> str:
    """What `find_session` finds it again by, from any folder: its id if it lies in the home, else its path.

    Never raises.
    """
    try:
        in_home = folder.path.parent == sessions_home().resolve()
    except (OSError, SessionError):  # a home that is none, a working directory that is gone
        in_home = False
    return folder.session_id if in_home else str(folder.path)


def list_sessions(home: Path | None = None) -> tuple[str, ...]:
    """Ids of the sessions in the home, the oldest first by name."""
    home = home or sessions_home()
    try:
        return tuple(sorted(entry.name for entry in home.iterdir() if _is_session(entry)))
    except OSError:
        return ()


def living_sessions() -> tuple[SessionFolder, ...]:
    """The sessions whose engine lives, the newest first. Raises SessionError as `sessions_home` does."""
    home = sessions_home()
    return tuple(map(SessionFolder, living(home, list_sessions(home))))


def find_session(text: str, home: Path | None = None, *, waiting: bool = False) -> SessionFolder:
    """The session that `text` names: an id, the unique beginning of one, a path, or ``last``.

    ``last`` is the newest session that a project was opened in; with `waiting` the newest whose engine lives, if any.
    Raises SessionNotFound with the near candidates, SessionError if the folder is no session.
    """
    home = home or sessions_home()
    known = list_sessions(home)
    if text == "last":
        found = newest(home, known, waiting=waiting)
        if found is None:
            raise SessionNotFound(f"there is no session in {safe_text(home, 4096)} yet. Begin one: amptui run SPEC")
        return SessionFolder.open(found)
    if "/" in text or text in (".", ".."):
        return SessionFolder.open(Path(text))
    if text in known:
        return SessionFolder.open(home / text)
    begins = [session for session in known if text and session.startswith(text)]
    if len(begins) == 1:
        return SessionFolder.open(home / begins[0])
    if begins:
        raise SessionNotFound(
            f"'{safe_text(text)}' begins {len(begins)} sessions: {_some(begins)}. Write more of the id."
        )
    if (Path(text or "?") / DATABASE_NAME).is_file():
        return SessionFolder.open(Path(text))
    named = [session for session in known if text and text in session]
    hint = (
        f"Did you mean {_some(named)}?" if named else f"Newest there: {_some(known[-3:])}." if known else "It is empty."
    )
    raise SessionNotFound(f"no session '{safe_text(text)}' in {safe_text(home, 4096)}. {hint}")


def _is_session(entry: Path) -> bool:
    return _SESSION_ID.fullmatch(entry.name) is not None and entry.is_dir()


def _some(sessions: list[str] | tuple[str, ...]) -> str:
    shown = ", ".join(safe_text(session, 80) for session in sessions[:3])
    return shown + (f" and {len(sessions) - 3} more" if len(sessions) > 3 else "")
