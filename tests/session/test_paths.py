"""Sessions are named by time and project, and found by id, unique beginning, path or `last`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from amptui.session import paths
from amptui.session.errors import SessionError, SessionNotFound
from amptui.session.folder import SessionFolder


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
        ("x" * 300, "x" * 40),
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
    for name in (folder.session_id, folder.session_id[:-3], str(folder.path), "last"):
        assert paths.find_session(name) == folder


def test_a_session_elsewhere_is_the_last_one_too(home: Path, tmp_path: Path) -> None:
    paths.create_session("digits")
    elsewhere = paths.create_session("digits", tmp_path / "my run")
    assert paths.find_session("last") == elsewhere
    assert paths.list_sessions() == (*paths.list_sessions(),)
    assert len(paths.list_sessions()) == 1


def test_last_is_the_one_created_last_even_if_the_clock_was_set_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.create_session("first")
    monkeypatch.setattr("time.gmtime", lambda now, gmtime=paths.time.gmtime: gmtime(0))
    second = paths.create_session("second")
    assert second.session_id.startswith("19700101")
    assert paths.find_session("last") == second


def test_last_falls_back_to_the_newest_name_if_the_remembered_one_is_gone(home: Path) -> None:
    older = session(home, "20260101-000000-a-0001")
    newest = session(home, "20260102-000000-b-0002")
    assert paths.find_session("last").session_id == newest
    (home / ".last").write_bytes(b"/gone/\xff\n")
    assert paths.find_session("last").session_id == newest
    assert paths.list_sessions() == (older, newest)


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
