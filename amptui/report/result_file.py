"""The file that a result is written to: found out before a run, not after it, to be one that can be written."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from amptui.protocol.codec import to_json
from amptui.session.errors import SessionError
from amptui.text import safe_text


def require_writable(path: str | None) -> None:
    """Raises SessionError if a result could not be written to `path` (``-``: standard output; None: nowhere).

    A regular file is opened without changing it; pipes and devices, which opening may disturb, are taken as they are.
    """
    if path is None:
        return
    shown = safe_text(path, 4096)
    if path == "-":
        if sys.stdout is None:
            raise SessionError("--json -: standard output is closed; name a file")
        return
    try:
        place = Path(path).expanduser().absolute()
        if place.is_dir():
            raise SessionError(f"--json {shown}: this is a folder; name a file in it")
        if not place.parent.is_dir():
            raise SessionError(f"--json {shown}: there is no such folder; make it first, or name another file")
        if not os.path.lexists(place):
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            place.unlink()
        elif stat.S_ISREG(place.stat().st_mode):
            os.close(os.open(place, os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        raise SessionError(f"--json {shown} cannot be written: {error.strerror or error}") from error
    except RuntimeError as error:  # ~nobody
        raise SessionError(f"--json {shown}: {safe_text(error)}") from error


def write_result(path: str | None, result: Mapping[str, object]) -> None:
    """Writes `result` as JSON to `path`, as `require_writable` takes it. Raises OSError."""
    if path is None:
        return
    text = to_json(result) + "\n"
    if path == "-":
        if sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()
        return
    place = Path(path).expanduser()
    try:
        place.write_text(text, encoding="utf-8")
    except OSError:
        with suppress(OSError):  # half an object helps nobody
            if place.is_file():
                os.truncate(place, 0)
        raise
