"""The file that a user names: what the text names, and how something is written there.

One rule for every such file, whoever asks for it: a regular file appears whole or not at all, also behind a symbolic
link, which stays; a pipe or a character device is written through, and never waited for.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from amptui.session.durable import published
from amptui.session.errors import SessionError
from amptui.text import safe_text

#: Where a process' open descriptors have names.
_DESCRIPTOR = re.compile(r"/proc/(\d+)/fd/(\d+)|/dev/fd/(\d+)")
#: Never waits: not for a pipe's reader, not for a line's carrier; takes no terminal as its own.
_THROUGH = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_REFUSED = {
    stat.S_IFDIR: (errno.EISDIR, "this is a folder; name a file in it"),
    stat.S_IFSOCK: (errno.ENXIO, "this is a socket; name a file"),
    stat.S_IFBLK: (errno.EPERM, "this is a block device; name a file"),
}


def named_path(text: str, option: str = "") -> Path:
    """The absolute path that `text` names, `~` expanded, links as they are; SessionError where it names none.

    `option`, such as ``--json``, is what the message begins with.
    """
    if not text.strip():
        raise SessionError(f"{option + ': ' if option else ''}the name is empty; write the name of a file or a folder")
    called = _called(text, option)
    try:
        path = Path(text).expanduser().absolute()
        os.fsencode(path)
    except RuntimeError as error:  # ~nobody
        raise SessionError(f"{called}: {safe_text(error)}") from error
    except ValueError as error:
        raise SessionError(f"{called}: no file can have this name") from error
    except OSError as error:
        raise SessionError(f"{called}: the working directory is gone; write the whole path") from error
    if "\0" in text:
        raise SessionError(f"{called}: no file can have this name")
    return path


def file_to_write(text: str, option: str = "") -> Path:
    """The file that `text` names, as `named_path`; SessionError also where no file can be written there.

    Nothing is opened and nothing is changed.
    """
    path, called = named_path(text, option), _called(text, option)
    try:
        status = _status(path)
        if status is not None:
            _refuse(status, path)
        elif not path.parent.is_dir():
            raise SessionError(f"{called}: there is no such folder; make it first, or name another file")
    except OSError as error:
        raise SessionError(f"{called}: {error.strerror or error}") from error
    return path


def require_place(path: Path) -> None:
    """Raises OSError where a regular file could not be written to `path`; what is there stays as it is."""
    status = _status(path)
    if status is None:
        place = Path(os.path.realpath(path))
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        place.unlink()
    elif stat.S_ISREG(status.st_mode):
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    else:
        _refuse(status, path)


@contextmanager
def held_pipe(path: Path) -> Iterator[None]:
    """Inside, the reader of the pipe at `path` sees no end, however often it is written to; OSError if it has none.

    Anything else than a pipe is left alone.
    """
    status = _status(path)
    descriptor = _through(path) if status is not None and stat.S_ISFIFO(status.st_mode) else None
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def written(path: Path, *, overwrite: bool = True, mode: int | None = None) -> Iterator[BinaryIO]:
    """A file to write that is `path` when the block ends without an exception. Raises OSError.

    A regular file is replaced as a whole, the target of a symbolic link instead of the link (FileExistsError where one
    exists, unless `overwrite`). Its permissions are `mode`, else those of the file before, else what the umask leaves.
    Pipes and character devices are written through; a pipe that nobody reads, a socket, a block device and a folder
    are refused.
    """
    status = _status(path)
    if status is not None and (not stat.S_ISREG(status.st_mode) or _descriptor_of(path) is not None):
        _refuse(status, path)
        with os.fdopen(_through(path), "wb") as file:
            yield file
        return
    if not overwrite and os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "there is such a file already", str(path))
    place = Path(os.path.realpath(path))
    if status is not None and not os.access(place.parent, os.W_OK | os.X_OK):
        with _in_place(place) as file:
            yield file
        return
    with published(place, overwrite=overwrite, mode=0o666 if mode is None else mode) as file:
        if status is not None and mode is None:
            os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
        yield file


@contextmanager
def _in_place(place: Path) -> Iterator[BinaryIO]:
    """An existing file in a folder that takes no new names; after an exception it is empty: half of it helps nobody."""
    descriptor = os.open(place, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
    except BaseException:
        with suppress(OSError):
            os.truncate(place, 0)
        raise


def of_this_process(path: Path) -> Path:
    """`path` as another process may open it: `/dev/stdout` and `/dev/fd/N` mean somebody else's descriptors there."""
    descriptor = _descriptor_of(path)
    return Path(f"/proc/{os.getpid()}/fd/{descriptor[1]}") if descriptor is not None and descriptor[0] is None else path


def _through(path: Path) -> int:
    """A descriptor that writes to what is at `path`, which is no regular file, or is open already."""
    known = _descriptor_of(path)
    if known is not None and known[0] is None:
        return os.dup(known[1])  # opened anew it would begin at the file's beginning, and a socket could not be opened
    try:
        descriptor = os.open(path, _THROUGH | (os.O_APPEND if known is not None else 0))
    except OSError as error:
        if error.errno == errno.ENXIO and stat.S_ISFIFO(path.stat().st_mode):
            raise OSError(errno.ENXIO, "nobody reads this pipe") from error
        raise
    os.set_blocking(descriptor, True)  # a slow reader is waited for
    return descriptor


def _descriptor_of(path: Path) -> tuple[int | None, int] | None:
    """(process, descriptor) where `path` is the name of an open descriptor; the process is None for this one."""
    name = str(path)
    for _ in range(40):  # as many links as the system follows
        name = os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name))  # noqa: PTH118, PTH119, PTH120
        found = _DESCRIPTOR.fullmatch(name)
        if found is not None:
            process = int(found[1]) if found[1] else os.getpid()
            return None if process == os.getpid() else process, int(found[2] or found[3])
        try:
            name = os.path.join(os.path.dirname(name), os.readlink(name))  # noqa: PTH115, PTH118, PTH120
        except OSError:
            return None
    return None


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _refuse(status: os.stat_result, path: Path) -> None:
    if stat.S_ISSOCK(status.st_mode) and _descriptor_of(path) is not None:
        return  # connected already
    refused = _REFUSED.get(stat.S_IFMT(status.st_mode))
    if refused is not None:
        raise OSError(*refused)


def _called(text: str, option: str) -> str:
    return f"{option} {safe_text(text, 4096)}".strip()
