"""What is said on the line besides events and commands."""

from __future__ import annotations

import pytest

from amptui.protocol.codec import ProtocolError, encode
from amptui.protocol.events import Goodbye
from amptui.protocol.greeting import Attach, Dropped, Greeting, Hello, Turned, decode_greeting, encode_greeting


@pytest.mark.parametrize(
    "greeting",
    [
        Attach(pid=3, take_over=True),
        Hello(pid=4, amptui="0.1.0", history=-1),
        Turned(why="someone else", by=5),
        Turned(why="no reason", by=None),
        Dropped(events=6),
    ],
)
def test_comes_back_as_it_was(greeting: Greeting) -> None:
    assert decode_greeting(encode_greeting(greeting).encode()) == greeting


def test_is_told_from_events() -> None:
    assert decode_greeting(encode(Goodbye(why="done")).encode()) is None


@pytest.mark.parametrize(
    "line",
    [
        '{"greeting": "Attach"}',
        '{"greeting": "Kiss"}',
        '{"greeting": "Attach", "pid": "3"}',
        '{"greeting"',
        '{"greeting": []}',
    ],
)
def test_malformed_is_refused(line: str) -> None:
    with pytest.raises(ProtocolError):
        decode_greeting(line.encode())
