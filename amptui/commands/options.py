"""What several commands read from their arguments, and how they say what kept them from their work."""

from __future__ import annotations

import argparse
import sys

from amptui.session.named_file import named_path
from amptui.spec.run_settings import RunSettings
from amptui.spec.settings import settings_for
from amptui.text import safe_text

FAILED = 2
INTERRUPTED = 130


def run_settings(given: argparse.Namespace) -> RunSettings:
    options = RunSettings(
        python=absolute(given.python, "--python"),
        device=given.device,
        iterations=given.iterations,
        session=absolute(given.session, "--session"),
        policy={"dtype": given.dtype} if given.dtype else {},
    )
    return settings_for(given.spec, options, folder=named_path("."))


def repeated(given: argparse.Namespace) -> tuple[str, ...]:
    """The run options as they were given, for a command that does the same once more."""
    options = (
        ("--dtype", given.dtype),
        ("--device", given.device),
        ("--iterations", given.iterations),
        ("--python", given.python),
    )
    return tuple(str(word) for option in options if option[1] is not None for word in option)


def absolute(path: str | None, option: str) -> str | None:
    """`path` from the working directory, `~` expanded. Raises SessionError, named after `option`, where it is none."""
    # not resolved: a virtual environment's python is a link, and following it leaves the environment
    return None if path is None else str(named_path(path, option))


def say(error: object) -> int:
    """One message on standard error; the exit code of a command that could not do its work."""
    print(f"amptui: {safe_text(str(error), 4000, lines=True)}", file=sys.stderr)
    return FAILED
