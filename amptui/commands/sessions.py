"""What is done with recorded sessions: listed, restored, replayed, reported."""

from __future__ import annotations

import argparse

from amptui.commands.options import FAILED, say
from amptui.report.command import report as write_report
from amptui.report.restored import say_exported, say_verified
from amptui.report.told_replay import list_retained, say_replayed
from amptui.session.errors import CheckpointDamaged, SessionError
from amptui.session.exporting import export_case
from amptui.session.named_file import file_to_write, named_path
from amptui.session.paths import find_session, name_of
from amptui.session.recalling import named_case, opened_with, replay_case, retained_cases
from amptui.session.restore import export, verify
from amptui.text import safe_text


def restore(given: argparse.Namespace) -> int:
    try:
        folder = find_session(given.session)
        if given.verify:
            report = verify(folder)
            print(say_verified(report))
            if not report.checkpoints and not report.store_problem:
                return FAILED  # there is nothing to verify
            return 0 if report.ok else 1
        if given.output is None:
            return say("write -o FILE to get the checkpoint, or --verify to check it")
        print(say_exported(export(folder, file_to_write(given.output, "-o"), overwrite=given.force)))
    except CheckpointDamaged as error:
        say(error)
        return 1
    except SessionError as error:
        return say(error)
    return 0


def replay(given: argparse.Namespace) -> int:
    try:
        folder = find_session(given.session)
        if given.case is None:
            print(list_retained(name_of(folder), retained_cases(folder)))
            return 0
        if given.export is not None:
            kept = named_case(folder, given.case)
            script = export_case(folder, kept, opened_with(folder), named_path(given.export, "--export"))
            print(f"{safe_text(script, 4096)} shows it without amptui")
            return 0
        state = replay_case(folder, given.case, on_event=lambda _event, _state: None)
    except SessionError as error:
        return say(error)
    if not state.replayed:
        said = state.refusal.message if state.refusal else state.death.words if state.death else "no answer"
        return say(f"the case could not be replayed: {said}")
    print(say_replayed(state.replayed[-1]))
    return 0 if state.replayed[-1].outcome == "fixed" else 1


def report(given: argparse.Namespace) -> int:
    try:
        said = write_report(given.session, format=given.format, output=given.output)
    except SessionError as error:
        return say(error)
    if said:
        print(said)
    return 0
