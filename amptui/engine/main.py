"""The engine process: its surroundings, its line to the client, its end."""

from __future__ import annotations

import argparse
import faulthandler
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import amptui
from amptui.engine.clients import Clients
from amptui.engine.descriptors import moved_out_of_reach, out_of_reach
from amptui.engine.inbox import Inbox
from amptui.engine.outbox import Outbox
from amptui.engine.output import Output, OutputLog, Stream
from amptui.protocol.channel import ChannelError, Connection, Listener
from amptui.protocol.events import EngineFailed, Goodbye, Refused
from amptui.session.durable import create_file
from amptui.session.engine_file import FAULTS, MARK_VARIABLE, EngineFile, end_processes
from amptui.session.errors import SessionError
from amptui.session.folder import ERROR_FILE, SessionFolder
from amptui.session.lock import SessionLock, process_start
from amptui.session.store import Store
from amptui.text import safe_text

OLDEST_TORCH = (2, 10)
#: Exit code of an engine that met an error of its own (EX_SOFTWARE).
FAILED = 70
_NO_DISK = (
    "look whether the session's folder is there, private, and on a disk with room; AMPTUI_HOME names another place"
)
_NO_RAISING = (
    "it came while amptui was at work: what your code leaves to run by itself, such as a signal handler, must not raise"
)
#: How long the project's own exit handlers and threads may take after the goodbye.
ENDING_S = 3.0


class Drives(Protocol):
    """What runs a session: takes commands from the inbox, tells events to the outbox, until it is asked to close."""

    def run(self) -> None: ...


Conducting = Callable[[Inbox, Outbox, SessionFolder], Drives]


@dataclass(frozen=True)
class _Surroundings:
    """All that the engine holds open, on descriptors that user code does not reach."""

    folder: SessionFolder
    lock: SessionLock
    store: Store
    log: OutputLog
    faults: int
    listener: Listener | None


def main(arguments: Sequence[str], *, conducting: Conducting | None = None, needs_torch: bool = True) -> int:
    """Runs an engine as `arguments` say and gives its exit code.

    `conducting` makes what runs the session (default: `amptui.engine.conductor.Conductor`).
    """
    given = _parser().parse_args(arguments)
    if os.getsid(0) != os.getpid():
        with suppress(OSError):
            os.setsid()
    connection = Connection(socket.socket(fileno=moved_out_of_reach(given.channel)))
    pipes: dict[Stream, int] = {"stdout": moved_out_of_reach(given.stdout), "stderr": moved_out_of_reach(given.stderr)}
    inbox = Inbox(given.on_disconnect)
    try:
        held = _open(Path(given.folder))
    except SessionError as error:
        return _refuse_unrecorded(connection, str(error))
    outbox = Outbox(held.store)
    mark = os.environ.get(MARK_VARIABLE) or "none"  # kept: the project's code may change its environment
    clients = Clients(inbox, outbox, held.listener, patience=given.patience, mark=mark)
    outbox.on_gone = clients.left
    output = Output(pipes, held.log, outbox.send)
    faulthandler.enable(held.faults, all_threads=True)
    _close_on_signals(inbox)
    clients.start(connection, given.client)
    output.start()
    _engine_file(held.listener, pipes, mark).write(held.folder)

    code = _conduct(inbox, outbox, held.folder, conducting, needs_torch=needs_torch, finish=output.stop)

    _end_within(ENDING_S, code)
    outbox.close()
    clients.close()
    with suppress(SessionError):
        held.store.close()
    EngineFile.remove(held.folder)
    held.lock.release()
    if not inbox.connected:  # an attached client sees to that once this process is gone
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        end_processes(mark)
    return code


def _conduct(
    inbox: Inbox,
    outbox: Outbox,
    folder: SessionFolder,
    conducting: Conducting | None,
    *,
    needs_torch: bool,
    finish: Callable[[], None],
) -> int:
    """Runs the session to its end and says goodbye, or says what failed."""
    owner = os.getpid()
    try:
        refused = refused_torch() if needs_torch else None
        if refused is not None:
            outbox.send(refused)
        else:
            (conducting or _conductor())(inbox, outbox, folder).run()
    except BaseException as error:
        if os.getpid() != owner:  # a child that user code forked ran out of that code
            os._exit(_exit_code(error))
        finish()
        if isinstance(error, SessionError):  # a full disk, a folder that is gone: told, and nobody's mistake
            outbox.say_last(_refused_session(error))
            outbox.say_last(Goodbye(why="refused"))
            return 0
        with suppress(Exception):
            failed = failure_of(error)
            _keep_detail(folder, failed.detail)
            outbox.say_last(failed)
        return FAILED
    if os.getpid() != owner:
        os._exit(0)
    finish()
    outbox.say_last(Goodbye(why="refused" if refused is not None else inbox.closing or "done"))
    return 0


def _conductor() -> Conducting:
    from amptui.engine.conductor import Conductor  # noqa: PLC0415 - needs torch

    return Conductor


def refused_torch() -> Refused | None:
    """Imports torch, before the project's folder is on `sys.path`; a refusal where it is missing or too old."""
    hint = "Name the interpreter of the environment that the project trains in: --python PATH"
    wanted = ".".join(map(str, OLDEST_TORCH))
    try:
        import torch  # noqa: PLC0415 - the point of this function
    except ModuleNotFoundError as error:
        if error.name == "torch":
            return Refused(
                code="no-torch",
                message=f"{sys.executable} has no torch; amptui judges with the project's own.",
                hint=hint,
            )
        return _broken_torch(error, hint)
    except Exception as error:
        return _broken_torch(error, hint)
    version = str(torch.__version__)
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_TORCH:
        message = f"{sys.executable} has torch {version}; amptui needs {wanted} or newer."
        return Refused(code="old-torch", message=message, hint=f"Update torch there, or choose another one. {hint}")
    return None


def _broken_torch(error: Exception, hint: str) -> Refused:
    message = f"torch cannot be imported by {sys.executable}: {type(error).__name__}: {error}"
    return Refused(code="no-torch", message=message, hint=f"`python -c 'import torch'` there shows the same. {hint}")


def _refused_session(error: SessionError) -> Refused:
    """Why the session cannot be kept: its disk, or the project's code, which raised while it was written."""
    raised = error.__cause__
    where = _raised_by_project(raised) if raised is not None else None
    if raised is None or where is None:
        return Refused(code="session", message=str(error), hint=_NO_DISK)
    said = f"your code raised {type(raised).__name__} while amptui wrote the session: {safe_text(raised, 1000)}"
    return Refused(code="raises", message=said, hint=_NO_RAISING, where=where)


def _raised_by_project(error: BaseException) -> str | None:
    """`file:line` where the project's own code raised `error` into the engine's, such as in a signal handler."""
    if "torch" not in sys.modules:  # then none of its code has run, and what tells them apart needs torch
        return None
    from amptui.engine.failures import raised_by_user  # noqa: PLC0415 - as for the conductor

    return raised_by_user(error)


def failure_of(error: BaseException) -> EngineFailed:
    """What ended the engine, with the innermost place outside of amptui."""
    frames = traceback.extract_tb(error.__traceback__)
    own = os.path.dirname(os.path.abspath(amptui.__file__))  # noqa: PTH100, PTH120 - as in the frames
    outside = [frame for frame in frames if not frame.filename.startswith((own, "<"))]
    where = f"{outside[-1].filename}:{outside[-1].lineno}" if outside else None
    if isinstance(error, SystemExit):
        code = repr(error.code) if isinstance(error.code, str | int) else safe_text(error.code or "")
        message = f"the project's code ended the process: sys.exit({code})"
    else:
        said = safe_text(error, 1000, lines=True)
        message = f"{type(error).__name__}: {said}" if said else type(error).__name__
    detail = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    hint = _NO_RAISING if _raised_by_project(error) is not None else ""
    return EngineFailed(message=message, where=where, detail=detail[-8000:], hint=hint)


def _keep_detail(folder: SessionFolder, detail: str) -> None:
    """The traceback lies in the session's folder for whoever mends it; the user reads one message."""
    with suppress(OSError), os.fdopen(folder.new_file(ERROR_FILE), "w", errors="backslashreplace") as file:
        file.write(detail)


def _exit_code(error: BaseException) -> int:
    if not isinstance(error, SystemExit):
        return FAILED
    return error.code & 0xFF if isinstance(error.code, int) else int(error.code is not None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="amptui-engine", allow_abbrev=False)
    parser.add_argument("--folder", required=True, help="the session's folder")
    parser.add_argument("--channel", type=int, required=True, help="descriptor of the line to the client")
    parser.add_argument("--stdout", type=int, required=True, help="descriptor to read standard output from")
    parser.add_argument("--stderr", type=int, required=True, help="descriptor to read standard error from")
    parser.add_argument("--client", type=int, required=True, help="process id of the client")
    parser.add_argument("--on-disconnect", choices=("wait", "stop"), default="wait")
    parser.add_argument("--patience", type=float, default=12 * 3600.0, help="seconds to wait without any client")
    return parser


def _open(path: Path) -> _Surroundings:
    """Opens the session for writing. Raises SessionError, with nothing left open."""
    with out_of_reach(), ExitStack() as undo:
        folder = SessionFolder.open(path)
        lock = SessionLock.acquire(folder, role="engine")
        undo.callback(lock.release)
        store = Store.open(folder, lock)
        undo.callback(store.close)
        log = OutputLog(folder.output_log)
        undo.callback(log.close)
        (folder.path / FAULTS).unlink(missing_ok=True)
        faults = create_file(folder.path / FAULTS)
        listener = _listener()
        undo.pop_all()
        return _Surroundings(folder, lock, store, log, faults, listener)


def _listener() -> Listener | None:
    # Without one, nobody can attach later; that is no reason not to run.
    with suppress(ChannelError, OSError):
        return Listener.open()
    return None


def _engine_file(listener: Listener | None, pipes: Mapping[Stream, int], mark: str) -> EngineFile:
    return EngineFile(
        pid=os.getpid(),
        start_ticks=process_start(os.getpid()),
        socket=None if listener is None else str(listener.path),
        mark=mark,
        amptui=amptui.__version__,
        pipes=tuple(pipes.values()),
    )


def _refuse_unrecorded(connection: Connection, message: str) -> int:
    """The session cannot be written: that is told, and nothing else happens."""
    outbox = Outbox(None)
    outbox.attach(connection)
    outbox.send(Refused(code="session", message=message))
    outbox.send(Goodbye(why="refused"))
    outbox.close()
    return 0


def _close_on_signals(inbox: Inbox) -> None:
    def close(number: int, _frame: object) -> None:
        inbox.close(f"signal {signal.Signals(number).name}")

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, close)


def _end_within(seconds: float, code: int) -> None:
    """Ends the process even if the project's exit handlers or threads never do."""

    def end() -> None:
        time.sleep(seconds)
        os._exit(code)

    threading.Thread(target=end, name="amptui-end", daemon=True).start()
