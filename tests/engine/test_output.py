"""What is printed is told in bounded pieces and kept in a bounded log."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amptui.engine import output as outputs
from amptui.engine.output import EVENT_CHARACTERS, Output, OutputLog
from amptui.protocol.events import OutputCaptured
from amptui.session.errors import StoreError


class Capture:
    """An `Output` over pipes of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.told: list[OutputCaptured] = []
        out_reader, self.out = os.pipe()
        err_reader, self.err = os.pipe()
        self.log = OutputLog(folder / "output.log")
        self.output = Output({"stdout": out_reader, "stderr": err_reader}, self.log, self.told.append)
        self._readers = (out_reader, err_reader)
        self.output._thread.start()  # without `start`, which changes this process's own streams

    def text(self, stream: str = "stdout") -> str:
        return "".join(event.text for event in self.told if event.stream == stream)

    def close(self) -> None:
        self.output.stop()
        self.log.close()
        for descriptor in (self.out, self.err, *self._readers):
            os.close(descriptor)


@pytest.fixture
def capture(tmp_path: Path) -> Iterator[Capture]:
    capture = Capture(tmp_path)
    yield capture
    capture.close()


def test_both_streams_are_told_apart_and_logged_together(capture: Capture, tmp_path: Path) -> None:
    os.write(capture.out, b"one\n")
    os.write(capture.err, b"two\n")
    capture.output.stop()

    assert (capture.text("stdout"), capture.text("stderr")) == ("one\n", "two\n")
    assert sorted((tmp_path / "output.log").read_bytes().split()) == [b"one", b"two"]


def test_it_is_told_while_the_project_runs(capture: Capture) -> None:
    os.write(capture.out, b"now")
    deadline = time.monotonic() + 5
    while not capture.told and time.monotonic() < deadline:
        time.sleep(0.01)

    assert capture.text() == "now"


def test_a_character_cut_in_two_is_whole_and_broken_bytes_are_visible(capture: Capture) -> None:
    os.write(capture.out, "é".encode()[:1])
    time.sleep(0.4)
    os.write(capture.out, "é".encode()[1:] + b"\xff\x00\x1b[2J")
    capture.output.stop()

    assert capture.text() == "é\\xff\x00\x1b[2J"


def test_a_flood_is_coalesced_and_says_what_it_left_out(capture: Capture) -> None:
    for n in range(200):
        os.write(capture.out, f"{n:06}".encode() * 1000)
    capture.output.stop()

    assert len(capture.told) < 20
    assert max(len(event.text) for event in capture.told) <= EVENT_CHARACTERS + 100
    assert capture.text().endswith("000199")
    assert "characters left out here" in capture.text()


def test_a_store_that_fails_does_not_stop_the_reading(capture: Capture, tmp_path: Path) -> None:
    def fails(_event: OutputCaptured) -> None:
        raise StoreError("the disk is full")

    capture.output._tell = fails
    for _ in range(10):
        os.write(capture.out, b"z" * 50_000)  # more than a pipe holds: who prints would wait for ever
        time.sleep(0.05)
    capture.output.stop()

    assert (tmp_path / "output.log").stat().st_size == 500_000


def test_a_pipe_that_a_child_keeps_filling_does_not_keep_it_from_ending(capture: Capture) -> None:
    pid = os.fork()
    if pid == 0:
        while True:
            os.write(capture.out, b"y" * 4096)
    start = time.monotonic()
    capture.output.stop()
    os.kill(pid, 9)
    os.waitpid(pid, 0)

    assert time.monotonic() - start < 3


def test_the_log_begins_anew_when_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "LOG_BYTES", 100)
    log = OutputLog(tmp_path / "output.log")
    for n in range(10):
        log.write(f"{n}".encode() * 40)
    log.close()

    files = sorted(file.name for file in tmp_path.iterdir())
    assert files == ["output.log", "output.log.1"]
    assert (tmp_path / "output.log.1").read_bytes() == b"6" * 40 + b"7" * 40
    assert (tmp_path / "output.log").read_bytes() == b"8" * 40 + b"9" * 40


def test_the_log_is_continued_and_never_written_through_a_link(tmp_path: Path) -> None:
    for text in (b"first\n", b"second\n"):
        log = OutputLog(tmp_path / "output.log")
        log.write(text)
        log.close()
    assert (tmp_path / "output.log").read_bytes() == b"first\nsecond\n"

    (tmp_path / "elsewhere").touch()
    (tmp_path / "link.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="link"):
        OutputLog(tmp_path / "link.log")
