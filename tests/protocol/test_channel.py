"""Only the same user gets on the line, whole lines arrive, and no fork keeps it open."""

from __future__ import annotations

import os
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amptui.protocol import channel
from amptui.protocol.channel import ChannelClosed, ChannelError, Connection, Listener, connect, private_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # a socket's path has at most 107 bytes
        yield Path(short) / "run"


@pytest.fixture
def pair() -> tuple[Connection, Connection]:
    one, other = socket.socketpair()
    return Connection(one), Connection(other)


class TestFolder:
    def test_is_made_private(self, folder: Path) -> None:
        assert stat.S_IMODE(private_folder(folder).stat().st_mode) == 0o700
        assert private_folder(folder) == folder, "and taken again"

    def test_that_others_may_enter_is_refused(self, folder: Path) -> None:
        folder.mkdir()
        folder.chmod(0o750)
        with pytest.raises(ChannelError, match="chmod 700"):
            private_folder(folder)

    @pytest.mark.parametrize("make", [Path.touch, os.mkfifo, lambda path: path.symlink_to(path.parent)])
    def test_that_is_none_is_refused(self, folder: Path, make: object) -> None:
        make(folder)
        with pytest.raises(ChannelError, match="is not a folder"):
            private_folder(folder)

    def test_of_another_user_is_refused(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        private_folder(folder)
        uid = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
        with pytest.raises(ChannelError, match=f"another user .uid {uid}."):
            private_folder(folder)

    def test_is_the_users_runtime_folder_or_one_in_tmp(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with tempfile.TemporaryDirectory(dir="/tmp") as short:
            monkeypatch.setenv("XDG_RUNTIME_DIR", short)
            assert channel.runtime_folder() == Path(short) / "amptui"
        for unusable in ("", "relative", "/missing", short, "/" + "long" * 30):
            monkeypatch.setenv("XDG_RUNTIME_DIR", unusable)
            assert channel.runtime_folder() == Path(f"/tmp/amptui-{os.getuid()}")


class TestListener:
    def test_lets_its_user_in(self, folder: Path) -> None:
        listener = Listener.open(folder)
        assert stat.S_IMODE(listener.path.stat().st_mode) == 0o600
        client = connect(listener.path)
        served = listener.accept(5)
        assert served is not None
        client.send("hello")
        assert served.receive(5) == b"hello"
        served.send("hello yourself")
        assert client.receive(5) == b"hello yourself"
        listener.close()
        assert not listener.path.exists()

    def test_hangs_up_on_another_user(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        listener = Listener.open(folder)
        stranger = connect(listener.path)
        credentials = struct.pack("iII", 1, os.getuid() + 1, 0)
        monkeypatch.setattr(socket.socket, "getsockopt", lambda *_: credentials)

        assert listener.accept(0.1) is None
        with pytest.raises(ChannelClosed):
            stranger.receive(5)

    def test_of_another_user_is_not_talked_to(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        listener = Listener.open(folder)
        monkeypatch.setattr(socket.socket, "getsockopt", lambda *_: struct.pack("iII", 1, os.getuid() + 1, 0))

        with pytest.raises(ChannelError, match="another user"):
            connect(listener.path)

    def test_removes_the_sockets_of_the_dead_only(self, folder: Path) -> None:
        private_folder(folder)
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        left_behind = folder / f"{dead.pid}-00000000.sock"
        # As seen from another container: the number means nothing here, but somebody answers.
        elsewhere = folder / f"{dead.pid}-11111111.sock"
        alive = folder / f"{os.getpid()}-22222222.sock"
        foreign = folder / "notes.txt"
        foreign.touch()
        kept = []
        for path in (left_behind, elsewhere, alive):
            served = socket.socket(socket.AF_UNIX)
            served.bind(str(path))
            served.listen()
            kept.append(served)
        kept[0].close()

        Listener.open(folder)

        assert not left_behind.exists()
        assert elsewhere.exists()
        assert alive.exists()
        assert foreign.exists()

    def test_nobody_answers_is_said(self, folder: Path) -> None:
        with pytest.raises(ChannelError, match="nobody answers"):
            connect(folder / "1-00000000.sock")


class TestConnection:
    def test_puts_lines_together_and_takes_them_apart(self, pair: tuple[Connection, Connection]) -> None:
        one, other = pair
        one.send("a\nb")
        one._socket.sendall(b"c")
        one.send("d" * 30)

        assert [other.receive(5) for _ in range(3)] == [b"a", b"b", b"c" + b"d" * 30]
        assert other.receive(0) is None

    def test_carries_the_largest_line(self, pair: tuple[Connection, Connection]) -> None:
        one, other = pair
        line = "x" * (channel.MAX_LINE - 1)
        sender = threading.Thread(target=one.send, args=(line,))
        sender.start()
        assert other.receive(20) == line.encode()
        sender.join()

    def test_refuses_a_line_without_end(self, pair: tuple[Connection, Connection]) -> None:
        one, other = pair

        def flood() -> None:
            with pytest.raises(ChannelClosed):
                one.send("x" * (channel.MAX_LINE + 2**20))

        sender = threading.Thread(target=flood)
        sender.start()
        with pytest.raises(ChannelError, match="more than 16 MiB"):
            other.receive(20)
        sender.join()

    def test_does_not_wait_for_ever_for_one_that_does_not_read(self, pair: tuple[Connection, Connection]) -> None:
        one, _ = pair
        start = time.monotonic()
        with pytest.raises(ChannelClosed, match="does not read"):
            one.send("x" * 2**22, timeout=0.1)
        assert time.monotonic() - start < 5

    def test_says_when_the_other_side_is_gone(self, pair: tuple[Connection, Connection]) -> None:
        one, other = pair
        one.send("last")
        one.close()
        assert other.receive(5) == b"last"
        with pytest.raises(ChannelClosed):
            other.receive(5)
        with pytest.raises(ChannelClosed):
            other.send("x" * 2**20)
        with pytest.raises(ChannelClosed):
            one.send("closed myself")

    def test_is_not_kept_open_by_a_forked_child(self, pair: tuple[Connection, Connection]) -> None:
        one, other = pair
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(writer, str(one.fileno()).encode() + b"\n")
                time.sleep(5)
            finally:
                os._exit(0)
        assert os.read(reader, 10) == b"-1\n"
        one.close()
        with pytest.raises(ChannelClosed):
            other.receive(2)
        os.kill(pid, 9)
        os.waitpid(pid, 0)

    def test_a_child_leaves_the_listeners_file(self, folder: Path) -> None:
        listener = Listener.open(folder)
        pid = os.fork()
        if pid == 0:
            listener.close()
            os._exit(0)
        os.waitpid(pid, 0)
        assert listener.path.exists()


def test_a_line_that_the_other_side_closed_is_known_at_once(pair: tuple[Connection, Connection]) -> None:
    one, other = pair
    assert not one.hung_up
    other.close()
    assert one.hung_up
    one.close()
    assert one.hung_up
