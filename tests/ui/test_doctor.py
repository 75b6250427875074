"""What `amptui doctor` says about a terminal, a disk and a torch, and what to do about each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from amptui.ui.doctor import Seen, about_disk, about_terminal, about_torch, examination, probe
from amptui.ui.terminal import describe


def terminal(**environ: str) -> dict[str, Seen]:
    size = {"width": 80, "height": 24, "encoding": "utf-8"}
    return {one.what: one for one in about_terminal(describe(environ, is_tty=True, **size), environ)}  # type: ignore[arg-type]


def test_a_good_terminal_needs_nothing() -> None:
    seen = terminal(TERM="xterm-256color")
    assert {one.state for one in seen.values()} == {"ok"}
    assert seen["colours"].found.startswith("256")


def test_what_takes_something_away_says_why_and_what_mends_it() -> None:
    assert "export TERM=xterm-256color" in terminal(TERM="dumb")["terminal"].mend
    assert "NO_COLOR is set" in terminal(TERM="xterm-256color", NO_COLOR="1")["colours"].found
    assert terminal(TERM="xterm")["colours"].state == "warn"
    assert "tmux" in terminal(TERM="tmux-256color", TMUX="/tmp/x,1,0")["copying"].found
    assert terminal(TERM="screen-256color", STY="1.x")["copying"].state == "warn"
    assert "4 paints" in terminal(TERM="xterm-256color", SSH_CONNECTION="a b")["painting"].found


def test_a_small_terminal_and_one_without_utf8() -> None:
    seen = about_terminal(describe({"TERM": "xterm"}, is_tty=True, width=40, height=10, encoding="ascii"), {})
    states = {one.what: one.state for one in seen}
    assert states["size"] == states["characters"] == "warn"


def test_a_home_that_cannot_be_written_is_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMPTUI_HOME", str(tmp_path / "sessions"))
    assert about_disk()[0].state in ("ok", "warn")
    monkeypatch.setattr("os.access", lambda *_: False)
    assert about_disk()[0].state == "bad"


@pytest.mark.parametrize(
    ("devices", "state", "says"),
    [
        ([], "warn", "CPU only"),
        ([["Tesla P100", 6, 0]], "warn", "6.0"),
        ([["T4", 7, 5]], "warn", "7.5"),
        ([["H200", 9, 0]], "ok", "FP16 and BF16"),
    ],
)
def test_the_device_decides_what_half_types_can_gain(devices: list[object], state: str, says: str) -> None:
    seen = about_torch({"torch": "2.12.0", "python": "3.12.1", "devices": devices}, "python")
    assert (seen[-1].state, says in seen[-1].found) == (state, True)


def test_a_torch_that_is_missing_or_too_old_is_bad() -> None:
    assert about_torch({"torch": None, "error": "ModuleNotFoundError: no torch"}, "python")[0].state == "bad"
    old = about_torch({"torch": "2.4.1", "devices": [["T4", 7, 5]]}, "python")[0]
    assert (old.state, "2.10" in old.mend) == ("bad", True)


def test_an_interpreter_that_is_none_is_told() -> None:
    assert "cannot" in str(probe("/nonexistent/python")["error"]) or probe("/nonexistent/python")["error"]
    lines, healthy = examination("/nonexistent/python")
    assert not healthy
    assert any(line.startswith("✗ torch") for line in lines)


def test_foreign_text_is_made_safe() -> None:
    seen = about_torch({"torch": "2.12\x1b[31m", "devices": [["T4\x1b[2J", 7, 5]]}, "py\x1bthon")
    assert not any("\x1b" in one.found + one.mend for one in seen)


def test_this_interpreter_answers() -> None:
    pytest.importorskip("torch")
    said = probe(sys.executable)
    assert said["torch"]
    assert said["error"] is None
