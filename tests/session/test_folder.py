"""A session's folder is private, its own, and never reached through somebody else's name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from amptui.session.durable import create_file, open_regular, published, remove_unfinished
from amptui.session.errors import NotEnoughSpace, SessionError
from amptui.session.folder import SessionFolder


def test_folders_are_0700_and_files_0600_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = SessionFolder.create(tmp_path / "deep" / "session")
        os.close(folder.new_file("output.log"))
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.path.iterdir()} == {
        "checkpoints": 0o700,
        "batches": 0o700,
        "retained": 0o700,
        "output.log": 0o600,
    }
    assert folder.path.stat().st_mode & 0o777 == folder.path.parent.stat().st_mode & 0o777 == 0o700
    assert SessionFolder.open(folder.path) == folder


def test_an_existing_folder_is_taken_only_if_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir(mode=0o755)
    assert SessionFolder.create(tmp_path / "empty").path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(SessionError, match="exists and is not empty"):
        SessionFolder.create(tmp_path / "empty")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SessionError, match="is not a folder"):
        SessionFolder.create(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["a" * 256, "nul\0"])
def test_a_name_that_no_file_system_takes_is_one_sentence(tmp_path: Path, name: str) -> None:
    with pytest.raises(SessionError):
        SessionFolder.create(tmp_path / name)


def test_what_is_no_session_is_said(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"there is no session at .*gone: No such file"):
        SessionFolder.open(tmp_path / "gone")
    with pytest.raises(SessionError, match="not an amptui session: it has no folder 'checkpoints'"):
        SessionFolder.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match="is not a folder"):
        SessionFolder.open(tmp_path / "file")


def test_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    folder = SessionFolder.create(tmp_path / "session")
    folder.path.chmod(0o770)
    with pytest.raises(SessionError, match="can be written by others; make it private first: chmod 700"):
        SessionFolder.open(folder.path)


def test_space_for_two_checkpoints_and_64_mib_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SessionFolder.create(tmp_path / "session")

    class Status:
        f_bavail, f_frsize = 100 * 2**20 // 4096, 4096

    monkeypatch.setattr(os, "statvfs", lambda path: Status)
    folder.require_space(18 * 2**20)
    with pytest.raises(NotEnoughSpace, match="has 100 MiB free, but 102 MiB are needed"):
        folder.require_space(19 * 2**20)


@pytest.mark.parametrize("plant", ["file", "link", "dangling", "loop", "pipe", "folder", "hard link"])
def test_no_file_is_made_where_a_name_is_taken(tmp_path: Path, plant: str) -> None:
    canary, name = tmp_path / "canary", tmp_path / "name"
    canary.write_text("untouched")
    {
        "file": lambda: name.write_text("untouched"),
        "link": lambda: name.symlink_to(canary),
        "dangling": lambda: name.symlink_to(tmp_path / "gone"),
        "loop": lambda: name.symlink_to(name),
        "pipe": lambda: os.mkfifo(name),
        "folder": name.mkdir,
        "hard link": lambda: name.hardlink_to(canary),
    }[plant]()
    with pytest.raises(FileExistsError):
        create_file(name)
    with pytest.raises(FileExistsError), published(name) as file:
        file.write(b"overwritten")
    assert canary.read_text() == "untouched"
    assert not (tmp_path / "gone").exists()
    if plant not in ("file", "hard link"):
        with pytest.raises(OSError, match=r".+"):
            os.close(open_regular(name))


def test_a_published_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report"
    with published(path) as file:
        file.write(b"first")
        assert not path.exists()
    with pytest.raises(ZeroDivisionError), published(path, overwrite=True) as file:
        file.write(b"second, half" + bytes(1 // 0))
    assert path.read_bytes() == b"first"
    with published(path, overwrite=True) as file:
        file.write(b"third")
    assert path.read_bytes() == b"third"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report"]


def test_a_file_that_appears_in_the_meantime_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "report"
    with pytest.raises(FileExistsError), published(path):
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"theirs"
    assert len(list(tmp_path.iterdir())) == 1


def test_publishing_works_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object, **options: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    with published(tmp_path / "report") as file:
        file.write(b"content")
    assert (tmp_path / "report").read_bytes() == b"content"
    with pytest.raises(FileExistsError), published(tmp_path / "report"):
        pass


def test_unfinished_files_are_removed_and_others_are_not(tmp_path: Path) -> None:
    for name in (".fp32.pt.1234abcd.tmp", "fp32.pt", "keep.tmp"):
        (tmp_path / name).write_text("")
    remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fp32.pt", "keep.tmp"]
