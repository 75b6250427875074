"""What earlier engines of a session told counts for this one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from amptui.engine.told_before import trials_before, tried_before
from amptui.protocol.codec import encode
from amptui.protocol.events import Event
from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock
from amptui.session.store import Store
from tests.report import measured


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    folder = SessionFolder.create(tmp_path / "session")
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as opened:
        yield opened


def record(store: Store, *events: Event) -> None:
    for event in events:
        seq = store.last_seq + 1
        store.record(seq, 0.0, type(event).__name__, encode(event), durable=True)


def test_a_trial_is_counted_once_it_began_and_its_policy_is_tried_once_it_was_judged(store: Store) -> None:
    assert (trials_before(store), tried_before(store)) == (0, [])
    record(store, *measured.trial(1, "float16", "accept", scaled=True))
    record(store, *measured.trial(2, "bfloat16", "inconclusive", scaled=False))
    assert trials_before(store) == 2
    assert [policy.dtype for policy in tried_before(store)] == ["float16"]


def test_without_a_store_nothing_was_before() -> None:
    assert (trials_before(None), tried_before(None)) == (0, [])
