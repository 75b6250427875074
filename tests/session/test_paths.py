"""Sessions are named by time and project, and found by id, unique beginning, path or `last`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from amptui.session import paths
from amptui.session.engine_file import EngineFile
from amptui.session.errors import SessionError, SessionNotFound
from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock, process_start
from amptui.session.store import Store


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMPTUI_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def session(home: Path, name: str) -> str:
    return SessionFolder.create(home / name).session_id


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("digits", "digits"),
        ("My Net/v2", "my-net-v2"),
        ("\x1b[2J évil", "2j-vil"),
        ("…", "project"),
        ("x" * 300, "x" * 32),
        ("a" * 30 + "/train:small", "a" * 20 + "-train-small"),
    ],
)
def test_an_id_holds_utc_time_a_safe_slug_and_four_hex_digits(name: str, slug: str) -> None:
    made = paths.new_session_id(name, now=1_796_055_895)
    assert re.fullmatch(rf"20261130-162455-{re.escape(slug)}-[0-9a-f]{{4}}", made)


def test_the_home_is_amptui_home_else_the_platforms_state_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paths.sessions_home() == home
    monkeypatch.delenv("AMPTUI_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere/state")
    assert paths.sessions_home() == Path("/somewhere/state/amptui")


def test_a_created_session_is_found_by_every_name_it_has(home: Path) -> None:
    folder = paths.create_session("digits")
    assert folder.path.parent == home
    assert paths.name_of(folder) == folder.session_id
    for name in (folder.session_id, folder.session_id[:-3], str(folder.path), "last"):
        assert paths.find_session(name) == folder


def test_without_a_home_a_session_is_called_by_its_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = paths.create_session("digits")
    monkeypatch.setenv("AMPTUI_HOME", " ")
    assert paths.name_of(folder) == str(folder.path)


def test_a_session_elsewhere_is_the_last_one_too(home: Path, tmp_path: Path) -> None:
    paths.create_session("digits")
    elsewhere = paths.create_session("digits", tmp_path / "my run")
    assert paths.find_session("last") == elsewhere
    assert paths.find_session(paths.name_of(elsewhere)) == elsewhere
    assert paths.list_sessions() == (*paths.list_sessions(),)
    assert len(paths.list_sessions()) == 1


def recorded(folder: SessionFolder, *kinds: str, stages: Sequence[str] = ()) -> SessionFolder:
    """Events of `kinds`, and a started stage for each of `stages`, in the session's database."""
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        bodies = [(kind, "{}") for kind in kinds] + [("StageStarted", f'{{"stage": "{stage}"}}') for stage in stages]
        for number, (kind, body) in enumerate(bodies):
            store.record(number, 1.0, kind, body, durable=True)
    return folder


class TestLast:
    def test_it_is_the_one_created_last_even_if_the_clock_was_set_back(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recorded(paths.create_session("first"), "ProjectOpened")
        monkeypatch.setattr("time.gmtime", lambda now, gmtime=paths.time.gmtime: gmtime(0))
        second = recorded(paths.create_session("second"), "ProjectOpened")
        assert second.session_id.startswith("19700101")
        assert paths.find_session("last") == second

    def test_it_falls_back_to_the_newest_name_if_the_remembered_one_is_gone(self, home: Path) -> None:
        older = session(home, "20260101-000000-a-0001")
        newest = session(home, "20260102-000000-b-0002")
        assert paths.find_session("last").session_id == newest
        (home / ".last").write_bytes(b"/gone/\xff\n")
        assert paths.find_session("last").session_id == newest
        assert paths.list_sessions() == (older, newest)

    def test_a_run_that_failed_before_a_project_was_opened_is_passed_over(self, home: Path) -> None:
        judged = recorded(paths.create_session("digits"), "ProjectOpened", stages=["project", "baseline"])
        recorded(paths.create_session("digits"), "Refused", stages=["project"])
        paths.create_session("digits")  # its engine could not even be started
        assert paths.find_session("last") == judged

    def test_a_search_for_cases_is_passed_over(self, home: Path) -> None:
        judged = recorded(paths.create_session("digits"), "ProjectOpened", stages=["project", "baseline"])
        recorded(paths.create_session("digits"), "ProjectOpened", "CasesFound", stages=["project", "measure"])
        assert paths.find_session("last") == judged

    def test_a_session_that_has_just_been_opened_counts(self, home: Path) -> None:
        recorded(paths.create_session("digits"), "ProjectOpened", stages=["project", "baseline"])
        opened = recorded(paths.create_session("digits"), "ProjectOpened", stages=["project"])
        assert paths.find_session("last") == opened

    def test_one_elsewhere_is_passed_over_too(self, home: Path, tmp_path: Path) -> None:
        judged = recorded(paths.create_session("digits", tmp_path / "mine"), "ProjectOpened")
        paths.create_session("digits", tmp_path / "failed")
        assert paths.find_session("last") == judged

    def test_a_damaged_one_is_not_passed_over(self, home: Path) -> None:
        recorded(paths.create_session("digits"), "ProjectOpened")
        damaged = paths.create_session("digits")
        damaged.database.write_bytes(b"no database" * 100)
        assert paths.find_session("last") == damaged

    def test_where_nothing_was_opened_it_is_the_newest_of_all(self, home: Path) -> None:
        paths.create_session("digits")
        newest = paths.create_session("digits")
        assert paths.find_session("last") == newest

    def test_to_attach_it_is_the_newest_whose_engine_lives(self, home: Path) -> None:
        waits = paths.create_session("digits")
        recorded(paths.create_session("digits"), "ProjectOpened")
        mine = EngineFile(pid=os.getpid(), start_ticks=process_start(os.getpid()), socket=None, mark="m", amptui="0")
        (waits.path / "engine.json").write_text(json.dumps(asdict(mine)))
        assert paths.find_session("last", waiting=True) == waits
        assert paths.find_session("last") != waits


def test_what_is_not_found_is_told_with_candidates(home: Path) -> None:
    with pytest.raises(SessionNotFound, match=r"no session 'x' in .*home. It is empty"):
        paths.find_session("x")
    with pytest.raises(SessionNotFound, match="there is no session in"):
        paths.find_session("last")
    session(home, "20260101-000000-digits-0001")
    session(home, "20260101-000000-digits-0002")
    with pytest.raises(SessionNotFound, match=r"begins 2 sessions: .*0001, .*0002. Write more of the id"):
        paths.find_session("2026")
    with pytest.raises(SessionNotFound, match=r"Did you mean .*digits-0001"):
        paths.find_session("digits")
    with pytest.raises(SessionNotFound, match="no session '' in"):
        paths.find_session("")
    with pytest.raises(SessionError, match="there is no session at /nowhere"):
        paths.find_session("/nowhere")


def test_an_escape_in_a_name_does_not_reach_the_message(home: Path) -> None:
    with pytest.raises(SessionNotFound) as caught:
        paths.find_session("\x1b]0;x\x07")
    assert "\x1b" not in str(caught.value)


def test_a_home_that_cannot_be_written_does_not_stop_a_session_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AMPTUI_HOME", str(tmp_path / "file" / "home"))
    assert paths.create_session("digits", tmp_path / "run").path == tmp_path / "run"
    with pytest.raises(SessionError, match="cannot be made: Not a directory"):
        paths.create_session("digits")
