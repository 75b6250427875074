"""The terminal is described without being asked, and is whole again whatever ends the program."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from amptui.ui.terminal import Terminal, describe, refusal, too_small


def terminal(encoding: str = "utf-8", is_tty: bool = True, **environ: str) -> Terminal:
    return describe(environ, is_tty=is_tty, width=80, height=24, encoding=encoding)


@pytest.mark.parametrize(
    ("environ", "colours"),
    [
        ({"TERM": "xterm-256color"}, "256"),
        ({"TERM": "tmux-256color"}, "256"),
        ({"TERM": "xterm-kitty"}, "256"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "256"),
        ({"TERM": "xterm"}, "16"),
        ({"TERM": "screen"}, "16"),
        ({"TERM": "linux"}, "16"),
        ({"TERM": "vt100"}, "none"),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, "none"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "none"),
    ],
)
def test_colours_follow_from_the_environment(environ: dict[str, str], colours: str) -> None:
    assert terminal(**environ).colours == colours


def test_over_ssh_it_paints_half_as_often() -> None:
    assert terminal(TERM="xterm").paints_per_second == 8
    assert terminal(TERM="xterm", SSH_CONNECTION="a 1 b 2").paints_per_second == 4


def test_ascii_is_proposed_where_braille_would_come_out_wrong() -> None:
    assert not terminal(TERM="xterm-256color").wants_ascii
    assert terminal(TERM="linux").wants_ascii
    assert terminal(encoding="ANSI_X3.4-1968", TERM="xterm").wants_ascii


def test_without_a_usable_terminal_it_says_why_and_what_to_do_instead() -> None:
    assert refusal(terminal(TERM="xterm")) is None
    for one, why in (
        (terminal(TERM="xterm", is_tty=False), "not a terminal"),
        (terminal(TERM="dumb"), "TERM is “dumb”"),
        (terminal(), "TERM is not set"),
    ):
        text = refusal(one, "Without one: amptui check mine.py:project")
        assert text is not None
        assert why in text
        assert text.endswith("Without one: amptui check mine.py:project")
        assert refusal(one) == text.removesuffix(" Without one: amptui check mine.py:project")


def test_below_the_least_size_one_line_says_both_sizes() -> None:
    assert too_small(60, 16) is None
    assert too_small(59, 16) == "needs 60×16, have 59×16"
    assert too_small(200, 15) == "needs 60×16, have 200×15"


PROGRAM = """
import fcntl, signal, sys, termios, time

if sys.argv[2] != "untold":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # a controlling terminal: its end is told by SIGHUP
if sys.argv[2] == "nohup":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

from textual.app import App
from textual.widgets import Static
from amptui.ui.terminal import TerminalGuard

class Small(App):
    def compose(self):
        yield Static("drawn")
    def on_mount(self):
        guard.listen(self.exit)
        self.call_after_refresh(self.ready)
    def ready(self):
        open(sys.argv[1], "w").close()
        if sys.argv[2] == "stuck":
            time.sleep(60)

with TerminalGuard(grace=0.5) as guard:
    Small().run()
sys.exit(guard.exit_code or 0)
"""


class Run:
    """The program above on a terminal of its own."""

    def __init__(self, folder: Path, mode: str = "") -> None:
        program, ready = folder / "program.py", folder / "ready"
        program.write_text(PROGRAM)
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [sys.executable, str(program), str(ready), mode],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={**os.environ, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        self.output = b""
        self.read_until(ready.exists)

    def read_until(self, condition: object, patience: float = 20.0) -> None:
        deadline = time.monotonic() + patience
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < deadline, self.output[-500:]
            if select.select([self.master], [], [], 0.05)[0]:
                self.output += os.read(self.master, 65536)

    def end(self, patience: float = 20.0) -> int:
        self.read_until(lambda: self.process.poll() is not None, patience)
        while select.select([self.master], [], [], 0.1)[0]:
            self.output += os.read(self.master, 65536)
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for descriptor in (self.master, self.slave):
            try:
                os.close(descriptor)
            except OSError:
                continue


def whole(run: Run) -> bool:
    """Whether the alternate screen is left, the cursor shown, and the modes are as before."""
    left = run.output.rfind(b"\x1b[?1049l") > run.output.rfind(b"\x1b[?1049h") >= 0
    cursor = run.output.rfind(b"\x1b[?25h") > run.output.rfind(b"\x1b[?25l")
    mouse = run.output.rfind(b"\x1b[?1003l") > run.output.rfind(b"\x1b[?1003h")
    return left and cursor and mouse and termios.tcgetattr(run.slave) == run.before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_ends_it_with_the_terminal_whole(tmp_path: Path, number: signal.Signals) -> None:
    run = Run(tmp_path)
    try:
        run.process.send_signal(number)
        assert run.end() == 128 + number
        assert whole(run)
        assert b"Traceback" not in run.output
    finally:
        run.close()


def test_a_stuck_program_is_ended_too(tmp_path: Path) -> None:
    run = Run(tmp_path, "stuck")
    try:
        run.process.send_signal(signal.SIGTERM)
        assert run.end(patience=10) == 128 + signal.SIGTERM
        assert whole(run)
    finally:
        run.close()


@pytest.mark.parametrize("mode", ["told", "nohup", "untold"])
def test_a_terminal_that_vanishes_ends_it_also_where_the_signal_was_ignored_or_never_comes(
    tmp_path: Path, mode: str
) -> None:
    run = Run(tmp_path, mode)
    try:
        os.close(run.slave)
        os.close(run.master)
        assert run.process.wait(timeout=10) == 128 + signal.SIGHUP
    finally:
        run.close()


def test_suspended_it_gives_the_terminal_back_and_takes_it_again(tmp_path: Path) -> None:
    run = Run(tmp_path)
    try:
        run.process.send_signal(signal.SIGTSTP)
        run.read_until(lambda: run.output.rfind(b"\x1b[?1049l") > run.output.rfind(b"\x1b[?1049h"))
        time.sleep(0.2)
        assert termios.tcgetattr(run.slave) == run.before
        run.process.send_signal(signal.SIGCONT)
        run.read_until(lambda: run.output.rfind(b"\x1b[?1049h") > run.output.rfind(b"\x1b[?1049l"))
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 128 + signal.SIGTERM
        assert whole(run)
    finally:
        run.close()
