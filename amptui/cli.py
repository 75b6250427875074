"""The commands. Each imports what it needs when it runs, so that `amptui --version` answers at once."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import amptui
from amptui.text import safe_text

if TYPE_CHECKING:
    from amptui.session.folder import SessionFolder
    from amptui.spec.run_settings import RunSettings

FAILED = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; no traceback reaches the user."""
    given = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = given.command
    try:
        return command(given)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output is gone
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amptui",
        description="From a working FP32 PyTorch project to a decision about FP16/BF16 autocast that you can trust.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"amptui {amptui.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_check(commands)
    _add_restore(commands)
    _add_new(commands)
    return parser


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = commands.add_parser(
        "check",
        help="judge a project: FP32 baseline, locked criteria, guarded trial, verdict",
        description="Takes a project through true-FP32 baseline, locked criteria and guarded trial to a verdict. "
        "Exit codes: 0 accept, 1 reject, 3 inconclusive, 2 anything that kept it from judging, 130 interrupted.",
        allow_abbrev=False,
    )
    _add_run_options(check)
    check.add_argument("--json", metavar="FILE", help="write the result here, on every exit")
    check.add_argument("--ascii", action="store_true", help="plain ASCII marks")
    check.set_defaults(command=_check)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """What `run` and `check` share; an option overrides amptui.yaml, which overrides the project."""
    parser.add_argument("spec", metavar="SPEC", help="package.module:attr, path/to/file.py:attr, or an amptui.yaml")
    parser.add_argument("--dtype", metavar="DTYPE", help="float16 (fp16) or bfloat16 (bf16)")
    parser.add_argument("--device", metavar="DEVICE", help="where to run, such as cuda:0; nothing is moved without it")
    parser.add_argument("--iterations", type=int, metavar="N", help="windows of the training stretch")
    parser.add_argument("--session", metavar="DIR", help="a new folder for the session's files")
    parser.add_argument("--python", metavar="PATH", help="the project's own interpreter")


def _add_restore(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    restore = commands.add_parser(
        "restore",
        help="give back a session's FP32 checkpoint, verified bit for bit",
        description="Verifies the SHA-256 of every tensor of a session's FP32 checkpoint and copies it to a file that "
        "torch.load(FILE, weights_only=True) reads. Exit codes: 0 done, 1 damaged, 2 nothing to restore.",
        allow_abbrev=False,
    )
    restore.add_argument("session", metavar="SESSION", help="a session's id, the beginning of one, its folder, or last")
    restore.add_argument("-o", "--output", metavar="FILE", help="where to write the checkpoint")
    restore.add_argument("--verify", action="store_true", help="only check every byte of every checkpoint")
    restore.add_argument("--force", action="store_true", help="overwrite FILE")
    restore.set_defaults(command=_restore)


def _add_new(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    new = commands.add_parser("new", help="write a commented project file to start from", allow_abbrev=False)
    new.add_argument("file", metavar="FILE", help="the Python file to write; it must not exist")
    new.set_defaults(command=_new)


def _check(given: argparse.Namespace) -> int:
    from amptui.project import ProjectError  # noqa: PLC0415
    from amptui.session.errors import SessionError  # noqa: PLC0415
    from amptui.session.paths import create_session  # noqa: PLC0415
    from amptui.spec.error import SpecError  # noqa: PLC0415

    try:
        _require_writable(given.json)
        settings = _settings(given)
        folder = create_session(_session_name(settings), Path(settings.session) if settings.session else None)
        return _judged(settings, folder, given)
    except (SpecError, ProjectError, SessionError) as error:
        return _refused(error, given.json)


def _judged(settings: RunSettings, folder: SessionFolder, given: argparse.Namespace) -> int:
    """Runs the check, prints its account as it goes, and writes the JSON however it ends."""
    from rich.console import Console  # noqa: PLC0415

    from amptui.report.account import Account  # noqa: PLC0415
    from amptui.report.result import check_result, exit_code  # noqa: PLC0415
    from amptui.session.checking import check  # noqa: PLC0415
    from amptui.session.death import EngineDeath  # noqa: PLC0415
    from amptui.session.state import SessionState  # noqa: PLC0415

    account = Account(Console(stderr=given.json == "-"), spec=given.spec, session=folder.session_id, ascii=given.ascii)
    latest = SessionState()

    def on_event(event: object, state: SessionState) -> None:
        nonlocal latest
        latest = state
        if isinstance(event, EngineDeath):
            account.on_death(event, state)
        else:
            account.on_event(event, state)  # type: ignore[arg-type]

    interrupted = False
    try:
        check(settings, folder, on_event=on_event)
    except KeyboardInterrupt:
        interrupted = True
    code = INTERRUPTED if interrupted else exit_code(latest)
    _write_json(given.json, check_result(latest, session=str(folder.path), interrupted=interrupted))
    account.finish(latest, code, json=given.json)
    return code


def _settings(given: argparse.Namespace) -> RunSettings:
    from amptui.spec.run_settings import RunSettings  # noqa: PLC0415
    from amptui.spec.settings import settings_for  # noqa: PLC0415

    options = RunSettings(
        python=_absolute(given.python),
        device=given.device,
        iterations=given.iterations,
        session=_absolute(given.session),
        policy={"dtype": given.dtype} if given.dtype else {},
    )
    return settings_for(given.spec, options, folder=Path.cwd())


def _session_name(settings: RunSettings) -> str:
    from amptui.session.checking import session_name  # noqa: PLC0415

    return session_name(settings)


def _absolute(path: str | None) -> str | None:
    # not resolved: a virtual environment's python is a link, and following it leaves the environment
    return None if path is None else str(Path(path).expanduser().absolute())


def _require_writable(path: str | None) -> None:
    """Says before the run, and not after it, that the result could not be written."""
    from amptui.session.errors import SessionError  # noqa: PLC0415

    if path is not None and path != "-" and not Path(path).expanduser().absolute().parent.is_dir():
        raise SessionError(f"--json {safe_text(path)}: there is no such folder; make it first, or name another file")


def _refused(error: Exception, json: str | None) -> int:
    """One message for what kept amptui from starting; the JSON says the same."""
    from amptui.spec.error import SpecError  # noqa: PLC0415

    spec = isinstance(error, SpecError)
    said = {
        "code": error.code if isinstance(error, SpecError) else "project" if not spec else "spec",
        "message": error.message if isinstance(error, SpecError) else str(error),
        "where": error.where if isinstance(error, SpecError) else None,
        "hint": error.hint if isinstance(error, SpecError) else "",
    }
    print(f"amptui: {safe_text(str(error), 4000, lines=True)}", file=sys.stderr)
    empty = {"verdict": None, "interventions": 0, "rows": [], "updates": [], "scaler": None, "fp32_regions": []}
    with suppress(OSError):
        _write_json(json, {**empty, "findings": [], "error": said, "session": None, "amptui": amptui.__version__})
    return FAILED


def _write_json(path: str | None, result: dict[str, object]) -> None:
    if path is None:
        return
    from amptui.protocol.codec import to_json  # noqa: PLC0415

    text = to_json(result) + "\n"
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).expanduser().write_text(text, encoding="utf-8")


def _restore(given: argparse.Namespace) -> int:
    from amptui.report.restored import say_exported, say_verified  # noqa: PLC0415
    from amptui.session.errors import CheckpointDamaged, SessionError  # noqa: PLC0415
    from amptui.session.paths import find_session  # noqa: PLC0415
    from amptui.session.restore import export, verify  # noqa: PLC0415

    try:
        folder = find_session(given.session)
        if given.verify:
            report = verify(folder)
            print(say_verified(report))
            return 0 if report.ok else 1
        if given.output is None:
            print("amptui restore: write -o FILE to get the checkpoint, or --verify to check it", file=sys.stderr)
            return FAILED
        print(say_exported(export(folder, Path(given.output), overwrite=given.force)))
    except CheckpointDamaged as error:
        print(f"amptui: {safe_text(error, 4000, lines=True)}", file=sys.stderr)
        return 1
    except SessionError as error:
        print(f"amptui: {safe_text(error, 4000, lines=True)}", file=sys.stderr)
        return FAILED
    return 0


def _new(given: argparse.Namespace) -> int:
    from amptui.spec.error import SpecError  # noqa: PLC0415
    from amptui.spec.starter import write_starter  # noqa: PLC0415

    try:
        write_starter(Path(given.file))
    except SpecError as error:
        print(f"amptui: {safe_text(str(error), 4000, lines=True)}", file=sys.stderr)
        return FAILED
    name = safe_text(given.file, 4000)
    print(f"{name} is a small project that runs as it is. Now: amptui check {name}:project")
    return 0
