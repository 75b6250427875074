"""The command line: what can be typed. What it does is in `amptui.commands`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module

import amptui

FAILED = 2
INTERRUPTED = 130

_SESSION = "a session's id, the beginning of one, its folder, or last: the newest that run or check opened a project in"


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


def _command(module: str, name: str) -> Callable[[argparse.Namespace], int]:
    """A command by its place in `amptui.commands`, imported when it runs: `amptui --version` answers at once."""

    def command(given: argparse.Namespace) -> int:
        function: Callable[[argparse.Namespace], int] = getattr(import_module(f"amptui.commands.{module}"), name)
        return function(given)

    return command


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
    run.set_defaults(command=_command("screens", "run"))


def _add_attach(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    attach = commands.add_parser("attach", help="take up a session whose engine waits", allow_abbrev=False)
    attach.add_argument(
        "session", metavar="SESSION", nargs="?", default="last", help="as for open; without it the newest that waits"
    )
    attach.add_argument("--take-over", action="store_true", help="put out a client that is attached now")
    _add_screen_options(attach)
    attach.set_defaults(command=_command("screens", "attach"))


def _add_open(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    opened = commands.add_parser("open", help="look at a recorded session, without torch", allow_abbrev=False)
    opened.add_argument("session", metavar="SESSION", help=_SESSION)
    _add_screen_options(opened)
    opened.set_defaults(command=_command("screens", "open_recorded"))


def _add_screen_options(parser: argparse.ArgumentParser) -> None:
    """How the screen looks; the configuration file (`amptui paths`) gives what is not given here."""
    parser.add_argument("--theme", choices=("dark", "light", "plain"), help="colours; NO_COLOR always means plain")
    parser.add_argument("--ascii", action="store_true", default=None, help="plain ASCII marks and plots")
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    parser.add_argument("--paints", type=float, metavar="N", help="paints a second, at most (default 8, over SSH 4)")


def _add_sessions(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sessions = commands.add_parser("sessions", help="list the sessions", allow_abbrev=False)
    sessions.set_defaults(command=_command("setup", "sessions"))


def _add_paths(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    paths = commands.add_parser("paths", help="where everything is kept", allow_abbrev=False)
    paths.set_defaults(command=_command("setup", "paths"))


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = commands.add_parser(
        "doctor", help="what this terminal, torch and device can do, and what not", allow_abbrev=False
    )
    doctor.add_argument("--python", metavar="PATH", help="the project's own interpreter")
    doctor.set_defaults(command=_command("setup", "doctor"))


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
    check.add_argument("--json", metavar="FILE", help="write the result here, on every exit (- is standard output)")
    check.add_argument("--ascii", action="store_true", help="plain ASCII marks")
    check.set_defaults(command=_command("check", "check"))


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
    inspect.add_argument(
        "--json",
        metavar="FILE",
        help="write the result here (- is standard output), and print instead of opening a screen",
    )
    inspect.add_argument("--values", action="store_true", help="read all tensor data, also of large files")
    inspect.add_argument("--plain", action="store_true", help="print instead of opening a screen")
    _add_screen_options(inspect)
    inspect.set_defaults(command=_command("inspect", "inspect"))


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    report = commands.add_parser(
        "report",
        help="write a recorded session down: verdict, findings, plots, code to paste",
        description="Writes what a session recorded as Markdown, as one HTML file without scripts, or as JSON. None of "
        "the project is run; torch is not needed. Exit codes: 0 written, 2 nothing to report.",
        allow_abbrev=False,
    )
    report.add_argument("session", metavar="SESSION", help=_SESSION)
    report.add_argument(
        "--format", choices=("md", "html", "json"), help="without it FILE's ending decides; Markdown if that does not"
    )
    report.add_argument(
        "-o", "--output", metavar="FILE", help="the file to write; without it, or as -, standard output"
    )
    report.set_defaults(command=_command("sessions", "report"))


def _add_restore(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    restore = commands.add_parser(
        "restore",
        help="give back a session's FP32 checkpoint, verified bit for bit",
        description="Verifies the SHA-256 of every tensor of a session's FP32 checkpoint and copies it to a file that "
        "torch.load(FILE, weights_only=True) reads. Exit codes: 0 done, 1 damaged, 2 nothing to restore.",
        allow_abbrev=False,
    )
    restore.add_argument("session", metavar="SESSION", help=_SESSION)
    restore.add_argument("-o", "--output", metavar="FILE", help="where to write the checkpoint")
    restore.add_argument("--verify", action="store_true", help="only check every byte of every checkpoint")
    restore.add_argument("--force", action="store_true", help="overwrite FILE")
    restore.set_defaults(command=_command("sessions", "restore"))


def _add_new(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    new = commands.add_parser("new", help="write a commented project file to start from", allow_abbrev=False)
    new.add_argument("file", metavar="FILE", help="the Python file to write; it must not exist")
    new.set_defaults(command=_command("setup", "new"))


def _add_replay(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    replay = commands.add_parser(
        "replay",
        help="run a retained failing iteration once more, traced; or list them",
        description="Replays a retained case on its own weights, batches and random state, and says where it fails and "
        "what mends it. Exit codes: 0 fixed (or listed), 1 it still fails, 2 it could not be replayed.",
        allow_abbrev=False,
    )
    replay.add_argument("case", metavar="CASE", nargs="?", help="a retained case; without it, they are listed")
    replay.add_argument(
        "--session", metavar="SESSION", default="last", help="the session that retained it, as for report (last)"
    )
    replay.add_argument("--export", metavar="DIR", help="write it to a new folder, with a script that needs no amptui")
    replay.set_defaults(command=_command("sessions", "replay"))


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
    cases.set_defaults(command=_command("cases", "cases"))
