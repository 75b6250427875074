"""The line between engine and client: a Unix stream socket that carries lines.

Only the same user may speak: the folder is 0700, the socket 0600, and the kernel's word on the peer's uid is asked on
both sides. Nothing here protects one process of a user from another one of the same user. There is no TCP, and no code
travels. A forked child closes its copies at once: user code that forks must neither answer nor keep the line open.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import socket
import stat
import struct
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MAX_LINE = 16 * 2**20

_CHUNK = 2**16
_PATH_LIMIT = 107  # bytes, of sockaddr_un
_NAME = re.compile(r"(\d+)-[0-9a-f]{8}\.sock")


class ChannelError(Exception):
    """The line cannot be opened or used; the message says why and what to do."""


class ChannelClosed(ChannelError):
    """The other side is gone, or this side closed."""


def runtime_folder() -> Path:
    """The private folder of sockets, made if need be: ``$XDG_RUNTIME_DIR/amptui``, else ``/tmp/amptui-<uid>``.

    Raises ChannelError if something else has its name, or others may enter it.
    """
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base.startswith("/") and len(os.fsencode(base)) < _PATH_LIMIT - 40 and os.access(base, os.W_OK | os.X_OK):
        return private_folder(Path(base) / "amptui")
    return private_folder(Path(f"/tmp/amptui-{os.getuid()}"))  # noqa: S108 - checked below, as tmux does


def private_folder(path: Path) -> Path:
    """`path` as a real folder of our own that nobody else may enter, made if it is missing. Raises ChannelError."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise ChannelError(f"{path} is not a folder: something else took the name of amptui's sockets; remove it")
    if status.st_uid != os.getuid():
        raise ChannelError(f"{path} belongs to another user (uid {status.st_uid}): set XDG_RUNTIME_DIR to your own")
    if status.st_mode & 0o077:
        raise ChannelError(f"{path} can be entered by others; make it private first: chmod 700 {path}")
    return path


class Connection:
    """One end of the line. One thread may send while another receives."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._lines: deque[bytes] = deque()
        self._partial: list[bytes] = []
        self._partial_size = 0
        _closed_in_children(self)

    def fileno(self) -> int:
        """The descriptor to watch for reading; -1 once closed."""
        return self._socket.fileno()

    @property
    def has_line(self) -> bool:
        """Whether a whole line has been read from the socket already."""
        return bool(self._lines)

    @property
    def hung_up(self) -> bool:
        """Whether the other side has closed the line, as the kernel knows at once."""
        if self.fileno() < 0:
            return True
        waiting = select.poll()
        waiting.register(self.fileno(), 0)  # no events asked for: hang-up is always reported
        return bool(waiting.poll(0))

    def send(self, line: str | bytes, timeout: float | None = None) -> None:
        """Sends `line` (without a newline inside) whole; waits up to `timeout` seconds, for ever with None.

        Raises ChannelClosed if the other side is gone, or did not read for `timeout`: then half a line may have left
        and the line cannot be used any more, so it is closed.
        """
        data = memoryview((line.encode("ascii") if isinstance(line, str) else line) + b"\n")
        deadline = None if timeout is None else time.monotonic() + timeout
        while data:
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                if not _ready(self.fileno(), select.POLLOUT, deadline):
                    self.close()
                    raise ChannelClosed("the other side does not read") from None
            except OSError as error:
                raise ChannelClosed(f"the other side is gone ({error.strerror})") from error

    def receive(self, timeout: float | None = None) -> bytes | None:
        """The next line, without its newline; None if none came within `timeout` seconds (0: what is there already).

        Raises ChannelClosed at the end, ChannelError for a line longer than 16 MiB.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._lines:
            try:
                chunk = self._socket.recv(_CHUNK)
            except BlockingIOError:
                if not _ready(self.fileno(), select.POLLIN, deadline):
                    return None
                continue
            except OSError as error:
                raise ChannelClosed(f"the other side is gone ({error.strerror})") from error
            if not chunk:
                raise ChannelClosed("the other side closed the line")
            self._take(chunk)
        return self._lines.popleft()

    def _take(self, chunk: bytes) -> None:
        first, *others = chunk.split(b"\n")
        self._partial.append(first)
        self._partial_size += len(first)
        if self._partial_size > MAX_LINE:
            self.close()
            raise ChannelError(f"a line of more than {MAX_LINE >> 20} MiB: this is not amptui speaking")
        if others:
            self._lines.append(b"".join(self._partial))
            *whole, rest = others
            self._lines.extend(whole)
            self._partial, self._partial_size = [rest], len(rest)

    def move(self, moved: Callable[[int], int]) -> None:
        """Lets `moved` choose another descriptor for the socket; it closes the old one."""
        self._socket = socket.socket(fileno=moved(self._socket.detach()))
        self._socket.setblocking(False)

    def shutdown(self) -> None:
        """Ends the line for every thread that waits on it; `close` frees the descriptor."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()


class Listener:
    """A socket in the private folder that clients connect to; its file goes with `close`."""

    def __init__(self, listening: socket.socket, path: Path) -> None:
        self._socket = listening
        self.path = path
        self._owner = os.getpid()
        _closed_in_children(self)

    @classmethod
    def open(cls, folder: Path | None = None) -> Listener:
        """Listens on ``<pid>-<8 hex>.sock`` in `folder` (default: `runtime_folder()`). Raises ChannelError."""
        folder = runtime_folder() if folder is None else private_folder(folder)
        remove_stale(folder)
        path = folder / f"{os.getpid()}-{secrets.token_hex(4)}.sock"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listening.bind(os.fspath(path))
            listening.listen(4)
        except OSError as error:
            listening.close()
            raise ChannelError(f"cannot listen on {path}: {error.strerror or error}") from error
        finally:
            os.umask(before)
        listening.setblocking(False)
        return cls(listening, path)

    def fileno(self) -> int:
        return self._socket.fileno()

    def accept(self, timeout: float | None = None) -> Connection | None:
        """The next client of the same user, or None within `timeout` seconds. Others are hung up on."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while _ready(self.fileno(), select.POLLIN, deadline):
            try:
                end, _ = self._socket.accept()
            except BlockingIOError:
                continue
            except OSError as error:
                raise ChannelClosed(f"no longer listening ({error.strerror})") from error
            if peer(end)[1] == os.getuid():
                return Connection(end)
            end.close()
        return None

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()
        if self._owner == os.getpid():
            self.path.unlink(missing_ok=True)


def connect(path: Path) -> Connection:
    """A connection to the engine that listens on `path`. Raises ChannelError if there is none, or it is not ours."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        end.connect(os.fspath(path))
    except OSError as error:
        end.close()
        raise ChannelError(f"nobody answers on {path}: {error.strerror or error}") from error
    uid = peer(end)[1]
    if uid != os.getuid():
        end.close()
        raise ChannelError(f"{path} is served by another user (uid {uid}); amptui does not talk to it")
    return Connection(end)


def peer(end: socket.socket) -> tuple[int, int]:
    """Process id and uid of who is at the other end, as the kernel says."""
    pid, uid, _gid = struct.unpack("iII", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")))
    return pid, uid


def remove_stale(folder: Path) -> None:
    """Removes the sockets of engines that are gone.

    A process of another container has a number that means nothing here: its socket goes only if nobody answers either.
    """
    for entry in folder.iterdir():
        named = _NAME.fullmatch(entry.name)
        if named is None or Path(f"/proc/{named[1]}").exists():
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(os.fspath(entry))
            except ConnectionRefusedError:
                entry.unlink(missing_ok=True)
            except OSError:
                continue


def _ready(descriptor: int, event: int, deadline: float | None) -> bool:
    """Waits until `descriptor` is ready (or broken: the next call says how); False at the deadline."""
    if descriptor < 0:
        raise ChannelClosed("the line is closed")
    waiting = select.poll()  # not select.select: descriptors may lie above 1023
    waiting.register(descriptor, event)
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    return bool(waiting.poll(None if left is None else left * 1000))


def _closed_in_children(line: Connection | Listener) -> None:
    this = weakref.ref(line)

    def close() -> None:
        if (line := this()) is not None:
            line._socket.close()

    os.register_at_fork(after_in_child=close)
