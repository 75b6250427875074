"""Around the work: a starter file, the sessions there are, where things lie, what this machine can do."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from pathlib import Path

from amptui.commands.options import absolute, say
from amptui.spec.error import SpecError
from amptui.spec.starter import write_starter
from amptui.text import safe_text
from amptui.ui.doctor import examination
from amptui.ui.listing import path_lines, session_lines

#: Where the text of a line of `doctor` begins.
_INDENT = 15


def new(given: argparse.Namespace) -> int:
    try:
        write_starter(Path(given.file))
    except SpecError as error:
        return say(error)
    name = safe_text(given.file, 4000)
    print(f"{name} is a small project that runs as it is. Now: amptui check {name}:project")
    return 0


def sessions(given: argparse.Namespace) -> int:
    print("\n".join(session_lines(everything=given.all)))
    return 0


def paths(_given: argparse.Namespace) -> int:
    print("\n".join(path_lines()))
    return 0


def doctor(given: argparse.Namespace) -> int:
    lines, healthy = examination(absolute(given.python, "--python") or sys.executable)
    width = shutil.get_terminal_size((80, 24)).columns
    print("\n".join(part for line in lines for part in _wrapped(line, width)))
    return 0 if healthy else 1


def _wrapped(line: str, width: int) -> list[str]:
    """A line of the examination at words, what follows below its text; a path is never cut."""
    return textwrap.wrap(
        line,
        max(width, _INDENT + 20),
        subsequent_indent=" " * _INDENT,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
