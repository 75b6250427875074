"""`amptui sessions` tells of a session what its report tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from amptui.protocol.codec import encode
from amptui.protocol.events import Event
from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock
from amptui.session.paths import HOME_VARIABLE, create_session
from amptui.session.store import Store
from amptui.ui.listing import session_lines
from tests.report import measured
from tests.report.stages import baseline, locked, opened


def recorded(folder: SessionFolder, *events: Event) -> None:
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        for seq, event in enumerate(events):
            store.record(seq, 0.0, type(event).__name__, encode(event), durable=True)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    return tmp_path


def test_a_trial_that_was_begun_after_an_accepted_one_and_cut_short_does_not_take_its_verdict() -> None:
    accepted = measured.trial(1, "bfloat16", "accept", scaled=False)
    cut_short = measured.trial(2, "float16", "inconclusive", scaled=True)
    recorded(create_session("one"), *opened(), *baseline(), *locked(), *accepted, *cut_short)
    [line] = session_lines()
    assert line.split()[-2:] == ["bfloat16", "accept"]


def test_without_a_verdict_the_projects_own_dtype_is_told_and_that_there_is_none() -> None:
    recorded(create_session("one"), *opened())
    [line] = session_lines()
    assert line.split()[-3:] == ["float16", "no", "verdict"]
