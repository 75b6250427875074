"""`amptui cases`: evaluation cases proposed from the user's own batches."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from amptui.commands.options import FAILED, absolute, run_settings, say
from amptui.project import ProjectError
from amptui.report.told_cases import say_found, say_not_found
from amptui.session.errors import SessionError
from amptui.session.finding_cases import find_cases
from amptui.session.paths import create_session
from amptui.spec.error import SpecError


def cases(given: argparse.Namespace) -> int:
    try:
        settings = run_settings(given)
        folder = create_session(settings.title, Path(settings.session) if settings.session else None)
        state = find_cases(settings, folder, path=absolute(given.output), boundary=given.boundary)
    except (SpecError, ProjectError, SessionError) as error:
        return say(error)
    if state.found_cases is None:
        print(say_not_found(state), file=sys.stderr)
        return FAILED
    print(say_found(state.found_cases))
    return 0
