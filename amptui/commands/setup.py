"""Around the work: a starter file, the sessions there are, where things lie, what this machine can do."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from amptui.commands.options import absolute, say
from amptui.spec.error import SpecError
from amptui.spec.starter import write_starter
from amptui.text import safe_text
from amptui.ui.doctor import examination
from amptui.ui.listing import path_lines, session_lines


def new(given: argparse.Namespace) -> int:
    try:
        write_starter(Path(given.file))
    except SpecError as error:
        return say(error)
    name = safe_text(given.file, 4000)
    print(f"{name} is a small project that runs as it is. Now: amptui check {name}:project")
    return 0


def sessions(_given: argparse.Namespace) -> int:
    print("\n".join(session_lines()))
    return 0


def paths(_given: argparse.Namespace) -> int:
    print("\n".join(path_lines()))
    return 0


def doctor(given: argparse.Namespace) -> int:
    lines, healthy = examination(absolute(given.python) or sys.executable)
    print("\n".join(lines))
    return 0 if healthy else 1
