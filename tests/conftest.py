"""What holds for every test, wherever the run was started from."""

from __future__ import annotations

import os
import signal

# Two threads on a busy two-core machine made tiny models 20 times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure() -> None:
    """Signals mean to the programs under test what they mean in a terminal.

    A run in the background of a script, or under `nohup`, is started with some of them ignored, and hands that on.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
