"""What the store has acknowledged is there after any death, and damage is one clear error, never a wrong event."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amptui.session.errors import StoreDamaged, StoreError
from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock
from amptui.session.manifest import CheckpointEntry, CheckpointRecord
from amptui.session.store import Store
from amptui.session.store_reader import RetainedRecord, StoredEvent, StoreReader

ROOT = Path(__file__).parents[2]
RECORD = CheckpointRecord(
    "fp32", "checkpoints/fp32-1.pt", 7, "aa", (CheckpointEntry("archive/data/0", 2, 4, "bb", ("model/w",)),), 1.5
)


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    return SessionFolder.create(tmp_path / "session")


@pytest.fixture
def lock(folder: SessionFolder) -> Iterator[SessionLock]:
    with SessionLock.acquire(folder) as held:
        yield held


@pytest.fixture
def store(folder: SessionFolder, lock: SessionLock) -> Iterator[Store]:
    with Store.open(folder, lock) as opened:
        yield opened


def event(seq: int, **more: Any) -> StoredEvent:
    return StoredEvent(seq, seq / 7, f"kind-{seq % 3}", json.dumps({"value": "nan", "text": "é\n", **more}))


def put(store: Store, events: list[StoredEvent], *, durable: bool = False) -> None:
    for one in events:
        store.record(one.seq, one.time, one.kind, one.body, durable=durable)


def seen_by_others(folder: SessionFolder) -> list[StoredEvent]:
    with Store.read(folder) as reader:
        return list(reader.events())


# --- Recording


def test_events_come_back_in_order_and_as_they_were(folder: SessionFolder, lock: SessionLock) -> None:
    events = [event(seq, unknown="kept") for seq in range(5000)]
    with Store.open(folder, lock) as store:
        put(store, events)
    with Store.read(folder) as reader:
        assert list(reader.events()) == events
        assert list(reader.events(after=4990)) == events[4991:]
        assert reader.last_seq == 4999
    with Store.open(folder, lock) as store:  # the next writer goes on where the last one ended
        put(store, [event(5000)])
        assert store.last_seq == 4999
        store.flush()
        assert store.last_seq == 5000
        assert list(store.events(after=4998)) == [events[4999], event(5000)]


def test_a_durable_event_is_there_at_once_with_all_before_it(folder: SessionFolder, store: Store) -> None:
    put(store, [event(0), event(1)])
    assert seen_by_others(folder) == []
    put(store, [event(2)], durable=True)
    assert seen_by_others(folder) == [event(0), event(1), event(2)]


def test_telemetry_is_there_a_quarter_of_a_second_later_by_itself(folder: SessionFolder, store: Store) -> None:
    for first in (0, 2):
        put(store, [event(first), event(first + 1)])
        deadline = time.monotonic() + 5
        while len(seen_by_others(folder)) < first + 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_recording_telemetry_does_not_wait_for_the_disk(folder: SessionFolder, store: Store) -> None:
    with Store.read(folder) as reader:
        reader._connection.execute("BEGIN")
        reader._connection.execute("SELECT count(*) FROM events").fetchall()  # nobody can commit now
        start = time.monotonic()
        put(store, [event(seq) for seq in range(2000)])
        time.sleep(0.6)
        put(store, [event(seq) for seq in range(2000, 4000)])
        assert time.monotonic() - start < 3
        reader._connection.execute("COMMIT")
    store.flush()
    assert len(seen_by_others(folder)) == 4000


def test_sequence_numbers_must_grow(store: Store) -> None:
    put(store, [event(5)])
    with pytest.raises(StoreError, match="event 5 comes after event 5"):
        put(store, [event(5)])
    put(store, [event(9)])  # a gap is no harm


def test_readers_and_the_writer_do_not_disturb_each_other(folder: SessionFolder, store: Store) -> None:
    put(store, [event(0)], durable=True)
    problems: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                events = seen_by_others(folder)
                assert events == [event(seq) for seq in range(len(events))]
        except BaseException as error:
            problems.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for seq in range(1, 40):
        put(store, [event(seq)], durable=seq % 2 == 0)
    done.set()
    for reader in readers:
        reader.join()
    assert problems == []


# --- Criteria, checkpoints, retained cases, facts


def test_criteria_are_locked_and_changed_only_with_a_reason(folder: SessionFolder, store: Store) -> None:
    first = store.lock_criteria('{"atol": 1}', time=1.0)
    assert (first.revision, first.reason, len(first.digest)) == (1, "", 64)
    with pytest.raises(StoreError, match="needs a written reason"):
        store.lock_criteria('{"atol": 2}', reason="  ")
    second = store.lock_criteria('{"atol": 2}', reason="the noise was measured on another device", time=2.0)
    with Store.read(folder) as reader:
        assert reader.criteria() == (first, second)


def test_a_checkpoint_exists_once_it_is_recorded_and_is_never_replaced(folder: SessionFolder, store: Store) -> None:
    assert store.checkpoint("fp32") is None
    store.add_checkpoint(RECORD)
    with Store.read(folder) as reader:
        assert reader.checkpoints() == (RECORD,)
        assert reader.checkpoint("fp32") == RECORD
    with pytest.raises(StoreError, match="already a checkpoint 'fp32'"):
        store.add_checkpoint(RECORD)


def test_retained_cases_and_facts_come_back(folder: SessionFolder, store: Store) -> None:
    case = RetainedRecord("step-41", "retained/step-41", "{}", 3.0)
    store.add_retained(case)
    store.put_meta("commit", "abc")
    store.put_meta("commit", "def")
    with Store.read(folder) as reader:
        assert reader.retained() == (case,)
        assert reader.meta()["commit"] == "def"
        assert reader.meta()["amptui"]


# --- Who may write


def test_only_the_holder_of_the_lock_opens_the_store(folder: SessionFolder, lock: SessionLock, tmp_path: Path) -> None:
    other = SessionFolder.create(tmp_path / "other")
    with pytest.raises(StoreError, match="is not locked by this process"):
        Store.open(other, lock)
    lock.release()
    with pytest.raises(StoreError, match="is not locked by this process"):
        Store.open(folder, lock)


def test_readers_cannot_write(folder: SessionFolder, store: Store) -> None:
    with Store.read(folder) as reader, pytest.raises(sqlite3.OperationalError):
        reader._connection.execute("DELETE FROM meta")


def test_a_forked_child_cannot_write_and_does_no_harm(folder: SessionFolder, store: Store) -> None:
    put(store, [event(0)])
    child = os.fork()
    if child == 0:
        try:
            put(store, [event(1)], durable=True)
        except StoreError as error:
            store.close()
            os._exit(0 if "forked child" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    put(store, [event(1)], durable=True)
    assert seen_by_others(folder) == [event(0), event(1)]


def test_a_fork_in_the_middle_of_commits_does_no_harm(folder: SessionFolder, store: Store) -> None:
    """A child that dies with a copy of the connection must not roll back what its parent commits."""
    children: list[int] = []

    def fork() -> None:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                store._connection.close()
                os._exit(0)
            children.append(child)
            time.sleep(0.005)

    thread = threading.Thread(target=fork)
    thread.start()
    put(store, [event(seq) for seq in range(60)], durable=True)
    thread.join()
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    assert seen_by_others(folder) == [event(seq) for seq in range(60)]


def test_files_are_private_and_links_are_not_followed(folder: SessionFolder, lock: SessionLock, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text("untouched")
    folder.database.symlink_to(canary)
    for open_store in (lambda: Store.open(folder, lock), lambda: Store.read(folder)):
        with pytest.raises(StoreError, match="cannot be opened"):
            open_store()
    assert canary.read_text() == "untouched"
    folder.database.unlink()
    Store.open(folder, lock).close()
    assert folder.database.stat().st_mode & 0o777 == 0o600


def test_what_a_killed_checkpoint_writer_left_is_swept(folder: SessionFolder, lock: SessionLock) -> None:
    (folder.checkpoints / ".fp32-1.pt.00000000.tmp").write_bytes(b"half")
    (folder.checkpoints / "fp32-2.pt").write_bytes(b"whole, but never recorded")
    Store.open(folder, lock).close()
    assert [path.name for path in folder.checkpoints.iterdir()] == ["fp32-2.pt"]


# --- What is refused


def test_no_store_and_an_empty_one_are_told(folder: SessionFolder, lock: SessionLock) -> None:
    with pytest.raises(StoreError, match="cannot be opened: No such file"):
        Store.read(folder)
    folder.database.write_bytes(b"")  # killed between the making of the file and the first commit
    with pytest.raises(StoreError, match="is empty: the session ended before anything was recorded"):
        Store.read(folder)
    with Store.open(folder, lock) as store:
        put(store, [event(0)], durable=True)
    assert seen_by_others(folder) == [event(0)]


def refused(folder: SessionFolder, lock: SessionLock, kind: type[StoreError], match: str) -> None:
    content = folder.database.read_bytes()
    for open_store in (lambda: Store.read(folder), lambda: Store.open(folder, lock)):
        with pytest.raises(kind, match=match):
            open_store()
    assert folder.database.read_bytes() == content


def test_a_newer_a_foreign_and_a_damaged_database_are_refused_untouched(
    folder: SessionFolder, lock: SessionLock
) -> None:
    Store.open(folder, lock).close()
    with sqlite3.connect(folder.database) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    refused(folder, lock, StoreError, r"newer amptui \(format 2\); update amptui to read it")
    folder.database.unlink()
    with sqlite3.connect(folder.database) as connection:
        connection.execute("CREATE TABLE bookmarks(url TEXT)")
    connection.close()
    refused(folder, lock, StoreError, "was not written by amptui")
    folder.database.write_bytes(random.Random(0).randbytes(9000))
    refused(folder, lock, StoreDamaged, "is damaged: file is not a database.*amptui restore /.*/session --verify")


def test_damage_anywhere_is_an_error_or_harmless_never_another_content(
    folder: SessionFolder, lock: SessionLock, tmp_path: Path
) -> None:
    with Store.open(folder, lock) as store:
        put(store, [event(seq, text="x" * 50) for seq in range(200)])
        store.lock_criteria('{"atol": 1}', time=1.0)
        store.add_checkpoint(RECORD)
        store.add_retained(RetainedRecord("step-41", "retained/step-41", "{}", 3.0))
    intact = folder.database.read_bytes()

    def content() -> Any:
        with Store.read(folder) as reader:
            return list(reader.events()), reader.criteria(), reader.checkpoints(), reader.retained(), reader.meta()

    expected, choice, damaged = content(), random.Random(3), list[str]()
    for round_ in range(400):
        broken = bytearray(intact)
        place = choice.randrange(len(broken))
        if round_ % 4 == 0:
            broken[place] ^= 1 << choice.randrange(8)
        elif round_ % 4 == 1:
            broken[place : place + 64] = choice.randbytes(len(broken[place : place + 64]))
        elif round_ % 4 == 2:
            del broken[place:]
        else:
            page = place // 4096 * 4096
            broken[page : page + 4096] = bytes(4096)
        folder.database.write_bytes(broken)
        try:
            assert content() == expected
        except StoreError as error:
            damaged.append(str(error))
    assert len(damaged) > 200
    assert all(str(folder.database) in message and "\n" not in message for message in damaged)


def test_a_lost_row_is_damage(folder: SessionFolder, lock: SessionLock) -> None:
    with Store.open(folder, lock) as store:
        put(store, [event(seq) for seq in range(5)])
    connection = sqlite3.connect(folder.database)
    connection.execute("DELETE FROM events WHERE seq = 2")
    connection.commit()
    connection.close()
    with Store.read(folder) as reader, pytest.raises(StoreDamaged, match="event 3 or the one before it"):
        list(reader.events())


def test_changed_criteria_are_damage(folder: SessionFolder, lock: SessionLock) -> None:
    with Store.open(folder, lock) as store:
        store.lock_criteria('{"atol": 1}')
    connection = sqlite3.connect(folder.database)
    connection.execute("""UPDATE criteria SET body = '{"atol": 9}'""")
    connection.commit()
    connection.close()
    with Store.read(folder) as reader, pytest.raises(StoreDamaged, match="table criteria is not as it was written"):
        reader.criteria()


# --- Failing disks


def test_a_full_disk_fails_for_good_and_keeps_what_was_there(folder: SessionFolder, lock: SessionLock) -> None:
    store = Store.open(folder, lock)
    put(store, [event(0)], durable=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (folder.database.stat().st_size, hard))
    try:
        with pytest.raises(StoreError, match=r"cannot be used: .*what was recorded before is intact"):
            put(store, [event(seq, text="x" * 4000) for seq in range(1, 20)], durable=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(StoreError, match="cannot be used"):
        put(store, [event(50)])
    store.close()
    events = seen_by_others(folder)
    assert events[0] == event(0)
    with Store.open(folder, lock) as again:
        put(again, [event(60)], durable=True)
    assert seen_by_others(folder) == [*events, event(60)]


def test_a_failure_of_the_background_commit_reaches_the_next_record(
    folder: SessionFolder, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (folder.database.stat().st_size, hard))
    try:
        put(store, [event(0, text="x" * 20_000)])
        deadline = time.monotonic() + 5
        while store._failure is None and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(StoreError, match="cannot be used"):
        put(store, [event(1)])


@pytest.mark.parametrize("kind", [TimeoutError, KeyboardInterrupt, SystemExit])
def test_what_a_signal_handler_raises_into_a_transaction_ends_the_store_and_is_the_cause(
    folder: SessionFolder, store: Store, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    put(store, [event(0)], durable=True)
    raised = kind("too slow")

    def crc(*_: object, **__: object) -> int:
        raise raised

    with monkeypatch.context() as patched:
        patched.setattr("amptui.session.store.row_crc", crc)
        with pytest.raises(kind):
            put(store, [event(1)], durable=True)
    with pytest.raises(StoreError, match="was cut off while it was written") as failed:
        put(store, [event(2)], durable=True)
    assert failed.value.__cause__ is raised
    assert seen_by_others(folder) == [event(0)]


def test_a_folder_that_cannot_be_written_can_still_be_read(
    folder: SessionFolder, lock: SessionLock, monkeypatch: Any
) -> None:
    with Store.open(folder, lock) as store:
        put(store, [event(0)])
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert seen_by_others(folder) == [event(0)]


# --- Killed at any moment


def start_writer(folder: SessionFolder) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.session.writing_events", str(folder.path)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    "round_", [pytest.param(index, marks=[pytest.mark.long] if index >= 10 else []) for index in range(60)]
)
def test_whatever_was_acknowledged_is_there_after_a_kill(round_: int, folder: SessionFolder) -> None:
    process = start_writer(folder)
    assert process.stdout is not None
    time.sleep(random.Random(round_).uniform(0, 0.15))
    process.send_signal(signal.SIGKILL)
    acknowledged = [int(line) for line in process.stdout.read().split()]
    process.wait()
    with Store.read(folder) as reader:  # before anyone has repaired anything
        events = [one.seq for one in reader.events()]
        checkpoints = [record.name for record in reader.checkpoints()]
    assert events == list(range(len(events)))
    assert not acknowledged or events[-1] >= acknowledged[-1]
    assert len(checkpoints) >= sum(seq % 10 == 9 for seq in acknowledged)
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        assert isinstance(store, StoreReader)
        store.record(store.last_seq + 1, 0.0, "reopened", "{}", durable=True)
        assert [one.seq for one in store.events()] == list(range(len(events) + 1))
