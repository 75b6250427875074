"""The real program on a terminal of its own: keys go in, a screen of characters comes out."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pexpect
import pyte

#: Queries and modes that pyte does not know, and would print.
_UNKNOWN = re.compile(rb"\x1b\[[<>=?][0-9;]*[a-zA-Z$]+[a-z]?|\x1b\[[0-9;]*\$[a-z]|\x1b[P_].*?\x1b\\")
_KNOWN_MODES = re.compile(rb"\x1b\[\?(?:25|1049|7)[hl]")


class OnTerminal:
    """`python -m amptui ARGUMENTS` on a terminal of `width` × `height` cells."""

    def __init__(
        self,
        *arguments: str,
        home: Path,
        width: int = 80,
        height: int = 24,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self.screen)
        #: Every byte that the program wrote.
        self.written = b""
        environ = {
            **{name: value for name, value in os.environ.items() if name not in ("TMUX", "NO_COLOR", "SSH_CONNECTION")},
            "AMPTUI_HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            **(env or {}),
        }
        self.child: Any = pexpect.spawn(
            sys.executable,
            ["-m", "amptui", *arguments],
            dimensions=(height, width),
            env=environ,
            timeout=30,
            cwd=None if cwd is None else str(cwd),
        )

    def __enter__(self) -> OnTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.isalive():
            self.child.kill(signal.SIGKILL)
        self.child.close(force=True)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.child.send(key)

    def read(self, seconds: float = 0.05) -> bytes:
        """Takes in what is written within `seconds`."""
        taken = b""
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            try:
                data: bytes = self.child.read_nonblocking(1 << 16, timeout=max(left, 0.001))
            except pexpect.TIMEOUT:
                data = b""
            except pexpect.EOF:
                break
            taken += data
            if left <= 0:
                break
        self.written += taken
        self._stream.feed(_UNKNOWN.sub(lambda m: m.group() if _KNOWN_MODES.match(m.group()) else b"", taken))
        return taken

    def wait(self, *texts: str, timeout: float = 40.0, without: str | None = None) -> str:
        """Reads until all `texts` are on the screen (and `without` is not); the screen as text."""
        deadline = time.monotonic() + timeout
        while True:
            self.read(0.05)
            if all(text in self.text for text in texts) and (without is None or without not in self.text):
                return self.text
            if time.monotonic() > deadline:
                raise AssertionError(f"waited for {texts}, without {without!r}; the screen:\n{self.text}")
            if not self.child.isalive():
                self.read(0.2)
                if all(text in self.text for text in texts):
                    return self.text
                raise AssertionError(f"ended while waiting for {texts}:\n{self.text}")

    def resize(self, width: int, height: int) -> None:
        self.child.setwinsize(height, width)
        self.screen.resize(height, width)

    def end(self, timeout: float = 20.0) -> int:
        """Waits for the program's end; its exit code, 128 + signal where one ended it."""
        deadline = time.monotonic() + timeout
        while self.child.isalive() and time.monotonic() < deadline:
            self.read(0.1)
        assert not self.child.isalive(), f"still runs:\n{self.text}"
        self.read(0.1)
        self.child.close()
        return self.child.exitstatus if self.child.exitstatus is not None else 128 + self.child.signalstatus
