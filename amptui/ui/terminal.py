"""What the terminal can do, and leaving it as it was found, whatever ends the program.

Left to itself the framework leaves the alternate screen and raw mode behind on SIGTERM and SIGHUP, and where SIGHUP is
ignored (`nohup`) or never comes, it spins on the dead terminal for ever. `TerminalGuard` mends both.
"""

from __future__ import annotations

import asyncio
import contextlib
import locale
import os
import select
import shutil
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any, Literal

from amptui.text import safe_text

#: The least that the screen is drawn for, in cells.
LEAST_WIDTH, LEAST_HEIGHT = 60, 16
#: Paints a second at most: a terminal on a desk, and one at the other end of a link.
PAINTS_LOCAL, PAINTS_SSH = 8.0, 4.0

Colours = Literal["none", "16", "256"]

#: Names without "256color" that have at least 256 colours all the same.
_RICH_TERMS = ("kitty", "alacritty", "foot", "ghostty", "wezterm", "direct", "iterm")


@dataclass(frozen=True, kw_only=True)
class Terminal:
    """What is known about the terminal without asking it anything."""

    is_tty: bool
    term: str
    width: int
    height: int
    colours: Colours
    utf8: bool
    ssh: bool
    multiplexer: Literal["tmux", "screen"] | None

    @property
    def paints_per_second(self) -> float:
        return PAINTS_SSH if self.ssh else PAINTS_LOCAL

    @property
    def wants_ascii(self) -> bool:
        """Whether braille and box characters would come out wrong: no UTF-8, or a font of 512 characters."""
        return not self.utf8 or self.term in ("linux", "vt100", "vt220", "ansi")

    @property
    def colour_system(self) -> str:
        """The value of TEXTUAL_COLOR_SYSTEM, to be set before the framework is imported.

        Never "truecolor": every colour of the themes is in the palette of 256, and its codes are shorter.
        """
        return "256" if self.colours == "256" else "standard"


def this_terminal(environ: Mapping[str, str] = os.environ) -> Terminal:
    """The terminal that this program runs in."""
    size = shutil.get_terminal_size((80, 24))
    is_tty = all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stderr__))
    return describe(environ, is_tty=is_tty, width=size.columns, height=size.lines, encoding=_encoding())


def describe(environ: Mapping[str, str], *, is_tty: bool, width: int, height: int, encoding: str) -> Terminal:
    """`Terminal` from what the environment says."""
    term = environ.get("TERM", "")
    multiplexer: Literal["tmux", "screen"] | None = None
    if environ.get("TMUX"):
        multiplexer = "tmux"
    elif environ.get("STY"):
        multiplexer = "screen"
    return Terminal(
        is_tty=is_tty,
        term=term,
        width=width,
        height=height,
        colours=_colours(term, environ),
        utf8=encoding.lower().replace("-", "") == "utf8",
        ssh=any(environ.get(name) for name in ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")),
        multiplexer=multiplexer,
    )


def _colours(term: str, environ: Mapping[str, str]) -> Colours:
    if environ.get("NO_COLOR") or term in ("", "dumb", "unknown") or term.startswith("vt"):
        return "none"
    if "256color" in term or environ.get("COLORTERM") or any(name in term for name in _RICH_TERMS):
        return "256"
    return "16"


def _encoding() -> str:
    with contextlib.suppress(AttributeError):
        return sys.__stderr__.encoding if sys.__stderr__ else locale.getpreferredencoding(do_setlocale=False)
    return "ascii"


def refusal(terminal: Terminal, instead: str = "") -> str | None:
    """Why no screen can be drawn here, and `instead`, a sentence on what to do without one; None where it can."""
    if not terminal.is_tty:
        return f"Input or output is not a terminal, so there is no screen to draw on. {instead}".rstrip()
    if terminal.term in ("", "dumb", "unknown"):
        name = f"TERM is “{safe_text(terminal.term)}”" if terminal.term else "TERM is not set"
        mend = "If the terminal can, run `export TERM=xterm-256color` first."
        return f"{name}: no screen can be drawn. {mend} {instead}".rstrip()
    return None


def too_small(width: int, height: int) -> str | None:
    """The one line shown below the least size; None from there on."""
    if width >= LEAST_WIDTH and height >= LEAST_HEIGHT:
        return None
    return f"needs {LEAST_WIDTH}×{LEAST_HEIGHT}, have {width}×{height}"


#: Undoes all that the framework switches on: kitty keys (while still on the alternate screen), mouse, paste, focus and
#: size reports, no line wrap, synchronised output, the alternate screen, the hidden cursor, colours.
RESET = (
    "\x1b[<u\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l\x1b[?2004l\x1b[?1004l\x1b[?2048l"
    "\x1b[?7h\x1b[?2026l\x1b[?1049l\x1b[?25h\x1b[0m"
)

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


class TerminalGuard:
    """While entered: SIGTERM, SIGHUP, SIGINT, SIGQUIT and a vanished terminal end the program with the terminal whole.

    The app is asked to stop, and restores the terminal itself. If it has not ended `grace` seconds later (its loop is
    stuck, or blocked on a terminal that takes no more), the guard restores the terminal and ends the process; a second
    signal does so at once (but not a second SIGHUP: the kernel and the shell may both send one). SIGTSTP and SIGCONT
    are the framework's: it leaves and re-enters the alternate screen.

    A thread of its own does all that: a handler in Python waits for the main thread to come back to the interpreter,
    which a stuck one never does; the interpreter's wake-up descriptor is written at once.

    Enter it in the main thread, around `App.run()`; call `listen` inside the running loop.
    """

    def __init__(self, grace: float = 2.0) -> None:
        self.received: signal.Signals | None = None
        self._grace = grace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: Callable[[], object] | None = None
        self._attributes: list[Any] | None = None
        self._handlers: dict[signal.Signals, Any] = {}
        self._woken_before = -1
        self._wake: int | None = None
        self._watcher: threading.Thread | None = None

    @property
    def exit_code(self) -> int | None:
        """128 plus the signal that ended the program; None where none came."""
        return None if self.received is None else 128 + self.received

    def listen(self, stop: Callable[[], object]) -> None:
        """Call `stop` in the running loop when the program is to end (`app.exit`)."""
        self._loop = asyncio.get_running_loop()
        self._stop = stop
        if self.received is not None:
            self._loop.call_soon(stop)

    def __enter__(self) -> TerminalGuard:
        for name in ("COLUMNS", "LINES"):  # exported by `resize` and some shells: they would pin the size for good
            os.environ.pop(name, None)
        with contextlib.suppress(termios.error, OSError, ValueError, AttributeError):
            self._attributes = termios.tcgetattr(_stdin())
        told, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._watcher = threading.Thread(target=self._watch, args=(told,), name="terminal-guard", daemon=True)
        self._watcher.start()
        self._woken_before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in ENDING:
            self._handlers[number] = signal.signal(number, _nothing)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._woken_before)
        if self._wake is not None and self._watcher is not None:
            os.close(self._wake)
            self._watcher.join()  # what came before is counted
        self._restore_modes()

    def _watch(self, told: int) -> None:
        """Sleeps until a signal comes, the terminal is gone, or, once told to end, the time is up.

        The terminal itself is not read, so the app's input is left alone. Without a controlling terminal no SIGHUP
        comes, and the app would read end-of-file in a tight loop for ever.
        """
        poll, terminal = select.poll(), None if self._attributes is None else _stdin()
        if terminal is not None:
            poll.register(terminal, 0)  # no events asked for: hang-up is always reported
        poll.register(told, select.POLLIN)
        deadline: float | None = None
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            ready = dict(poll.poll(left))
            if deadline is not None and time.monotonic() >= deadline:
                self._end()
            numbers = os.read(told, 64) if told in ready else b""
            if told in ready and not numbers:  # the guard is left
                os.close(told)
                return
            for number in numbers:
                if number in ENDING and self.received is not None and number != signal.SIGHUP:
                    self._end()
                if number in ENDING:
                    self._ask_to_stop(signal.Signals(number))
            if terminal is not None and ready.get(terminal, 0) & (select.POLLHUP | select.POLLERR):
                poll.unregister(terminal)  # it would be reported for ever
                terminal = None
                self._ask_to_stop(signal.SIGHUP)
            if deadline is None and self.received is not None:
                deadline = time.monotonic() + self._grace

    def _ask_to_stop(self, number: signal.Signals) -> None:
        """Only the first call counts."""
        if self.received is None:
            self.received = number
            if self._loop and self._stop:
                with contextlib.suppress(RuntimeError):  # the loop has just closed
                    self._loop.call_soon_threadsafe(self._stop)

    def _end(self) -> None:
        """Restore and leave at once, from any thread: the app did not."""
        self._restore_modes()
        with contextlib.suppress(OSError, ValueError, AttributeError):
            output = sys.__stderr__.fileno() if sys.__stderr__ else 2
            # A terminal that takes no more would block the write for ever.
            if os.isatty(output) and select.select([], [output], [], 0.5)[1]:
                os.write(output, RESET.encode("ascii"))
        os._exit(self.exit_code or 1)

    def _restore_modes(self) -> None:
        if self._attributes is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(_stdin(), termios.TCSANOW, self._attributes)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """A handler, so that the signal is caught: what it means is decided by the guard's thread."""


def _stdin() -> int:
    return sys.__stdin__.fileno() if sys.__stdin__ else 0
