"""The layout of one session's folder, private to its owner."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from amptui.session.durable import PRIVATE_FOLDER, create_file, sync_folder
from amptui.session.errors import NotEnoughSpace, SessionError
from amptui.text import safe_text

#: Room that must be left beside two copies of the checkpoint: database, log, retained cases.
SPARE_BYTES = 64 * 2**20

DATABASE_NAME = "session.sqlite"
#: The traceback of an engine that met an error of its own.
ERROR_FILE = "engine-error.txt"


@dataclass(frozen=True)
class SessionFolder:
    """Where each part of a session lies. Folders are 0700, files 0600.

    ==================  ==========================================================================
    `lock`              held by whoever writes (`session.lock`)
    `database`          events, criteria, checkpoint records (`session.store`)
    `checkpoints`       `<name>-<8 hex>.pt` with a manifest `….json` beside each
    `batches`           frozen batches that did not fit into memory
    `retained`          one folder per retained case
    `output_log`        what the project's own code printed
    ==================  ==========================================================================
    """

    path: Path

    @property
    def session_id(self) -> str:
        return self.path.name

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def database(self) -> Path:
        return self.path / DATABASE_NAME

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def batches(self) -> Path:
        return self.path / "batches"

    @property
    def retained(self) -> Path:
        return self.path / "retained"

    @property
    def output_log(self) -> Path:
        return self.path / "output.log"

    @classmethod
    def create(cls, path: Path) -> SessionFolder:
        """Makes the folder `path` and those in it; an existing folder is taken only if it is empty and one's own.

        Raises SessionError if the name is taken by anything else.
        """
        path = _located(path)
        try:
            path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            try:
                path.mkdir(mode=PRIVATE_FOLDER)
            except FileExistsError:
                _take_empty(path)
            folder = cls(path)
            for part in (folder.checkpoints, folder.batches, folder.retained):
                part.mkdir(mode=PRIVATE_FOLDER)
            sync_folder(path)
            sync_folder(path.parent)
        except OSError as error:
            raise SessionError(f"the session folder {_shown(path)} cannot be made: {_reason(error)}") from error
        return folder

    @classmethod
    def open(cls, path: Path) -> SessionFolder:
        """The existing session at `path`; SessionError if it is none or if others may write into it."""
        path = _located(path)
        try:
            status = path.lstat()
        except OSError as error:
            raise SessionError(f"there is no session at {_shown(path)}: {_reason(error)}") from error
        if not stat.S_ISDIR(status.st_mode):
            raise SessionError(f"{_shown(path)} is not a folder: a session is a folder with {DATABASE_NAME} in it")
        _refuse_unsafe(path, status)
        folder = cls(path)
        if not folder.checkpoints.is_dir():
            raise SessionError(f"{_shown(path)} is not an amptui session: it has no folder 'checkpoints'")
        return folder

    def new_file(self, name: str) -> int:
        """A descriptor of the new file `name` in this folder (0600, never through a link)."""
        return create_file(self.path / name)

    def require_space(self, checkpoint_bytes: int) -> None:
        """Raises NotEnoughSpace unless twice `checkpoint_bytes` and 64 MiB are free: no run without a way back."""
        needed = 2 * checkpoint_bytes + SPARE_BYTES
        status = os.statvfs(self.path)
        free = status.f_bavail * status.f_frsize
        if free < needed:
            raise NotEnoughSpace(
                f"{_shown(self.path)} has {mebibytes(free)} free, but {mebibytes(needed)} are needed to keep the FP32 "
                "checkpoint safe (twice its size and 64 MiB). Free some space, or set AMPTUI_HOME to a larger disk."
            )


def mebibytes(count: int) -> str:
    """`count` bytes in words, rounded up to whole MiB."""
    return f"{-(-count // 2**20):,} MiB"


def _located(path: Path) -> Path:
    try:
        return path.expanduser().resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a loop of links, a NUL in the name, no such user
        raise SessionError(f"{_shown(path)} is no path of a session: {safe_text(error)}") from error


def _take_empty(path: Path) -> None:
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise SessionError(f"{_shown(path)} exists and is not a folder; name another one with --session")
    if any(path.iterdir()):
        raise SessionError(f"{_shown(path)} exists and is not empty; name a new folder with --session")
    _refuse_unsafe(path, status)
    path.chmod(PRIVATE_FOLDER)


def _refuse_unsafe(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise SessionError(f"{_shown(path)} belongs to another user (uid {status.st_uid}); amptui does not trust it")
    if status.st_mode & 0o022:
        raise SessionError(f"{_shown(path)} can be written by others; make it private first: chmod 700 {_shown(path)}")


def _shown(path: Path) -> str:
    return safe_text(path, 4096)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
