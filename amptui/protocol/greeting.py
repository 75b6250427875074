"""What is said on the line besides events and commands: who comes, who is told to wait, what was left out.

A client that connects says `Attach`; the engine answers `Hello`, or `Turned` away. The client that started the engine
need not ask: its first line from the engine is `Hello` too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from amptui.protocol.typed import ProtocolError, reader_of, writer_of


@dataclass(frozen=True, kw_only=True)
class Attach:
    """`take_over`: put the client that is attached now out."""

    pid: int
    take_over: bool = False


@dataclass(frozen=True, kw_only=True)
class Hello:
    """The client is attached: events up to `history` are in the session's store, all later ones come on this line."""

    pid: int
    amptui: str
    history: int


@dataclass(frozen=True, kw_only=True)
class Turned:
    """The client is not, or no longer, attached, and why; `by` is the process that is."""

    why: str
    by: int | None = None


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """So much telemetry was not sent since the last line, because the client did not read; the store has it."""

    events: int


Greeting = Attach | Hello | Turned | Dropped
_KINDS: dict[str, type] = {kind.__name__: kind for kind in (Attach, Hello, Turned, Dropped)}


def encode_greeting(greeting: Greeting) -> str:
    kind: type = type(greeting)
    return json.dumps({"greeting": kind.__name__, **writer_of(kind)(greeting)})


def decode_greeting(line: bytes) -> Greeting | None:
    """The greeting in `line`; None if it is something else. Raises ProtocolError for a malformed one."""
    if not line.startswith(b'{"greeting"'):
        return None
    try:
        data = json.loads(line)
        greeting: Greeting = reader_of(_KINDS[data["greeting"]])(data)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProtocolError(f"no greeting: {error}") from error
    return greeting
