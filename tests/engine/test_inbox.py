"""Commands keep their order; pause, cancel and close overtake them."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from amptui.engine.inbox import Inbox
from amptui.protocol.commands import Cancel, Close, Continue, Pause, RunBaseline, RunTrial


def test_commands_come_in_their_order() -> None:
    inbox = Inbox()
    inbox.put(RunBaseline())
    inbox.put(RunTrial())

    assert [inbox.poll(), inbox.next(), inbox.poll()] == [RunBaseline(), RunTrial(), None]


def test_next_waits_no_longer_than_told() -> None:
    start = time.monotonic()

    assert Inbox().next(timeout=0.05) is None
    assert 0.04 < time.monotonic() - start < 2


def test_next_wakes_for_what_another_thread_puts() -> None:
    inbox = Inbox()
    threading.Timer(0.05, inbox.put, [Continue()]).start()

    assert inbox.next(timeout=10) == Continue()


def test_cancel_reaches_the_stage_that_runs_before_the_queue_does() -> None:
    inbox = Inbox()
    inbox.put(RunBaseline())
    inbox.put(Cancel())

    assert inbox.cancel_asked
    assert inbox.next() == RunBaseline(), "the stage it was meant for"
    assert inbox.take_cancel()
    assert not inbox.cancel_asked
    assert inbox.poll() is None, "taken is taken"


@pytest.mark.parametrize("command", [Pause(), Cancel()])
def test_where_nothing_runs_they_come_like_any_command(command: Pause | Cancel) -> None:
    inbox = Inbox()
    inbox.put(command)

    assert inbox.next(timeout=5) == command
    assert inbox.poll() is None
    assert not inbox.pause_asked
    assert not inbox.cancel_asked


def test_close_stays_and_comes_first() -> None:
    inbox = Inbox()
    inbox.put(RunBaseline())
    inbox.put(Close())
    inbox.close("later reason")

    assert inbox.closing == "asked to"
    assert [inbox.next(), inbox.next(), inbox.poll()] == [Close()] * 3


def test_close_wakes_one_that_waits() -> None:
    inbox = Inbox()
    threading.Timer(0.05, inbox.close, ["enough"]).start()

    assert inbox.next(timeout=10) == Close()


def test_a_signal_handler_may_close_while_the_same_thread_waits() -> None:
    inbox = Inbox()
    before = signal.signal(signal.SIGUSR1, lambda *_: inbox.close("signal"))
    try:
        threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        assert inbox.next(timeout=10) == Close()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_client_that_leaves_pauses_or_ends_the_engine() -> None:
    waiting, stopping = Inbox("wait"), Inbox("stop")
    for inbox in (waiting, stopping):
        inbox.client_came()
        assert (inbox.connected, inbox.alone_since) == (True, None)
        inbox.client_left()

    assert (waiting.closing, waiting.pause_asked, waiting.connected) == (None, True, False)
    assert waiting.alone_since is not None
    assert stopping.closing == "the client is gone"
