"""`amptui check`: its account as it goes, its JSON however it ends."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from amptui.commands.options import FAILED, INTERRUPTED, repeated, run_settings, say
from amptui.project import ProjectError
from amptui.protocol.events import Event
from amptui.report.account import Account
from amptui.report.page import Paper
from amptui.report.result import check_result, exit_code
from amptui.report.result_file import writable, write_result
from amptui.session.checking import check as run_check
from amptui.session.death import EngineDeath
from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from amptui.session.paths import create_session, name_of
from amptui.session.state import SessionState
from amptui.spec.error import SpecError
from amptui.spec.policies import parse_policies
from amptui.spec.run_settings import RunSettings
from amptui.text import safe_text

_ENDING = b"\namptui: ending the engine, which finishes what it does; once more ends it at once\n"


def check(given: argparse.Namespace) -> int:
    try:
        with writable(given.json):
            return _checked(given)
    except SessionError as error:
        return _refused(error, given.json)


def _checked(given: argparse.Namespace) -> int:
    try:
        with _interrupted_by(signal.SIGTERM, signal.SIGHUP):
            settings, policies = run_settings(given), _policies(given)
            folder = create_session(settings.title, Path(settings.session) if settings.session else None)
            return _judged(settings, folder, given, policies)
    except (SpecError, ProjectError, SessionError) as error:
        return _refused(error, given.json)
    except KeyboardInterrupt:  # before the engine was started
        _write_unjudged(given.json, {"code": "interrupted", "message": "interrupted", "where": None, "hint": ""})
        return INTERRUPTED


def _judged(
    settings: RunSettings,
    folder: SessionFolder,
    given: argparse.Namespace,
    policies: Sequence[Mapping[str, object]],
) -> int:
    """Runs the check, prints its account as it goes, and writes the JSON however it ends."""
    account = Account(
        Paper(stderr=given.json == "-"),
        spec=given.spec,
        session=name_of(folder),
        options=repeated(given),
        ascii=given.ascii,
    )
    latest = SessionState()

    def on_event(event: Event | EngineDeath, state: SessionState) -> None:
        nonlocal latest
        latest = state
        if isinstance(event, EngineDeath):
            account.on_death(event, state)
        else:
            account.on_event(event, state)

    cut_short: tuple[str, str] | None = None
    unprinted: OSError | None = None
    try:
        with _interrupted_by(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, saying=_ENDING):
            run_check(settings, folder, on_event=on_event, policies=policies, measure=given.measure)
    except KeyboardInterrupt:
        cut_short = ("interrupted", "interrupted before a verdict")
    except OSError as error:  # a full disk, a pager that was quit: nobody can follow, so nothing more is run
        unprinted = error
        cut_short = ("output", f"the account cannot be printed: {error.strerror or error}")
    code = exit_code(latest) if cut_short is None else FAILED if unprinted is not None else INTERRUPTED
    try:
        write_result(given.json, check_result(latest, session=str(folder.path), cut_short=cut_short))
    except OSError as error:
        why = safe_text(error.strerror or error)
        print(f"amptui: --json {safe_text(given.json, 4096)} cannot be written: {why}", file=sys.stderr)
        code = FAILED
    if unprinted is not None:
        raise unprinted
    account.finish(latest, code, json=given.json)
    return code


@contextmanager
def _interrupted_by(*numbers: signal.Signals, saying: bytes = b"") -> Iterator[None]:
    """Inside, these signals end what runs as Ctrl-C does; one that the caller had ignored (nohup) stays ignored.

    `saying` is told at the first one: code that does not return is given ten seconds, in which nothing else is seen.
    """
    told = not saying

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal told
        if not told:
            told = True
            with suppress(OSError):
                os.write(2, saying)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _policies(given: argparse.Namespace) -> Sequence[Mapping[str, object]]:
    if given.policies is None:
        return ()
    if given.dtype is not None:
        raise SpecError("form", "--dtype and --policies exclude each other", "name every dtype in --policies")
    return parse_policies(given.policies)


def _refused(error: Exception, json: str | None) -> int:
    """One message for what kept amptui from starting; the JSON says the same."""
    other = "session" if isinstance(error, SessionError) else "project"
    said = {
        "code": error.code if isinstance(error, SpecError) else other,
        "message": error.message if isinstance(error, SpecError) else str(error),
        "where": error.where if isinstance(error, SpecError) else None,
        "hint": error.hint if isinstance(error, SpecError) else "",
    }
    _write_unjudged(json, said)
    return say(error)


def _write_unjudged(json: str | None, error: Mapping[str, object]) -> None:
    """The documented object where no check has begun, as far as it can be written."""
    with suppress(OSError, SessionError):
        write_result(json, {**check_result(SessionState(), session=None), "error": error})
