"""Events and commands as JSON lines that keep NaN and infinity, and every other JSON that amptui writes.

One line is one object: ``{"kind": "Progressed", "stage": "trial", …}``, the fields as their dataclass declares them.
JSON has no NaN and no infinity and most writers turn them into null, which would erase what amptui is for:

- a field typed `float` (or `float | None`) holds them as the strings ``"nan"``, ``"inf"``, ``"-inf"``;
- where the type also allows a string or any value (`object`, `float | str`) they are ``{"float": "nan"}``, so that
  nothing is mistaken on the way back; a user's own one-key object with such a key travels as ``{"object": {…}}``;
- `Floats` (a series of float32) is ``{"f32": base64}`` of its little-endian bytes: 200 values cost about 2 µs.

Lines are ASCII and hold no newline. What is read is checked against the annotations: a wrong type, a missing field or
an unknown kind is refused; fields that a newer amptui added are ignored. Sequences come back as tuples, except inside
`object`, where a list stays a list.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING

from amptui.protocol.floats import Floats
from amptui.protocol.typed import (
    NONFINITE,
    ProtocolError,
    name_of,
    read_float,
    read_int,
    read_object,
    reader_of,
    text_key,
    writer_of,
)

if TYPE_CHECKING:
    from amptui.protocol.commands import Command
    from amptui.protocol.events import Event

__all__ = [
    "NONFINITE",
    "Envelope",
    "Floats",
    "ProtocolError",
    "UnknownKind",
    "decode",
    "decode_envelope",
    "encode",
    "encode_envelope",
    "to_json",
]


class UnknownKind(ProtocolError):
    """A well-formed object of a kind that this amptui does not know, such as one from a newer version."""


def encode(message: Event | Command) -> str:
    """`message` as one line of JSON, without the newline. Raises `ProtocolError` where a value is not plain."""
    kind: type = type(message)
    try:
        return _dumps({"kind": kind.__name__, **writer_of(kind)(message)})
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ProtocolError(f"{kind.__name__} cannot be written as JSON: {error}") from error


def decode(line: str | bytes) -> Event | Command:
    """The event or command that `line` holds. Raises `UnknownKind` or `ProtocolError`."""
    return _message(_loads(line))


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """An event with its place in the session: sequence number from 1, and the time (seconds since 1970)."""

    seq: int
    time: float
    event: Event


def encode_envelope(seq: int, time: float, event: str) -> str:
    """The line for an event that is `encode`d already."""
    return f'{{"seq":{seq},"time":{time!r},"event":{event}}}'


def decode_envelope(line: str | bytes) -> Envelope:
    data = read_object(_loads(line))
    try:
        seq, time, inner = read_int(data["seq"]), read_float(data["time"]), data["event"]
    except KeyError as missing:
        raise ProtocolError(f"the envelope has no {missing}") from None
    # Not at import: the facts that events carry need `Floats` from here.
    from amptui.protocol.events import Event  # noqa: PLC0415

    event = _message(inner)
    if not isinstance(event, Event):
        raise ProtocolError(f"{type(event).__name__} is a command, not an event")
    return Envelope(seq=seq, time=time, event=event)


def to_json(value: object) -> str:
    """Any plain value or dataclass as readable JSON; non-finite numbers are the strings "nan", "inf", "-inf".

    ASCII only: what a project named itself reaches no terminal as a control character. Raises `TypeError`.
    """
    return json.dumps(_spelled(value), indent=1, allow_nan=False)


def _spelled(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else name_of(value)
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {text_key(key): _spelled(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _spelled(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_spelled(item) for item in value]
    raise TypeError(f"{type(value).__name__} is no plain value")


_dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def _no_constant(name: str) -> float:
    raise ProtocolError(f"{name} is not JSON; amptui writes it as a string")


_parse = json.JSONDecoder(parse_constant=_no_constant).decode


def _loads(line: str | bytes) -> object:
    try:
        return _parse(line if isinstance(line, str) else line.decode("utf-8"))
    except ProtocolError:
        raise
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"no line of JSON: {error}") from error


@cache
def _kinds() -> Mapping[str, type[Event | Command]]:
    from amptui.protocol import commands, events  # noqa: PLC0415

    declared = [*vars(events).values(), *vars(commands).values()]
    bases = (events.Event, commands.Command)
    return {
        kind.__name__: kind
        for kind in declared
        if isinstance(kind, type) and issubclass(kind, bases) and kind not in bases
    }


def _message(data: object) -> Event | Command:
    data = read_object(data)
    kind = data.get("kind")
    if not isinstance(kind, str):
        raise ProtocolError("the object has no kind")
    known: type | None = _kinds().get(kind)
    if known is None:
        raise UnknownKind(f"unknown kind {kind[:80]!r}: it may come from a newer amptui")
    try:
        message: Event | Command = reader_of(known)(data)
    except ProtocolError as error:
        raise ProtocolError(f"{kind}: {error}") from error
    except RecursionError as error:
        raise ProtocolError(f"{kind}: nested too deeply") from error
    return message
