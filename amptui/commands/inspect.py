"""`amptui inspect`: a screen on a terminal, else the printed page; the JSON where one is wanted."""

from __future__ import annotations

import argparse
import shutil
import sys

from amptui.commands.options import say
from amptui.inspection.command import run
from amptui.report.inspect_text import inspect_text
from amptui.report.result_file import writable
from amptui.session.errors import SessionError


def inspect(given: argparse.Namespace) -> int:
    paths = [given.path, *([given.second] if given.second is not None else [])]
    if sys.stdout is None and given.json in (None, "-"):
        return say("standard output is closed; name a file with --json")
    if not given.plain and given.json is None and sys.stdout.isatty():
        from amptui.commands.screens import on_screen  # noqa: PLC0415 - printing loads no screen
        from amptui.ui.inspect.command import has_screen, open_screen  # noqa: PLC0415

        if has_screen(paths):
            return on_screen(given, lambda screen: open_screen(paths, screen, values=given.values))
    page = sys.stderr if given.json == "-" else sys.stdout  # standard output then holds nothing but the JSON
    encoding = (getattr(page, "encoding", None) or "ascii").lower()  # a closed output is None
    ascii_only = given.ascii or not encoding.startswith("utf")
    width = min(120, shutil.get_terminal_size((80, 24)).columns)
    try:
        with writable(given.json):  # refused before minutes of reading, not after them
            return run(
                paths,
                given.json,
                given.values,
                lambda answer: print(inspect_text(answer, width=width, ascii_only=ascii_only), file=page),
            )
    except SessionError as error:
        return say(error)
    except OSError as error:
        return say(f"{given.json} cannot be written: {error.strerror or error}")
