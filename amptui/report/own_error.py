"""What the user reads where amptui itself went wrong: one message, and a file for whoever mends it."""

from __future__ import annotations

import os
import tempfile
import traceback
from contextlib import suppress

from amptui.session.errors import SessionError
from amptui.text import safe_text


def say_own_error(error: BaseException) -> str:
    """One message about an error that nothing in amptui expected; its traceback goes to a new file of the system's."""
    if isinstance(error, SessionError):  # a message of its own, from where no command expected it
        return safe_text(error, 4000, lines=True)
    name = type(error).__name__
    if isinstance(error, OSError):
        what = f"{safe_text(error.filename, 4096)}: " if error.filename is not None else "reading or writing failed: "
        return f"{what}{safe_text(error.strerror or error)} ({name})"
    said = f"amptui met an error of its own: {name}: {safe_text(error)}"
    with suppress(OSError):
        descriptor, path = tempfile.mkstemp(prefix="amptui-error-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            traceback.print_exception(type(error), error, error.__traceback__, file=file)
        return f"{said}\nPlease report it with {safe_text(path, 4096)}; sessions and checkpoints stay as they are."
    return said
