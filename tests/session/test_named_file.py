"""The file that a user names: what no file can be is said in words, what is written there is whole, nothing waits."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from amptui.session.errors import SessionError
from amptui.session.named_file import file_to_write, held_pipe, named_path, of_this_process, require_place, written


def write(path: Path, text: str = "new", **options: bool) -> None:
    with written(path, **options) as file:
        file.write(text.encode())


# Names.


def test_a_name_is_understood_from_the_working_directory_and_from_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/somewhere")
    assert named_path("a/b") == tmp_path / "a" / "b"
    assert named_path("~/b") == Path("/somewhere/b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "-o: the name is empty"),
        (" ", "-o: the name is empty"),
        ("~no-such-user-here/x", "-o ~no-such-user-here/x: "),
        ("a\0b", r"-o a\x00b: no file can have this name"),
        ("a\ud800", "no file can have this name"),
    ],
)
def test_what_names_no_path_is_refused(text: str, said: str) -> None:
    with pytest.raises(SessionError) as refused:
        named_path(text, "-o")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/", "-o /: this is a folder; name a file in it"),
        (".", "-o .: this is a folder"),
        ("missing/x", "-o missing/x: there is no such folder"),
        ("n" * 300, "File name too long"),
        ("n" * 300 + "/x", "File name too long"),
        ("file/x", "Not a directory"),
        ("loop", "Too many levels of symbolic links"),
        ("socket", "this is a socket"),
    ],
)
def test_where_no_file_can_be_written_is_refused(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        with pytest.raises(SessionError) as refused:
            file_to_write(text, "-o")
    assert said in str(refused.value)


def test_a_working_directory_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SessionError, match="the working directory is gone"):
        named_path("x")
    assert named_path("/x") == Path("/x")


# Regular files.


def test_a_file_is_replaced_as_a_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(ZeroDivisionError), written(path) as file:
        file.write(bytes(1 // 0))
    assert path.read_text() == "old"
    write(path)
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there/file")
    require_place(link)
    write(link, "first")
    write(link, "second")
    assert link.is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "second"
    with pytest.raises(FileExistsError):
        write(link, overwrite=False)


# Everything else.


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_device_is_written_through(overwrite: bool) -> None:
    write(Path(os.devnull), overwrite=overwrite)
    assert not Path(os.devnull).is_file()


def test_a_pipe_without_a_reader_is_refused_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="nobody reads this pipe"):
        write(pipe)
    with pytest.raises(OSError, match="nobody reads this pipe"), held_pipe(pipe):
        pass
    assert pipe.is_fifo()


def test_a_reader_is_kept_from_before_the_work_to_its_result(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with held_pipe(pipe):
        with pytest.raises(BlockingIOError):  # no end in sight
            os.read(reader, 10)
        write(pipe)
    assert os.read(reader, 10) == b"new"
    assert os.read(reader, 10) == b""
    os.close(reader)


def test_an_open_descriptor_is_written_where_it_is(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"before ")
    name = Path(f"/dev/fd/{descriptor}")
    write(name)
    os.write(descriptor, b" after")
    assert of_this_process(name) == Path(f"/proc/{os.getpid()}/fd/{descriptor}")
    os.close(descriptor)
    assert (tmp_path / "file").read_text() == "before new after"


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        with pytest.raises(OSError, match="this is a socket"):
            write(Path("socket").absolute())
