"""Reading a session's database, by anyone and also while a writer lives, and telling damage from content.

SQLite has no checksums. Each event's CRC-32 continues that of the event before, so that an altered or a lost row shows;
a row of the other tables has its own.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from amptui.session.errors import CheckpointDamaged, StoreDamaged, StoreError
from amptui.session.folder import SessionFolder
from amptui.session.manifest import CheckpointRecord
from amptui.text import safe_text, shell_word

SCHEMA_VERSION = 1
APPLICATION_ID = 0x616D7074  # "ampt"

_BUSY_S = 15.0
_PAGE = 2000  # rows per read, so that a reader holds the file for milliseconds only


@dataclass(frozen=True)
class StoredEvent:
    """One event as it was recorded: `body` is its JSON line, `time` Unix time; unknown kinds are kept as they are."""

    seq: int
    time: float
    kind: str
    body: str


@dataclass(frozen=True)
class CriteriaRevision:
    """One locked set of criteria; `digest` is the SHA-256 of `body`, `reason` is empty for revision 1 only."""

    revision: int
    digest: str
    body: str
    reason: str
    time: float


@dataclass(frozen=True)
class RetainedRecord:
    """One retained case: `path` relative to the session's folder, `body` its description as JSON."""

    id: str
    path: str
    body: str
    time: float


class StoreReader:
    """A session's database for reading; made by `Store.read`."""

    def __init__(self, folder: SessionFolder, connection: sqlite3.Connection) -> None:
        self.folder = folder
        self._connection = connection
        self._connected = threading.RLock()

    def events(self, after: int = -1) -> Iterator[StoredEvent]:
        """Events with a sequence number above `after`, in order. StoreDamaged where one is not as it was written."""
        chain = self._chain_at(after)
        while True:
            rows = self._rows(
                "SELECT seq, time, kind, body, crc FROM events WHERE seq > ? ORDER BY seq LIMIT ?", after, _PAGE
            )
            for seq, moment, kind, body, crc in rows:
                chain = row_crc(seq, moment, kind, body, start=chain)
                if chain != crc:
                    raise self._damaged(f"event {seq} or the one before it is not as it was written")
                yield StoredEvent(seq, moment, kind, body)
                after = seq
            if len(rows) < _PAGE:
                return

    def bodies(self, *kinds: str) -> Iterator[str]:
        """The events of `kinds` alone, in order, without the walk over all the others that `events` checks."""
        marks = ", ".join("?" * len(kinds))
        rows = self._rows(f"SELECT body FROM events WHERE kind IN ({marks}) ORDER BY seq", *kinds)  # noqa: S608
        for (body,) in rows:
            yield body

    @property
    def last_seq(self) -> int:
        """The highest sequence number that is durable; -1 if there is no event."""
        ((last,),) = self._rows("SELECT max(seq) FROM events")
        return -1 if last is None else int(last)

    def meta(self) -> dict[str, str]:
        """What is written down about the session as a whole, by name; the last value written counts."""
        return dict(self._checked("meta", "name, value"))

    def criteria(self) -> tuple[CriteriaRevision, ...]:
        """Every revision, the first one first."""
        rows = [CriteriaRevision(*row) for row in self._checked("criteria", "revision, digest, body, reason, time")]
        for row in rows:
            if digest_of(row.body) != row.digest:
                raise self._damaged(f"criteria revision {row.revision} does not match its digest")
        return tuple(rows)

    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """Every checkpoint that exists, the oldest first."""
        try:
            records = [
                (CheckpointRecord.from_json(entries), sha256)
                for _name, _path, sha256, _bytes, entries, _time in self._checked(
                    "checkpoints", "name, path, sha256, bytes, entries, time"
                )
            ]
        except CheckpointDamaged as error:
            raise self._damaged(str(error)) from error
        for record, sha256 in records:
            if record.sha256 != sha256:
                raise self._damaged(f"the record of checkpoint {safe_text(record.name)} does not match its digest")
        return tuple(record for record, _ in records)

    def checkpoint(self, name: str) -> CheckpointRecord | None:
        """The checkpoint `name`, None if there is none."""
        return next((record for record in self.checkpoints() if record.name == name), None)

    def retained(self) -> tuple[RetainedRecord, ...]:
        """Every retained case, the oldest first."""
        return tuple(RetainedRecord(*row) for row in self._checked("retained", "id, path, body, time"))

    def close(self) -> None:
        with self._connected:
            self._connection.close()

    def __enter__(self) -> StoreReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _checked(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        rows = self._rows(f"SELECT {columns}, crc FROM {table} ORDER BY rowid")  # noqa: S608 - names of our own tables
        for *values, crc in rows:
            if row_crc(*values) != crc:
                raise self._damaged(f"a row of table {table} is not as it was written")
        return [tuple(values) for *values, _crc in rows]

    def _chain_at(self, seq: int) -> int:
        rows = self._rows("SELECT crc FROM events WHERE seq <= ? ORDER BY seq DESC LIMIT 1", seq)
        return int(rows[0][0]) if rows else 0

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._connected, explained(self.folder):
            return self._connection.execute(statement, values).fetchall()

    def _damaged(self, what: str) -> StoreDamaged:
        return damaged(self.folder, what)


def row_crc(*values: object, start: int = 0) -> int:
    """CRC-32 over the values of one row, continued from `start`."""
    return zlib.crc32("\0".join(map(repr, values)).encode("utf-8", "surrogatepass"), start)


def digest_of(body: str) -> str:
    """SHA-256 of a text, in hex: what locks criteria."""
    return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


def damaged(folder: SessionFolder, what: str) -> StoreDamaged:
    """One sentence for every kind of damage, with the way out."""
    return StoreDamaged(
        f"{shown(folder)} is damaged: {what}. Nothing was changed; checkpoints can still be checked and saved: "
        f"amptui restore {shell_word(str(folder.path))} --verify"
    )


def connect(folder: SessionFolder, mode: str) -> sqlite3.Connection:
    with explained(folder):
        return sqlite3.connect(
            f"{folder.database.as_uri()}?mode={mode}",
            uri=True,
            timeout=_BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )


def is_empty(connection: sqlite3.Connection) -> bool:
    ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
    return bool(pages == 0)


def check(folder: SessionFolder, connection: sqlite3.Connection) -> None:
    """Refuses what is empty, foreign, newer or damaged."""
    if is_empty(connection):
        raise StoreError(f"{shown(folder)} is empty: the session ended before anything was recorded")
    ((application,),) = connection.execute("PRAGMA application_id").fetchall()
    if application != APPLICATION_ID:
        raise StoreError(f"{shown(folder)} was not written by amptui")
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    if version > SCHEMA_VERSION:
        raise StoreError(f"{shown(folder)} was written by a newer amptui (format {version}); update amptui to read it")
    if version < 1:
        raise damaged(folder, "its format number is missing")
    (first, *_rest) = connection.execute("PRAGMA quick_check(1)").fetchall()
    if first != ("ok",):
        raise damaged(folder, safe_text(first[0]))


@contextmanager
def closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


@contextmanager
def explained(folder: SessionFolder) -> Iterator[None]:
    """Turns SQLite's errors into one sentence that says what it means for the session."""
    try:
        yield
    except sqlite3.Error as error:
        said = safe_text(error, 160)
        if isinstance(error, sqlite3.OperationalError) and not any(word in said for word in ("malformed", "decode")):
            raise StoreError(f"{shown(folder)} cannot be used: {said}{_hint(said)}") from error
        raise damaged(folder, said) from error
    except (UnicodeDecodeError, OverflowError) as error:
        raise damaged(folder, safe_text(error, 160)) from error


def _hint(said: str) -> str:
    if "locked" in said or "locking" in said:
        return ". Another program holds it, or the file system has no working locks: use a folder on a local disk"
    if "full" in said:
        return ". The disk is full: free some space; what was recorded before is intact"
    if "I/O" in said or "readonly" in said or "unable to open" in said:
        return ". Check the disk and the folder's permissions; what was recorded before is intact"
    return ""


def shown(folder: SessionFolder) -> str:
    return safe_text(folder.database, 4096)
