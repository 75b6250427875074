"""The command line: what can be typed. What it does is in `amptui.commands`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TypeAlias

import amptui

FAILED = 2
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; no traceback reaches the user."""
    _open_standard_descriptors()
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.command is None:  # the commands are what somebody needs who typed none
        parser.print_help(sys.stderr)
        return FAILED
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


_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # argparse has no public name for it


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="amptui",
        description="From a working FP32 PyTorch project to a decision about FP16/BF16 autocast that you can trust.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"amptui {amptui.__version__}")
    parser.set_defaults(command=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for add in (
        _add_run,
        _add_check,
        _add_attach,
        _add_open,
        _add_sessions,
        _add_inspect,
        _add_report,
        _add_restore,
        _add_new,
        _add_replay,
        _add_cases,
        _add_paths,
        _add_doctor,
    ):
        add(commands)
    return parser


def _add(
    commands: _Commands,
    name: str,
    place: str,
    help: str,  # noqa: A002 - argparse calls it so
    description: str | None = None,
) -> argparse.ArgumentParser:
    """A command; `place` is its function, `module.name` in `amptui.commands`.

    The module is imported when the command runs: `amptui --version` answers at once.
    """
    module, _, function = place.partition(".")

    def command(given: argparse.Namespace) -> int:
        run: Callable[[argparse.Namespace], int] = getattr(import_module(f"amptui.commands.{module}"), function)
        return run(given)

    parser = commands.add_parser(name, help=help, description=description, allow_abbrev=False)
    parser.set_defaults(command=command)
    return parser


# What several commands share.


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """An option overrides amptui.yaml, which overrides the project."""
    parser.add_argument("spec", metavar="SPEC", help="package.module:attr, path/to/file.py:attr, or an amptui.yaml")
    parser.add_argument("--dtype", metavar="DTYPE", help="float16 (fp16) or bfloat16 (bf16)")
    parser.add_argument("--device", metavar="DEVICE", help="where to run, such as cuda:0; nothing is moved without it")
    parser.add_argument("--iterations", type=int, metavar="N", help="windows of the training stretch")
    parser.add_argument("--session", metavar="DIR", help="a new folder for the session's files")
    _add_python(parser)


def _add_python(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--python", metavar="PATH", help="the project's own interpreter")


def _add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "session",
        metavar="SESSION",
        help="a session's id, the beginning of one, its folder, or last: the newest that run or check opened a "
        "project in",
    )


def _add_ascii(parser: argparse.ArgumentParser, what: str) -> None:
    # None where it is not given: the configuration file may then say it
    parser.add_argument("--ascii", action="store_true", default=None, help=f"plain ASCII {what}")


def _add_screen_options(parser: argparse.ArgumentParser) -> None:
    """How the screen looks; the configuration file (`amptui paths`) gives what is not given here."""
    parser.add_argument("--theme", choices=("dark", "light", "plain"), help="colours; NO_COLOR always means plain")
    _add_ascii(parser, "marks and plots")
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    parser.add_argument("--paints", type=float, metavar="N", help="paints a second, at most (default 8, over SSH 4)")


# The commands.


def _add_run(commands: _Commands) -> None:
    run = _add(
        commands,
        "run",
        "screens.run",
        "the guided trial on the screen, from project to verdict, with one key back",
        "Leads through FP32 baseline, locked criteria and a guarded trial to a verdict, on the screen.",
    )
    _add_run_options(run)
    _add_screen_options(run)


def _add_check(commands: _Commands) -> None:
    check = _add(
        commands,
        "check",
        "check.check",
        "judge a project: FP32 baseline, locked criteria, guarded trial, verdict",
        "Takes a project through true-FP32 baseline, locked criteria and guarded trial to a verdict. "
        "Exit codes: 0 accept, 1 reject, 3 inconclusive, 2 anything that kept it from judging, 130 interrupted.",
    )
    _add_run_options(check)
    check.add_argument(
        "--policies", metavar="LIST", help="try several under the same criteria, such as fp16,fp16@1024,bf16"
    )
    check.add_argument("--measure", action="store_true", help="time every accepted policy against FP32 afterwards")
    check.add_argument("--json", metavar="FILE", help="write the result here, on every exit (- is standard output)")
    _add_ascii(check, "marks")


def _add_attach(commands: _Commands) -> None:
    attach = _add(commands, "attach", "screens.attach", "take up a session whose engine waits")
    attach.add_argument(
        "session", metavar="SESSION", nargs="?", default="last", help="as for open; without it the newest that waits"
    )
    attach.add_argument("--take-over", action="store_true", help="put out a client that is attached now")
    _add_screen_options(attach)


def _add_open(commands: _Commands) -> None:
    opened = _add(commands, "open", "screens.open_recorded", "look at a recorded session, without torch")
    _add_session(opened)
    _add_screen_options(opened)


def _add_sessions(commands: _Commands) -> None:
    sessions = _add(commands, "sessions", "setup.sessions", "list the sessions that a project was opened in")
    sessions.add_argument("--all", action="store_true", help="also those that came to no project, or look for cases")


def _add_inspect(commands: _Commands) -> None:
    inspect = _add(
        commands,
        "inspect",
        "inspect.inspect",
        "a checkpoint's scaler state, and what is missing for an exact resume; without torch",
        "Tells what a checkpoint holds without importing torch and without running anything in it; with "
        "two, what happened between them. On a terminal it opens as a screen. "
        "Exit codes: 0 read and no fault, 1 a fault, 2 nothing readable.",
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


def _add_report(commands: _Commands) -> None:
    report = _add(
        commands,
        "report",
        "sessions.report",
        "write a recorded session down: verdict, findings, plots, code to paste",
        "Writes what a session recorded as Markdown, as one HTML file without scripts, or as JSON. None of "
        "the project is run; torch is not needed. Exit codes: 0 written, 2 nothing to report.",
    )
    _add_session(report)
    report.add_argument(
        "--format", choices=("md", "html", "json"), help="without it FILE's ending decides; Markdown if that does not"
    )
    report.add_argument(
        "-o", "--output", metavar="FILE", help="the file to write; without it, or as -, standard output"
    )


def _add_restore(commands: _Commands) -> None:
    restore = _add(
        commands,
        "restore",
        "sessions.restore",
        "give back a session's FP32 checkpoint, verified bit for bit",
        "Verifies the SHA-256 of every tensor of a session's FP32 checkpoint and copies it to a file that "
        "torch.load(FILE, weights_only=True) reads. Exit codes: 0 done, 1 damaged, 2 nothing to restore.",
    )
    _add_session(restore)
    restore.add_argument("-o", "--output", metavar="FILE", help="where to write the checkpoint")
    restore.add_argument("--verify", action="store_true", help="only check every byte of every checkpoint")
    restore.add_argument("--force", action="store_true", help="overwrite FILE")


def _add_new(commands: _Commands) -> None:
    new = _add(commands, "new", "setup.new", "write a commented project file to start from")
    new.add_argument("file", metavar="FILE", help="the Python file to write; it must not exist")


def _add_replay(commands: _Commands) -> None:
    replay = _add(
        commands,
        "replay",
        "sessions.replay",
        "run a retained failing iteration once more, traced; or list them",
        "Replays a retained case on its own weights, batches and random state, and says where it fails and "
        "what mends it. Exit codes: 0 fixed (or listed), 1 it still fails, 2 it could not be replayed.",
    )
    replay.add_argument("case", metavar="CASE", nargs="?", help="a retained case; without it, they are listed")
    replay.add_argument(
        "--session", metavar="SESSION", default="last", help="the session that retained it, as for report (last)"
    )
    replay.add_argument("--export", metavar="DIR", help="write it to a new folder, with a script that needs no amptui")


def _add_cases(commands: _Commands) -> None:
    cases = _add(
        commands,
        "cases",
        "cases.cases",
        "find inputs worth being a case: the smallest margins, the extremes",
        "Runs FP32 over the project's batches and proposes the smallest margins as boundary cases, and the "
        "largest activations, the longest, the empty and the fully masked input as edge cases. Exit codes: 0 found, "
        "2 anything that kept it from looking.",
    )
    _add_run_options(cases)
    cases.add_argument("-o", "--output", metavar="FILE", help="write them here, for torch.load")
    cases.add_argument("--boundary", type=int, default=5, metavar="N", help="how many boundary cases at most (5)")


def _add_paths(commands: _Commands) -> None:
    _add(commands, "paths", "setup.paths", "where everything is kept")


def _add_doctor(commands: _Commands) -> None:
    doctor = _add(commands, "doctor", "setup.doctor", "what this terminal, torch and device can do, and what not")
    _add_python(doctor)
