"""`amptui cases`: evaluation cases proposed from the user's own batches."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from amptui.commands.options import FAILED, run_settings, say
from amptui.project import ProjectError
from amptui.report.told_cases import say_found, say_not_found
from amptui.session.errors import SessionError
from amptui.session.finding_cases import find_cases
from amptui.session.named_file import file_to_write, held_pipe, of_this_process
from amptui.session.paths import create_session
from amptui.spec.error import SpecError


def cases(given: argparse.Namespace) -> int:
    try:
        output = file_to_write(given.output, "-o") if given.output is not None else None
        with held_pipe(output) if output is not None else nullcontext():
            settings = run_settings(given)
            folder = create_session(settings.title, Path(settings.session) if settings.session else None)
            path = str(of_this_process(output)) if output is not None else None
            state = find_cases(settings, folder, path=path, boundary=given.boundary)
    except OSError as error:
        return say(f"-o {given.output} cannot be written: {error.strerror or error}")
    except (SpecError, ProjectError, SessionError) as error:
        return say(error)
    if state.found_cases is None:
        print(say_not_found(state), file=sys.stderr)
        return FAILED
    found = state.found_cases
    print(say_found(replace(found, path=str(output)) if output is not None else found))
    return 0
