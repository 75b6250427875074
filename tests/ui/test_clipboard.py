"""A copy goes where it can be pasted from, is always saved too, and carries nothing that would act."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from amptui.ui.clipboard import FILE_NAME, OSC52_MOST, Copied, copy, osc52, programs

SSH = {"SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}


def copied(text: str, folder: Path, environ: Mapping[str, str]) -> tuple[Copied, list[str]]:
    written: list[str] = []
    return asyncio.run(copy(text, folder, write=written.append, environ=environ)), written


def program(folder: Path, name: str, body: str) -> None:
    """An executable that runs `body` in Python."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)


def test_over_ssh_the_terminal_is_asked_and_the_sentence_does_not_promise_too_much(tmp_path: Path) -> None:
    result, written = copied("scale 2^15", tmp_path, {**SSH, "PATH": str(tmp_path), "DISPLAY": ":10"})
    assert written == ["\x1b]52;c;" + base64.b64encode(b"scale 2^15").decode() + "\x07"]
    assert (tmp_path / FILE_NAME).read_text() == "scale 2^15\n"
    assert "if it allows that" in result.sentence
    assert FILE_NAME in result.sentence


def test_in_tmux_its_own_command_is_used_and_nothing_is_sent_twice(tmp_path: Path) -> None:
    program(
        tmp_path,
        "tmux",
        f"import sys; open({str(tmp_path / 'got')!r}, 'w').write(' '.join(sys.argv[1:]) + '|' + sys.stdin.read())",
    )
    result, written = copied("a\nb", tmp_path, {**SSH, "TMUX": "/tmp/x,1,0", "PATH": str(tmp_path)})
    assert (tmp_path / "got").read_text() == "load-buffer -w -|a\nb"
    assert written == []
    assert result.sentence.startswith("copied to tmux and your terminal's clipboard · saved to ")


@pytest.mark.parametrize("body", ["raise SystemExit(1)", "import os; os.kill(os.getpid(), 9)"])
def test_a_tmux_that_fails_is_passed_through(tmp_path: Path, body: str) -> None:
    program(tmp_path, "tmux", body)
    _, written = copied("x", tmp_path, {"TMUX": "/tmp/x,1,0", "PATH": str(tmp_path)})
    assert written == ["\x1bPtmux;\x1b\x1b]52;c;eA==\x07\x1b\\"]


def test_a_tmux_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amptui.ui.clipboard.PATIENCE", 0.2)
    program(tmp_path, "tmux", "import time; time.sleep(60)")
    _, written = copied("x", tmp_path, {"TMUX": "/tmp/x,1,0", "PATH": str(tmp_path)})
    assert len(written) == 1


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_a_real_tmux_has_the_text_in_its_buffer(tmp_path: Path) -> None:
    server = ["tmux", "-S", str(tmp_path / "s"), "-f", "/dev/null"]
    subprocess.run([*server, "new-session", "-d", "sleep 60"], check=True)
    try:
        pid = subprocess.run([*server, "display", "-p", "#{pid}"], check=True, capture_output=True, text=True).stdout
        environ = {"TMUX": f"{tmp_path / 's'},{pid.strip()},0", "PATH": str(Path(shutil.which("tmux") or "").parent)}
        result, _ = copied("loss 0.42 → nan", tmp_path, environ)
        buffer = subprocess.run([*server, "show-buffer"], check=True, capture_output=True).stdout.decode()
        assert buffer == "loss 0.42 → nan"
        assert result.problems == ()
    finally:
        subprocess.run([*server, "kill-server"], check=False)


def test_a_desktop_program_is_used_only_where_the_desktop_is(tmp_path: Path) -> None:
    for name in ("wl-copy", "xclip"):
        program(tmp_path, name, "pass")
    here = {"PATH": str(tmp_path), "DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}
    assert [command[0] for _, command in programs(here)] == ["wl-copy", "xclip"]
    assert programs({**here, **SSH}) == []


def test_screen_gets_short_pieces() -> None:
    sequence = osc52("x" * 2000, {"STY": "1.pts"})
    assert sequence is not None
    pieces = sequence.split("\x1b\\")[:-1]
    assert all(piece.startswith("\x1bP") and len(piece) < 768 for piece in pieces)
    assert "".join(piece[2:] for piece in pieces) == osc52("x" * 2000, {})


def test_what_is_too_long_for_a_terminal_is_saved_and_said(tmp_path: Path) -> None:
    text = "x" * OSC52_MOST
    result, written = copied(text, tmp_path, {**SSH, "PATH": ""})
    assert written == []
    assert (tmp_path / FILE_NAME).read_text() == text + "\n"
    assert "no clipboard took it" in result.sentence
    assert "too long" in result.sentence


def test_control_characters_are_made_visible_before_they_can_be_pasted(tmp_path: Path) -> None:
    _, written = copied("\x1b[2J\trm -rf\r\n\u202eok", tmp_path, {**SSH, "PATH": ""})
    saved = (tmp_path / FILE_NAME).read_text()
    assert saved == "\\x1b[2J    rm -rf\\x0d\n\\u202eok\n"
    assert base64.b64decode(written[0][7:-1]).decode() + "\n" == saved


def test_a_folder_that_cannot_be_written_is_told_and_the_copy_still_goes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result, written = copied("x", tmp_path / "file", {**SSH, "PATH": ""})
    assert result.path is None
    assert "not saved" in result.sentence
    assert len(written) == 1


def test_the_file_belongs_to_its_owner_alone_and_replaces_the_last_one(tmp_path: Path) -> None:
    copied("one", tmp_path, {**SSH, "PATH": ""})
    copied("two", tmp_path, {**SSH, "PATH": ""})
    path = tmp_path / FILE_NAME
    assert path.read_text() == "two\n"
    assert path.stat().st_mode & 0o077 == 0
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE_NAME]


def test_in_one_line_the_file_comes_before_what_may_be_cut() -> None:
    copied = Copied(("tmux and your terminal's clipboard",), Path("/here/copied.txt"))
    assert copied.line == "copied to /here/copied.txt, tmux and your terminal's clipboard"
    assert Copied((), None, ("not saved: full",)).line == "no clipboard took it · not saved: full"
