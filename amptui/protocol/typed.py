"""Dataclasses to plain JSON values and back, by their annotations; compiled once per type.

What the forms are is said in `amptui.protocol.codec`.
"""

from __future__ import annotations

import base64
import binascii
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from amptui.protocol.floats import Floats

NONFINITE: Mapping[str, float] = types.MappingProxyType({"nan": math.nan, "inf": math.inf, "-inf": -math.inf})


class ProtocolError(ValueError):
    """A line that is no event or command, or a value that cannot be written as one."""


Writer = Callable[[Any], Any]
Reader = Callable[[Any], Any]

#: Keys that mark a value inside `object`; an object of the user's own with such a single key is wrapped.
_TAGS = frozenset({"float", "object"})


def _as_is(value: Any) -> Any:
    return value


@cache
def writer_of(kind: type) -> Callable[[Any], dict[str, Any]]:
    hints = get_type_hints(kind)
    named = [(field.name, write_of(hints[field.name])) for field in fields(kind)]
    plain = [name for name, write in named if write is _as_is]
    other = [(name, write) for name, write in named if write is not _as_is]

    def write(value: Any) -> dict[str, Any]:
        if type(value) is not kind:
            raise TypeError(f"{type(value).__name__} where {kind.__name__} is due")
        out = {name: getattr(value, name) for name in plain}
        for name, convert in other:
            out[name] = convert(getattr(value, name))
        return out

    return write


def write_of(hint: Any) -> Writer:
    """How a value annotated `hint` becomes plain JSON."""
    if hint in _WRITERS:
        return _WRITERS[hint]
    if is_dataclass(hint) and isinstance(hint, type):
        return writer_of(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _as_is
    if origin in (Union, types.UnionType):
        return _write_union(arguments)
    if origin is Mapping:
        return _write_mapping(write_of(arguments[1]))
    if origin in (tuple, Sequence):
        return _write_sequence(write_of(arguments[0]))
    raise TypeError(f"no JSON is defined for {hint!r}")


def _write_float(value: Any) -> Any:
    return value if value - value == 0 else name_of(value)


def name_of(value: float) -> str:
    return "nan" if value != value else "inf" if value > 0 else "-inf"  # noqa: PLR0124 - NaN alone differs from itself


def _write_floats(value: Floats) -> dict[str, str]:
    return {"f32": binascii.b2a_base64(value.tobytes(), newline=False).decode("ascii")}


def _write_sequence(write: Writer) -> Writer:
    return list if write is _as_is else lambda value: [write(item) for item in value]


def _write_mapping(write: Writer) -> Writer:
    return lambda value: {text_key(key): write(item) for key, item in value.items()}


def text_key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r} is no text")
    return key


def _write_union(members: tuple[Any, ...]) -> Writer:
    if set(members) == {float, type(None)}:
        return lambda value: None if value is None else _write_float(value)
    objects = [write_of(member) for member in members if _is_object(member)]
    if len(objects) > 1:
        raise TypeError(f"a union of two kinds of object cannot be told apart: {members!r}")
    # Strings and floats side by side: a bare "nan" could be either.
    write_number = _write_object if any(_is_text(member) for member in members) else _write_float

    def write(value: Any) -> Any:
        if isinstance(value, float):
            return write_number(value)
        if value is None or isinstance(value, str | int):
            return value
        if not objects:
            raise TypeError(f"{type(value).__name__} is none of {members!r}")
        return objects[0](value)

    return write


def _is_text(hint: Any) -> bool:
    return hint is str or get_origin(hint) is Literal


def _is_object(hint: Any) -> bool:
    return is_dataclass(hint) or get_origin(hint) is Mapping


def _write_object(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else {"float": name_of(value)}
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        plain = {text_key(key): _write_object(item) for key, item in value.items()}
        return {"object": plain} if len(plain) == 1 and not plain.keys().isdisjoint(_TAGS) else plain
    if isinstance(value, list | tuple):
        return [_write_object(item) for item in value]
    raise TypeError(f"{type(value).__name__} is no plain value")


_WRITERS: Mapping[Any, Writer] = {
    str: _as_is,
    int: _as_is,
    bool: _as_is,
    type(None): _as_is,
    float: _write_float,
    object: _write_object,
    Floats: _write_floats,
}


@cache
def reader_of(kind: type) -> Reader:
    hints = get_type_hints(kind)
    readers = {field.name: read_of(hints[field.name]) for field in fields(kind)}
    required = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]

    def read(value: Any) -> Any:
        data = read_object(value)
        for name in required:
            if name not in data:
                raise ProtocolError(f"{name} is missing")
        given = {}
        for name, convert in readers.items():
            if name in data:
                try:
                    given[name] = convert(data[name])
                except ProtocolError as error:
                    raise ProtocolError(f"{name}: {error}") from None
        try:
            return kind(**given)
        except ValueError as error:  # a policy or criterion that refuses its values
            raise ProtocolError(str(error)) from error

    return read


def read_of(hint: Any) -> Reader:
    """How plain JSON becomes a value annotated `hint`; the reader raises `ProtocolError` for anything else."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if is_dataclass(hint) and isinstance(hint, type):
        return reader_of(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _read_literal(arguments)
    if origin in (Union, types.UnionType):
        return _read_union(arguments)
    if origin is Mapping:
        read = read_of(arguments[1])
        return lambda value: {key: read(item) for key, item in read_object(value).items()}
    if origin in (tuple, Sequence):
        return _read_sequence(read_of(arguments[0]))
    raise TypeError(f"no JSON is defined for {hint!r}")


def _wrong(value: object, wanted: str) -> ProtocolError:
    return ProtocolError(f"{str(value)[:80]!r} ({type(value).__name__}) where {wanted} is due")


def read_object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise _wrong(value, "an object")
    return value


def _str(value: Any) -> str:
    if type(value) is not str:
        raise _wrong(value, "text")
    return value


def read_int(value: Any) -> int:
    if type(value) is not int:
        raise _wrong(value, "a whole number")
    return value


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise _wrong(value, "true or false")
    return value


def _none(value: Any) -> None:
    if value is not None:
        raise _wrong(value, "null")


def read_float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise _wrong(value, "a number") from None
    if type(value) is str and value in NONFINITE:
        return NONFINITE[value]
    raise _wrong(value, "a number")


def _floats(value: Any) -> Floats:
    text = _str(read_object(value).get("f32"))
    try:
        return Floats(base64.b64decode(text, validate=True))
    except ValueError as error:
        raise ProtocolError(f"no packed floats: {error}") from None


def _any(value: Any) -> Any:
    if type(value) is list:
        return [_any(item) for item in value]
    if type(value) is not dict:
        return value
    if len(value) == 1:
        tag, inner = next(iter(value.items()))
        if tag == "float" and type(inner) is str and inner in NONFINITE:
            return NONFINITE[inner]
        if tag == "object":
            return {key: _any(item) for key, item in read_object(inner).items()}
    return {key: _any(item) for key, item in value.items()}


_SCALARS: Mapping[Any, Reader] = {
    str: _str,
    int: read_int,
    float: read_float,
    bool: _bool,
    type(None): _none,
    object: _any,
    Floats: _floats,
}


def _read_literal(choices: tuple[Any, ...]) -> Reader:
    def read(value: Any) -> Any:
        for choice in choices:
            if value == choice and type(value) is type(choice):
                return choice
        raise _wrong(value, " or ".join(map(str, choices)))

    return read


def _read_sequence(read: Reader) -> Reader:
    def read_all(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise _wrong(value, "a list")
        return tuple(map(read, value))

    return read_all


def _read_union(members: tuple[Any, ...]) -> Reader:
    # Exact types first, so that a whole number in `float | int` stays one.
    exact = {member: _SCALARS[member] for member in members if member in (str, int, bool, type(None))}
    others = [read_of(member) for member in members if member not in exact]
    tagged = float in members and any(_is_text(member) for member in members)

    def read(value: Any) -> Any:
        reader = exact.get(type(value))
        if reader is not None:
            return value
        if tagged and type(value) is dict and value.keys() == {"float"}:
            return _any(value)
        problem = _wrong(value, f"one of {len(members)} types")
        for attempt in others:
            try:
                return attempt(value)
            except ProtocolError as error:
                problem = error
        raise problem

    return read
