"""Which session `last` means: the newest one that a project was opened in to be judged.

What was created last is written down, because the wall clock in the ids may have been set back, and because a session
may lie in a folder of the user's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from amptui.session.durable import PRIVATE_FOLDER, published
from amptui.session.engine_file import read_engine_file
from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder

_CREATED = ".last"
_KEPT = 50


def remember(home: Path, folder: SessionFolder) -> None:
    """Notes that `folder` was created. Best effort: a home that cannot be written must not stop a session elsewhere."""
    created = [os.fsencode(folder.path), *map(os.fsencode, _created(home))]
    try:
        home.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        with published(home / _CREATED, overwrite=True) as file:
            file.write(b"\0".join(created[:_KEPT]))
    except OSError:
        return


def newest(home: Path, known: Sequence[str], *, waiting: bool = False) -> Path | None:
    """The folder that `last` means; `known` are the ids in `home`, the oldest first. None where there is no session.

    Where nothing was ever opened it is the newest of all. With `waiting` a session whose engine lives comes first.
    """
    if waiting:
        for folder in living(home, known):
            return folder
    folders = _newest_first(home, known)
    return next((folder for folder in folders if _was_opened(folder)), folders[0] if folders else None)


def living(home: Path, known: Sequence[str]) -> Iterator[Path]:
    """The folders of sessions whose engine lives, the newest first; `known` as for `newest`."""
    for folder in _newest_first(home, known):
        engine = read_engine_file(SessionFolder(folder))
        if engine is not None and engine.is_alive:
            yield folder


def _newest_first(home: Path, known: Sequence[str]) -> list[Path]:
    return list(dict.fromkeys((*_there(_created(home)), *(home / session for session in reversed(known)))))


def _created(home: Path) -> list[Path]:
    """The sessions that were created, the last one first."""
    try:
        written = (home / _CREATED).read_bytes()
    except OSError:
        return []
    return [Path(os.fsdecode(path)) for path in written.split(b"\0") if path]


def _there(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        try:
            if folder.is_dir():
                yield folder
        except (OSError, ValueError):
            continue


def _was_opened(folder: Path) -> bool:
    """Whether a project was opened here, and not only for `amptui cases` to look through it."""
    from amptui.session.store import Store  # noqa: PLC0415 - a first screen is painted before a database is needed

    session = SessionFolder(folder)
    try:
        if not session.database.stat().st_size:
            return False
        with Store.read(session) as store:
            opened = any(store.bodies("ProjectOpened"))
            stages = {json.loads(body).get("stage") for body in store.bodies("StageStarted")}
    except OSError:
        return False
    except (SessionError, ValueError):
        return True  # whoever asks for it is told what is wrong with it
    return opened and ("baseline" in stages or "measure" not in stages)
