"""Starting the engine's interpreter, with nothing of the client's own environment in it."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from amptui.protocol.channel import Connection
from amptui.session.engine_file import MARK_VARIABLE
from amptui.session.errors import SessionError
from amptui.text import safe_text

#: What would make another interpreter behave like the client's. PYTHONPATH stays: it is the user's.
NOT_INHERITED = ("PYTHONHOME", "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__", "PYTHONINSPECT", "PYTHONSTARTUP")


class LaunchError(SessionError):
    """The interpreter cannot be run."""


@dataclass(frozen=True)
class Launched:
    """`pipes`: the reading ends of its standard output and error, which the engine reads while it lives."""

    child: subprocess.Popen[bytes]
    connection: Connection
    pipes: tuple[int, ...]
    mark: str


def launch(python: str | Path, program: Path, options: Sequence[str], env: Mapping[str, str]) -> Launched:
    """Runs `program` in the interpreter `python`, in a session of its own. Raises LaunchError."""
    path = interpreter(python)
    mark = secrets.token_hex(8)
    ours, theirs = socket.socketpair()
    out_reader, out_writer = os.pipe()
    err_reader, err_writer = os.pipe()
    given = {"--channel": theirs.fileno(), "--stdout": out_reader, "--stderr": err_reader}
    command = [path, str(program), *options, "--client", str(os.getpid())]
    for option, descriptor in given.items():
        command += [option, str(descriptor)]
    try:
        child = subprocess.Popen(  # noqa: S603 - the interpreter that the user named
            command,
            stdin=subprocess.DEVNULL,
            stdout=out_writer,
            stderr=err_writer,
            pass_fds=tuple(given.values()),
            env=environment(env, mark),
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        os.close(out_reader)
        os.close(err_reader)
        raise LaunchError(f"{safe_text(python)} cannot be started: {error.strerror}") from error
    finally:
        theirs.close()
        os.close(out_writer)
        os.close(err_writer)
    return Launched(child, Connection(ours), (out_reader, err_reader), mark)


def interpreter(python: str | Path) -> str:
    """The path of `python`, links kept: a virtual environment is known by its link. Raises LaunchError."""
    found = shutil.which(os.path.expanduser(python))  # noqa: PTH111 - `which` takes a name as well as a path
    if found is None:
        raise LaunchError(f"{safe_text(python)} is no program that can be run: give the path of a Python")
    return os.path.abspath(found)  # noqa: PTH100 - resolve() would follow the link


def environment(base: Mapping[str, str], mark: str) -> dict[str, str]:
    """`base` without what belongs to the client's interpreter, with the engine's mark."""
    kept = {name: value for name, value in base.items() if name not in NOT_INHERITED}
    return {**kept, MARK_VARIABLE: mark}
