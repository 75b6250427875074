"""Files that are there after a crash or not at all: new file, fsync, rename, folder fsync."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def create_file(path: Path, mode: int = PRIVATE_FILE) -> int:
    """A descriptor of the new, empty file `path`, with `mode` less the umask, open for reading and writing.

    Raises FileExistsError if the name is taken in any way, also by a symbolic link: nothing is ever written through
    a name that somebody else prepared.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, mode)


def open_regular(path: Path) -> int:
    """A descriptor of the existing regular file `path`, open for reading; OSError for a link, a pipe, a device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor


def sync_folder(path: Path) -> None:
    """Makes the names in folder `path` durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def published(path: Path, *, overwrite: bool = False, mode: int = PRIVATE_FILE) -> Iterator[BinaryIO]:
    """A new file to write that becomes `path`, whole and durable, when the block ends without an exception.

    It is written beside `path` under a temporary name, fsync'd, renamed, and the folder fsync'd. After an exception
    the temporary file is removed and whatever was at `path` is untouched. A failed fsync is final: it raises, and it
    is not tried again on the same file. Unless `overwrite`, raises FileExistsError if `path` exists.
    """
    if not overwrite and os.path.lexists(path):
        raise FileExistsError(f"{path} already exists")
    temporary = temporary_beside(path)
    descriptor = create_file(temporary, mode)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        publish(temporary, path, overwrite=overwrite)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def temporary_beside(path: Path) -> Path:
    """An unused hidden name in the folder of `path`."""
    return path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.tmp")


def remove_unfinished(folder: Path) -> None:
    """Removes what a killed writer left under temporary names in `folder`, as far as the disk lets it.

    Only for the one who may write there.
    """
    with suppress(OSError):
        for path in folder.glob(".*.tmp"):
            path.unlink(missing_ok=True)


def publish(temporary: Path, path: Path, *, overwrite: bool = False) -> None:
    """Gives the finished, fsync'd file `temporary` its name `path`, durably.

    Unless `overwrite`, a file that appears at `path` in the meantime is left alone (FileExistsError); file systems
    without hard links fall back to a check and a rename.
    """
    if overwrite:
        temporary.replace(path)
    else:
        try:
            os.link(temporary, path, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:
            if os.path.lexists(path):
                raise FileExistsError(f"{path} already exists") from None
            temporary.rename(path)
        else:
            temporary.unlink()
    sync_folder(path.parent)


def write_all(descriptor: int, data: memoryview) -> None:
    """Writes all of `data`, however short the single writes are."""
    while data:
        data = data[os.write(descriptor, data) :]
