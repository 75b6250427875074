"""An engine's process, started here or attached to: whether it lives, how it ended, signals to all of it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from contextlib import suppress

from amptui.session.death import command_line_of
from amptui.session.lock import process_start


class ProcessHandle:
    """Process `pid`; `child` where it was started here. A number is never mistaken for a later process of that number.

    A child that has not been waited for keeps its number; another's is held by a descriptor where the kernel has these,
    else told by when it started.
    """

    def __init__(self, pid: int, child: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self._child = child
        self._descriptor = _pidfd(pid)
        self._start_ticks = process_start(pid)

    @property
    def alive(self) -> bool:
        if self._descriptor is not None:
            return not _readable(self._descriptor)
        if self._child is not None:
            return self._child.poll() is None
        return process_start(self.pid) == self._start_ticks

    @property
    def status(self) -> int | None:
        """As `Popen.returncode`, once it was reaped; None of a process that was not started here."""
        return None if self._child is None else self._child.returncode

    def wakes(self, waiting: select.poll) -> bool:
        """Lets `waiting` wake at its end; False where it has to be asked now and then."""
        if self._descriptor is None:
            return False
        waiting.register(self._descriptor, select.POLLIN)
        return True

    def replaced_by(self) -> str | None:
        """The command line of the program that runs in the engine's place, if one does."""
        running = command_line_of(self.pid)
        return None if "bootstrap.py" in running or "--channel" in running else running

    def signal_group(self, number: int) -> None:
        """To its process group if it leads one, else to it alone."""
        with suppress(OSError):
            if os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)

    def reap(self) -> None:
        """Waits for a child that has ended; first its group is ended, while its number cannot have been given away."""
        if self._child is not None and self._child.returncode is None:
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            self._child.wait()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _pidfd(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    with suppress(OSError):
        return os.pidfd_open(pid)
    return None


def _readable(descriptor: int) -> bool:
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(0))
