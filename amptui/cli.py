"""The commands. Each imports what it needs when it runs, so that `amptui --version` answers at once."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import amptui
from amptui.text import safe_text

if TYPE_CHECKING:
    from amptui.session.folder import SessionFolder
    from amptui.spec.run_settings import RunSettings
    from amptui.ui.screen_settings import ScreenSettings

FAILED = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; no traceback reaches the user."""
    _open_standard_descriptors()
    given = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = given.command
    try:
        code = command(given)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output is gone
        _print_nothing_more()
        return FAILED
    except Exception as error:
        from amptui.report.own_error import say_own_error  # noqa: PLC0415

        _print_nothing_more()
        with suppress(OSError):
            print(f"amptui: {say_own_error(error)}", file=sys.stderr)
        return FAILED
    return code


def _open_standard_descriptors() -> None:
    """A descriptor that is closed would be given to the next file: what is printed must not land there."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number


def _print_nothing_more() -> None:
    """What is still in the buffer of an output that cannot be written is dropped, not tried again at the end."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amptui",
        description="From a working FP32 PyTorch project to a decision about FP16/BF16 autocast that you can trust.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"amptui {amptui.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_run(commands)
    _add_check(commands)
    _add_attach(commands)
    _add_open(commands)
    _add_sessions(commands)
    _add_inspect(commands)
    _add_report(commands)
    _add_restore(commands)
    _add_new(commands)
    _add_replay(commands)
    _add_cases(commands)
    _add_paths(commands)
    _add_doctor(commands)
    return parser


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser(
        "run",
        help="the guided trial on the screen, from project to verdict, with one key back",
        description="Leads through FP32 baseline, locked criteria and a guarded trial to a verdict, on the screen.",
        allow_abbrev=False,
    )
    _add_run_options(run)
    _add_screen_options(run)
    run.set_defaults(command=_run)


def _add_attach(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    attach = commands.add_parser("attach", help="take up a session whose engine waits", allow_abbrev=False)
    attach.add_argument(
        "session", metavar="SESSION", nargs="?", default="last", help="id, its beginning, folder, or last"
    )
    attach.add_argument("--take-over", action="store_true", help="put out a client that is attached now")
    _add_screen_options(attach)
    attach.set_defaults(command=_attach)


def _add_open(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    opened = commands.add_parser("open", help="look at a recorded session, without torch", allow_abbrev=False)
    opened.add_argument("session", metavar="SESSION", help="id, its beginning, folder, or last")
    _add_screen_options(opened)
    opened.set_defaults(command=_open)


def _add_screen_options(parser: argparse.ArgumentParser) -> None:
    """How the screen looks; the configuration file (`amptui paths`) gives what is not given here."""
    parser.add_argument("--theme", choices=("dark", "light", "plain"), help="colours; NO_COLOR always means plain")
    parser.add_argument("--ascii", action="store_true", default=None, help="plain ASCII marks and plots")
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    parser.add_argument("--paints", type=float, metavar="N", help="paints a second, at most (default 8, over SSH 4)")


def _add_sessions(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sessions = commands.add_parser("sessions", help="list the sessions", allow_abbrev=False)
    sessions.set_defaults(command=_sessions)


def _add_paths(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    paths = commands.add_parser("paths", help="where everything is kept", allow_abbrev=False)
    paths.set_defaults(command=_paths)


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = commands.add_parser(
        "doctor", help="what this terminal, torch and device can do, and what not", allow_abbrev=False
    )
    doctor.add_argument("--python", metavar="PATH", help="the project's own interpreter")
    doctor.set_defaults(command=_doctor)


def _add_check(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    check = commands.add_parser(
        "check",
        help="judge a project: FP32 baseline, locked criteria, guarded trial, verdict",
        description="Takes a project through true-FP32 baseline, locked criteria and guarded trial to a verdict. "
        "Exit codes: 0 accept, 1 reject, 3 inconclusive, 2 anything that kept it from judging, 130 interrupted.",
        allow_abbrev=False,
    )
    _add_run_options(check)
    check.add_argument(
        "--policies", metavar="LIST", help="try several under the same criteria, such as fp16,fp16@1024,bf16"
    )
    check.add_argument("--measure", action="store_true", help="time every accepted policy against FP32 afterwards")
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


def _add_inspect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    inspect = commands.add_parser(
        "inspect",
        help="a checkpoint's scaler state, and what is missing for an exact resume; without torch",
        description="Tells what a checkpoint holds without importing torch and without running anything in it; with "
        "two, what happened between them. On a terminal it opens as a screen. "
        "Exit codes: 0 read and no fault, 1 a fault, 2 nothing readable.",
        allow_abbrev=False,
    )
    inspect.add_argument("path", metavar="PATH", help="a file or a folder")
    inspect.add_argument("second", metavar="PATH2", nargs="?", help="a later checkpoint to compare with")
    inspect.add_argument("--json", metavar="FILE", help="write the result here, and print instead of opening a screen")
    inspect.add_argument("--values", action="store_true", help="read all tensor data, also of large files")
    inspect.add_argument("--plain", action="store_true", help="print instead of opening a screen")
    _add_screen_options(inspect)
    inspect.set_defaults(command=_inspect)


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    report = commands.add_parser(
        "report",
        help="write a recorded session down: verdict, findings, plots, code to paste",
        description="Writes what a session recorded as Markdown, as one HTML file without scripts, or as JSON. None of "
        "the project is run; torch is not needed. Exit codes: 0 written, 2 nothing to report.",
        allow_abbrev=False,
    )
    report.add_argument("session", metavar="SESSION", help="a session's id, the beginning of one, its folder, or last")
    report.add_argument(
        "--format", choices=("md", "html", "json"), help="without it FILE's ending decides; Markdown if that does not"
    )
    report.add_argument("-o", "--output", metavar="FILE", help="the file to write; without it standard output")
    report.set_defaults(command=_report)


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


def _run(given: argparse.Namespace) -> int:
    from amptui.ui.commands import run  # noqa: PLC0415

    return _on_screen(given, lambda screen: run(_settings(given), screen))


def _attach(given: argparse.Namespace) -> int:
    from amptui.ui.commands import attach  # noqa: PLC0415

    return _on_screen(given, lambda screen: attach(given.session, screen, take_over=given.take_over))


def _open(given: argparse.Namespace) -> int:
    from amptui.ui.commands import open_session  # noqa: PLC0415

    return _on_screen(given, lambda screen: open_session(given.session, screen))


def _on_screen(given: argparse.Namespace, shown: Callable[[ScreenSettings], int]) -> int:
    """`shown` with the screen's options; one message for what keeps it from starting."""
    from amptui.project import ProjectError  # noqa: PLC0415
    from amptui.session.errors import SessionError  # noqa: PLC0415
    from amptui.spec.error import SpecError  # noqa: PLC0415
    from amptui.ui.screen_settings import ScreenSettings  # noqa: PLC0415

    mouse = False if given.no_mouse else None
    try:
        return shown(ScreenSettings(theme=given.theme, ascii=given.ascii, mouse=mouse, paints=given.paints))
    except (SpecError, ProjectError, SessionError) as error:
        print(f"amptui: {safe_text(str(error), 4000, lines=True)}", file=sys.stderr)
        return FAILED


def _sessions(_given: argparse.Namespace) -> int:
    from amptui.ui.listing import session_lines  # noqa: PLC0415

    print("\n".join(session_lines()))
    return 0


def _paths(_given: argparse.Namespace) -> int:
    from amptui.ui.listing import path_lines  # noqa: PLC0415

    print("\n".join(path_lines()))
    return 0


def _doctor(given: argparse.Namespace) -> int:
    from amptui.ui.doctor import examination  # noqa: PLC0415

    lines, healthy = examination(_absolute(given.python) or sys.executable)
    print("\n".join(lines))
    return 0 if healthy else 1


def _add_replay(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    replay = commands.add_parser(
        "replay",
        help="run a retained failing iteration once more, traced; or list them",
        description="Replays a retained case on its own weights, batches and random state, and says where it fails and "
        "what mends it. Exit codes: 0 fixed (or listed), 1 it still fails, 2 it could not be replayed.",
        allow_abbrev=False,
    )
    replay.add_argument("case", metavar="CASE", nargs="?", help="a retained case; without it, they are listed")
    replay.add_argument("--session", metavar="SESSION", default="last", help="the session that retained it (last)")
    replay.add_argument("--export", metavar="DIR", help="write it to a new folder, with a script that needs no amptui")
    replay.set_defaults(command=_replay)


def _add_cases(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    cases = commands.add_parser(
        "cases",
        help="find inputs worth being a case: the smallest margins, the extremes",
        description="Runs FP32 over the project's batches and proposes the smallest margins as boundary cases, and the "
        "largest activations, the longest, the empty and the fully masked input as edge cases. Exit codes: 0 found, "
        "2 anything that kept it from looking.",
        allow_abbrev=False,
    )
    _add_run_options(cases)
    cases.add_argument("-o", "--output", metavar="FILE", help="write them here, for torch.load")
    cases.add_argument("--boundary", type=int, default=5, metavar="N", help="how many boundary cases at most (5)")
    cases.set_defaults(command=_cases)


def _check(given: argparse.Namespace) -> int:
    from amptui.project import ProjectError  # noqa: PLC0415
    from amptui.report.result_file import require_writable  # noqa: PLC0415
    from amptui.session.errors import SessionError  # noqa: PLC0415
    from amptui.session.paths import create_session  # noqa: PLC0415
    from amptui.spec.error import SpecError  # noqa: PLC0415

    try:
        with _interrupted_by(signal.SIGTERM, signal.SIGHUP):
            require_writable(given.json)
            settings, policies = _settings(given), _policies(given)
            folder = create_session(_session_name(settings), Path(settings.session) if settings.session else None)
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
    from amptui.report.account import Account  # noqa: PLC0415
    from amptui.report.page import Paper  # noqa: PLC0415
    from amptui.report.result import check_result, exit_code  # noqa: PLC0415
    from amptui.report.result_file import write_result  # noqa: PLC0415
    from amptui.session.checking import check  # noqa: PLC0415
    from amptui.session.death import EngineDeath  # noqa: PLC0415
    from amptui.session.state import SessionState  # noqa: PLC0415

    account = Account(Paper(stderr=given.json == "-"), spec=given.spec, session=folder.session_id, ascii=given.ascii)
    latest = SessionState()

    def on_event(event: object, state: SessionState) -> None:
        nonlocal latest
        latest = state
        if isinstance(event, EngineDeath):
            account.on_death(event, state)
        else:
            account.on_event(event, state)  # type: ignore[arg-type]

    cut_short: tuple[str, str] | None = None
    unprinted: OSError | None = None
    try:
        with _interrupted_by(signal.SIGTERM, signal.SIGHUP):
            check(settings, folder, on_event=on_event, policies=policies, measure=given.measure)
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
def _interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """Inside, these signals end what runs as Ctrl-C does; one that the caller had ignored (nohup) stays ignored."""

    def interrupt(_number: int, _frame: object) -> None:
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


def _policies(given: argparse.Namespace) -> Sequence[Mapping[str, object]]:
    from amptui.spec.error import SpecError  # noqa: PLC0415
    from amptui.spec.policies import parse_policies  # noqa: PLC0415

    if given.policies is None:
        return ()
    if given.dtype is not None:
        raise SpecError("form", "--dtype and --policies exclude each other", "name every dtype in --policies")
    return parse_policies(given.policies)


def _cases(given: argparse.Namespace) -> int:
    from amptui.project import ProjectError  # noqa: PLC0415
    from amptui.report.told_cases import say_found, say_not_found  # noqa: PLC0415
    from amptui.session.errors import SessionError  # noqa: PLC0415
    from amptui.session.finding_cases import find_cases  # noqa: PLC0415
    from amptui.session.paths import create_session  # noqa: PLC0415
    from amptui.spec.error import SpecError  # noqa: PLC0415

    try:
        settings = _settings(given)
        folder = create_session(_session_name(settings), Path(settings.session) if settings.session else None)
        state = find_cases(settings, folder, path=_absolute(given.output), boundary=given.boundary)
    except (SpecError, ProjectError, SessionError) as error:
        return _refused(error, None)
    if state.found_cases is None:
        print(say_not_found(state), file=sys.stderr)
        return FAILED
    print(say_found(state.found_cases))
    return 0


def _session_name(settings: RunSettings) -> str:
    from amptui.session.checking import session_name  # noqa: PLC0415

    return session_name(settings)


def _absolute(path: str | None) -> str | None:
    # not resolved: a virtual environment's python is a link, and following it leaves the environment
    return None if path is None else str(Path(path).expanduser().absolute())


def _refused(error: Exception, json: str | None) -> int:
    """One message for what kept amptui from starting; the JSON says the same."""
    from amptui.session.errors import SessionError  # noqa: PLC0415
    from amptui.spec.error import SpecError  # noqa: PLC0415

    other = "session" if isinstance(error, SessionError) else "project"
    said = {
        "code": error.code if isinstance(error, SpecError) else other,
        "message": error.message if isinstance(error, SpecError) else str(error),
        "where": error.where if isinstance(error, SpecError) else None,
        "hint": error.hint if isinstance(error, SpecError) else "",
    }
    print(f"amptui: {safe_text(str(error), 4000, lines=True)}", file=sys.stderr)
    _write_unjudged(json, said)
    return FAILED


def _write_unjudged(json: str | None, error: Mapping[str, object]) -> None:
    """The documented object where no check has begun, as far as it can be written."""
    from amptui.report.result import check_result  # noqa: PLC0415
    from amptui.report.result_file import write_result  # noqa: PLC0415
    from amptui.session.state import SessionState  # noqa: PLC0415

    with suppress(OSError, RuntimeError):
        write_result(json, {**check_result(SessionState(), session=None), "error": error})


def _inspect(given: argparse.Namespace) -> int:
    import shutil  # noqa: PLC0415

    from amptui.inspection.command import run  # noqa: PLC0415
    from amptui.report.inspect_text import inspect_text  # noqa: PLC0415

    paths = [given.path, *([given.second] if given.second is not None else [])]
    if not given.plain and given.json is None and sys.stdout.isatty():
        from amptui.ui.inspect.command import has_screen, open_screen  # noqa: PLC0415

        if has_screen(paths):
            return _on_screen(given, lambda screen: open_screen(paths, screen, values=given.values))
    encoding = (sys.stdout.encoding or "ascii").lower()
    ascii_only = given.ascii or not encoding.startswith("utf")
    width = min(120, shutil.get_terminal_size((80, 24)).columns)
    try:
        return run(
            paths,
            given.json,
            given.values,
            lambda answer: print(inspect_text(answer, width=width, ascii_only=ascii_only)),
        )
    except OSError as error:
        print(f"amptui: {safe_text(given.json, 4000)} cannot be written: {error.strerror or error}", file=sys.stderr)
        return FAILED


def _report(given: argparse.Namespace) -> int:
    from amptui.report.command import report  # noqa: PLC0415
    from amptui.session.errors import SessionError  # noqa: PLC0415

    try:
        report(given.session, format=given.format, output=given.output)
    except SessionError as error:
        print(f"amptui: {safe_text(error, 4000, lines=True)}", file=sys.stderr)
        return FAILED
    return 0


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


def _replay(given: argparse.Namespace) -> int:
    from amptui.report.told_replay import list_retained, say_replayed  # noqa: PLC0415
    from amptui.session.errors import SessionError  # noqa: PLC0415
    from amptui.session.exporting import export_case  # noqa: PLC0415
    from amptui.session.paths import find_session  # noqa: PLC0415
    from amptui.session.recalling import (  # noqa: PLC0415
        named_case,
        opened_with,
        recorded_policy,
        replay_case,
        retained_cases,
    )

    try:
        folder = find_session(given.session)
        if given.case is None:
            print(list_retained(folder.session_id, retained_cases(folder)))
            return 0
        if given.export is not None:
            kept = named_case(folder, given.case)
            script = export_case(folder, kept, opened_with(folder), recorded_policy(folder), Path(given.export))
            print(f"{safe_text(script, 4096)} shows it without amptui")
            return 0
        state = replay_case(folder, given.case, on_event=lambda _event, _state: None)
    except SessionError as error:
        print(f"amptui: {safe_text(error, 4000, lines=True)}", file=sys.stderr)
        return FAILED
    if not state.replayed:
        said = state.refusal.message if state.refusal else state.death.words if state.death else "no answer"
        print(f"amptui: the case could not be replayed: {safe_text(said, 2000)}", file=sys.stderr)
        return FAILED
    print(say_replayed(state.replayed[-1]))
    return 0 if state.replayed[-1].outcome == "fixed" else 1
