"""Writing a session's database: events, criteria, checkpoint records and retained cases in one SQLite file.

The rollback journal (not WAL, for home folders on NFS) with `synchronous=EXTRA`: in DELETE mode FULL leaves the removal
of the journal unsynced, and a power loss could then take back a commit that had been acknowledged.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time as clock
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import amptui
from amptui.session.durable import create_file, open_regular, remove_unfinished
from amptui.session.errors import StoreError
from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock
from amptui.session.manifest import CheckpointRecord
from amptui.session.store_reader import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    CriteriaRevision,
    RetainedRecord,
    StoredEvent,
    StoreReader,
    check,
    closed_on_error,
    connect,
    digest_of,
    explained,
    is_empty,
    row_crc,
    shown,
)
from amptui.text import safe_text, text_of

#: The name under which `meta` keeps the command that opened the project last: a session can be opened again.
OPENED_WITH = "open_project"

_BATCH_S = 0.25

_SCHEMA = f"""
CREATE TABLE meta(name TEXT NOT NULL, value TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE events(seq INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
                    crc INTEGER NOT NULL);
CREATE TABLE criteria(revision INTEGER PRIMARY KEY, digest TEXT NOT NULL, body TEXT NOT NULL, reason TEXT NOT NULL,
                      time REAL NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE checkpoints(name TEXT NOT NULL, path TEXT NOT NULL, sha256 TEXT NOT NULL, bytes INTEGER NOT NULL,
                         entries TEXT NOT NULL, time REAL NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE retained(id TEXT NOT NULL, path TEXT NOT NULL, body TEXT NOT NULL, time REAL NOT NULL,
                      crc INTEGER NOT NULL);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""


class Store(StoreReader):
    """Writes a session's database; one per session, in the process that holds its lock.

    State changes commit at once; telemetry is committed by a thread of its own a quarter of a second later, so that
    the training loop never waits for the disk. What fails to be written (disk full, I/O error) fails for good: the
    transaction is rolled back, everything durable stays readable, and every later write raises the same StoreError.
    A forked child cannot write: its copy is dead, and no fork happens inside a transaction.
    """

    def __init__(self, folder: SessionFolder, connection: sqlite3.Connection) -> None:
        super().__init__(folder, connection)
        self._owner = os.getpid()
        self._failure: StoreError | None = None
        self._waiting: list[StoredEvent] = []
        self._queue = threading.Condition()
        self._closing = False
        self._batches: threading.Thread | None = None
        self._last_seq = self.last_seq
        self._recorded_seq = self._last_seq
        self._chain = self._chain_at(self._last_seq)
        _idle_at_fork(self)

    @classmethod
    def open(cls, folder: SessionFolder, lock: SessionLock) -> Store:
        """The database of `folder` for its one writer, made if it is not there.

        Raises StoreDamaged, or StoreError if it is a newer amptui's, foreign, or cannot be written.
        """
        if not lock.held or lock.folder != folder:
            raise StoreError(f"session {safe_text(folder.session_id)} is not locked by this process")
        fresh = not os.path.lexists(folder.database)
        try:
            if fresh:
                os.close(create_file(folder.database))
            else:
                os.close(open_regular(folder.database))
        except OSError as error:
            raise StoreError(f"{shown(folder)} cannot be opened: {error.strerror or error}") from error
        connection = connect(folder, "rw")
        with closed_on_error(connection), explained(folder):
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA synchronous = EXTRA")
            if is_empty(connection):
                # A kill between the file's creation and this commit leaves an empty file: it is simply made again.
                connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            check(folder, connection)
            store = cls(folder, connection)
            remove_unfinished(folder.checkpoints)
            if "amptui" not in store.meta():
                store.put_meta("schema", str(SCHEMA_VERSION))
                store.put_meta("amptui", amptui.__version__)
        return store

    @staticmethod
    def read(folder: SessionFolder) -> StoreReader:
        """A read-only view for anyone. Finishes, as SQLite does, what a killed writer left half done.

        Raises StoreError if there is no database, it is a newer amptui's or foreign; StoreDamaged if it is damaged.
        """
        try:
            os.close(open_regular(folder.database))
        except OSError as error:
            raise StoreError(f"{shown(folder)} cannot be opened: {error.strerror or error}") from error
        writable = os.access(folder.database, os.W_OK) and os.access(folder.path, os.W_OK)
        connection = connect(folder, "rw" if writable else "ro")
        with closed_on_error(connection), explained(folder):
            check(folder, connection)
            connection.execute("PRAGMA query_only = ON")
        return StoreReader(folder, connection)

    def record(self, seq: int, time: float, kind: str, body: str, *, durable: bool) -> None:
        """Records one event; when this returns with `durable`, it and all events before it survive a power loss.

        `seq` grows by every event, `time` is Unix time, `body` one JSON line. Raises StoreError.
        """
        event = StoredEvent(seq, time, kind, body)
        self._require_writable()
        with self._queue:
            if seq <= self._recorded_seq:
                raise StoreError(f"event {seq} comes after event {self._recorded_seq}: sequence numbers must grow")
            self._recorded_seq = seq
            self._waiting.append(event)
            if not durable and len(self._waiting) == 1:
                self._start_batches()
        if durable:
            self.flush()

    def flush(self) -> None:
        """Commits all events recorded so far. Raises StoreError."""
        with self._connected:
            self._require_writable()
            with self._queue:
                events, self._waiting = self._waiting, []
            if events:
                with self._transaction():
                    chain = self._chain
                    rows = []
                    for event in events:
                        chain = row_crc(event.seq, event.time, event.kind, event.body, start=chain)
                        rows.append((event.seq, event.time, event.kind, event.body, chain))
                    self._connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", rows)
                    # Before the commit: whatever raises in here ends the store, so nothing is ever chained to these.
                    self._chain, self._last_seq = chain, events[-1].seq

    def put_meta(self, name: str, value: str) -> None:
        """Writes one durable fact about the session as a whole (settings, versions, git commit …)."""
        self._insert("meta", name, value)

    def lock_criteria(self, body: str, *, reason: str = "", time: float | None = None) -> CriteriaRevision:
        """Locks `body` (JSON) as the next revision, durably. A revision after the first needs a written reason."""
        with self._connected:
            revision = len(self.criteria()) + 1
            if revision > 1 and not reason.strip():
                raise StoreError("criteria are locked: changing them needs a written reason")
            locked = CriteriaRevision(revision, digest_of(body), body, reason, _now(time))
            self._insert("criteria", locked.revision, locked.digest, locked.body, locked.reason, locked.time)
        return locked

    def add_checkpoint(self, record: CheckpointRecord) -> None:
        """From here on the checkpoint exists. Its name must be new: no checkpoint ever replaces another one."""
        with self._connected:
            if self.checkpoint(record.name) is not None:
                raise StoreError(f"there is already a checkpoint '{safe_text(record.name)}' in this session")
            self._insert(
                "checkpoints", record.name, record.path, record.sha256, record.bytes, record.as_json(), record.time
            )

    def add_retained(self, case: RetainedRecord) -> None:
        """From here on the retained case exists."""
        self._insert("retained", case.id, case.path, case.body, case.time)

    def close(self) -> None:
        """Commits what is waiting and closes; a second call does nothing."""
        if self._owner != os.getpid():
            return
        with self._queue:
            self._closing, was_closed = True, self._closing
            self._queue.notify_all()
        if was_closed:
            return
        if self._batches is not None:
            self._batches.join()
        try:
            if self._failure is None:
                self.flush()
        finally:
            super().close()

    def __enter__(self) -> Store:
        return self

    def _insert(self, table: str, *values: object) -> None:
        marks = ", ".join("?" * (len(values) + 1))
        with self._connected:
            self._require_writable()
            with self._transaction():
                self._connection.execute(f"INSERT INTO {table} VALUES ({marks})", (*values, row_crc(*values)))  # noqa: S608

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with explained(self.folder):
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
        except BaseException as error:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            self._failure = error if isinstance(error, StoreError) else _cut_off(self.folder, error)
            raise

    def _require_writable(self) -> None:
        if self._owner != os.getpid():
            raise StoreError("a forked child cannot write the session of its parent")
        if self._failure is not None:
            raise self._failure

    def _start_batches(self) -> None:
        if self._batches is None:
            self._batches = threading.Thread(target=self._commit_batches, name="amptui-store", daemon=True)
            self._batches.start()
        self._queue.notify_all()

    def _commit_batches(self) -> None:
        while True:
            with self._queue:
                self._queue.wait_for(lambda: self._waiting or self._closing)
                if self._closing:
                    return
                self._queue.wait_for(lambda: self._closing, timeout=_BATCH_S)
            try:
                self.flush()
            except StoreError:
                return  # kept in _failure: the next write of the engine raises it


def _idle_at_fork(store: Store) -> None:
    """Lets no fork happen inside a transaction: the child's copy of the connection must have nothing to roll back."""
    this = weakref.ref(store)

    def before() -> None:
        if (store := this()) is not None:
            store._connected.acquire()

    def after() -> None:
        if (store := this()) is not None:
            store._connected.release()

    os.register_at_fork(before=before, after_in_parent=after, after_in_child=after)


def _cut_off(folder: SessionFolder, error: BaseException) -> StoreError:
    """What is no error of the database's came out of a signal handler of the project's code; it is the cause."""
    said = safe_text(f"{type(error).__name__}: {text_of(error)}")
    cut_off = StoreError(f"{shown(folder)} was cut off while it was written, by {said}")
    cut_off.__cause__ = error
    return cut_off


def _now(time: float | None) -> float:
    return clock.time() if time is None else time
