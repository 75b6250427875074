"""What each pickle opcode does to a `Machine`, by its byte; the argument layouts are those of `pickletools`."""

from __future__ import annotations

import codecs
import pickle
import struct
from collections.abc import Callable

from amptui.inspection.nodes import Call, Global, Node, Opaque
from amptui.inspection.pickle_machine import BrokenError, Machine
from amptui.inspection.rebuild import storage_of

MAX_INTEGER_BYTES = 1024

_U1, _U2, _I4, _U4, _U8, _F8 = (struct.Struct(form) for form in ("<B", "<H", "<i", "<I", "<Q", ">d"))
Rule = Callable[[Machine], object]


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise BrokenError(f"text that is not UTF-8 ({error.reason})") from None


def _old_text(raw: bytes) -> str | bytes:
    """A Python 2 string: text where it is ASCII, else bytes."""
    return raw.decode("ascii") if raw.isascii() else raw


def _quoted(walk: Machine) -> str | bytes:
    raw = walk.line().strip()
    if len(raw) < 2 or raw[:1] != raw[-1:] or raw[:1] not in (b"'", b'"'):
        raise BrokenError("a string without its quotes")
    try:
        return _old_text(codecs.escape_decode(raw[1:-1])[0])
    except ValueError:
        raise BrokenError("a string with a broken escape") from None


def _raw_unicode(walk: Machine) -> str:
    try:
        return walk.line().decode("raw_unicode_escape")
    except UnicodeDecodeError:
        raise BrokenError("text with a broken escape") from None


def _integer_line(walk: Machine) -> Node:
    text = walk.line().rstrip(b"L")
    if text in (b"00", b"01"):
        return text == b"01"
    if len(text) > 2 * MAX_INTEGER_BYTES:
        return Opaque(f"a number of {len(text):,} digits")
    try:
        return int(text)
    except ValueError:
        raise BrokenError("a line that is not a number") from None


def _integer_bytes(walk: Machine, count: int) -> Node:
    raw = walk.take(count)
    return (
        int.from_bytes(raw, "little", signed=True) if count <= MAX_INTEGER_BYTES else Opaque(f"a {count:,}-byte number")
    )


def _float_line(walk: Machine) -> float:
    try:
        return float(walk.line())
    except ValueError:
        raise BrokenError("a line that is not a number") from None


def _index_line(walk: Machine) -> int:
    value = _integer_line(walk)
    if type(value) is not int:
        raise BrokenError("a line that is not a number")
    return value


def _global_line(walk: Machine) -> Global:
    module, name = walk.line(), walk.line()
    return walk.found(_text(module), _text(name))


def _stack_global(walk: Machine) -> None:
    name, module = walk.pop(), walk.pop()
    if not (isinstance(name, str) and isinstance(module, str)):
        raise BrokenError(f"byte {walk.position}: a global whose name is not text")
    walk.stack.append(walk.found(module, name))


def _get(walk: Machine, index: int) -> None:
    try:
        walk.stack.append(walk.memo[index])
    except KeyError:
        raise BrokenError(f"byte {walk.position}: memo entry {index} was never put") from None


def _put(walk: Machine, index: int) -> None:
    walk.memo[index] = walk.top()


def _mark(walk: Machine) -> None:
    walk.marked.append(walk.stack)
    walk.stack = []


def _tuple(walk: Machine, count: int) -> None:
    stack = walk.stack
    if len(stack) < count:
        raise BrokenError(f"byte {walk.position}: the stack is empty")
    stack[-count:] = [tuple(stack[-count:])]


def _dict(walk: Machine) -> None:
    items = walk.pop_mark()
    result: dict[Node, Node] = {}
    walk.set_items(result, items)
    walk.stack.append(result)


def _reduce(walk: Machine) -> None:
    args, callee = walk.pop(), walk.pop()
    walk.stack.append(walk.called(callee, args))


def _new_object(walk: Machine, *, keywords: bool) -> None:
    names = walk.pop() if keywords else None
    args, kind = walk.pop(), walk.pop()
    made = walk.called(kind, args, only_made=True)
    if isinstance(made, Call) and isinstance(names, dict):
        made.pairs.update(names)
    walk.stack.append(made)


def _object(walk: Machine) -> None:
    items = walk.pop_mark()
    if not items:
        raise BrokenError(f"byte {walk.position}: an object without a class")
    walk.stack.append(walk.called(items[0], tuple(items[1:])))


def _instance(walk: Machine) -> None:
    kind = _global_line(walk)
    walk.stack.append(walk.called(kind, tuple(walk.pop_mark())))


def _set_item(walk: Machine) -> None:
    value, key = walk.pop(), walk.pop()
    walk.set_items(walk.top(), [key, value])


def _set_items(walk: Machine) -> None:
    items = walk.pop_mark()
    walk.set_items(walk.top(), items)


def _append(walk: Machine) -> None:
    item = walk.pop()
    walk.extend(walk.top(), [item])


def _appends(walk: Machine) -> None:
    items = walk.pop_mark()
    walk.extend(walk.top(), items)


def _extension(walk: Machine, code: int) -> None:
    """A global named by a number of the reading process's own registry: what it would be cannot be told."""
    walk.stack.append(walk.found("copyreg", f"extension_{code}"))


def _persistent_line(walk: Machine) -> None:
    walk.line()
    walk.stack.append(Opaque("a reference to something outside the pickle"))


def _push(make: Callable[[Machine], Node]) -> Rule:
    def rule(walk: Machine) -> None:
        value = make(walk)  # first: it may change which list is the stack
        walk.stack.append(value)

    return rule


def _pop_any(walk: Machine) -> None:
    if walk.stack:
        walk.stack.pop()
    else:
        walk.pop_mark()  # as the standard library does: POP may remove a mark


_BY_NAME: dict[str, Rule] = {
    "MARK": _mark,
    "POP": _pop_any,
    "POP_MARK": lambda walk: walk.pop_mark(),
    "DUP": _push(lambda walk: walk.top()),
    "FLOAT": _push(_float_line),
    "INT": _push(_integer_line),
    "LONG": _push(_integer_line),
    "BININT": _push(lambda walk: walk.number(_I4)),
    "BININT1": _push(lambda walk: walk.number(_U1)),
    "BININT2": _push(lambda walk: walk.number(_U2)),
    "LONG1": _push(lambda walk: _integer_bytes(walk, walk.number(_U1))),
    "LONG4": _push(lambda walk: _integer_bytes(walk, walk.number(_U4))),
    "BINFLOAT": _push(lambda walk: walk.number(_F8)),
    "NONE": _push(lambda _: None),
    "NEWTRUE": _push(lambda _: True),
    "NEWFALSE": _push(lambda _: False),
    "STRING": _push(_quoted),
    "BINSTRING": _push(lambda walk: _old_text(walk.take(walk.number(_U4)))),
    "SHORT_BINSTRING": _push(lambda walk: _old_text(walk.take(walk.number(_U1)))),
    "UNICODE": _push(_raw_unicode),
    "SHORT_BINUNICODE": _push(lambda walk: _text(walk.take(walk.number(_U1)))),
    "BINUNICODE": _push(lambda walk: _text(walk.take(walk.number(_U4)))),
    "BINUNICODE8": _push(lambda walk: _text(walk.take(walk.number(_U8)))),
    "SHORT_BINBYTES": _push(lambda walk: walk.take(walk.number(_U1))),
    "BINBYTES": _push(lambda walk: walk.take(walk.number(_U4))),
    "BINBYTES8": _push(lambda walk: walk.take(walk.number(_U8))),
    "BYTEARRAY8": _push(lambda walk: walk.take(walk.number(_U8))),
    "NEXT_BUFFER": _push(lambda _: Opaque("a buffer outside the pickle")),
    "READONLY_BUFFER": lambda walk: walk.top(),
    "EMPTY_TUPLE": _push(lambda _: ()),
    "EMPTY_LIST": _push(lambda _: []),
    "EMPTY_DICT": _push(lambda _: {}),
    "EMPTY_SET": _push(lambda _: []),
    "TUPLE": _push(lambda walk: tuple(walk.pop_mark())),
    "TUPLE1": lambda walk: _tuple(walk, 1),
    "TUPLE2": lambda walk: _tuple(walk, 2),
    "TUPLE3": lambda walk: _tuple(walk, 3),
    "LIST": _push(lambda walk: walk.pop_mark()),
    "DICT": _dict,
    "FROZENSET": _push(lambda walk: walk.pop_mark()),
    "APPEND": _append,
    "APPENDS": _appends,
    "ADDITEMS": _appends,
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "GET": lambda walk: _get(walk, _index_line(walk)),
    "BINGET": lambda walk: _get(walk, walk.number(_U1)),
    "LONG_BINGET": lambda walk: _get(walk, walk.number(_U4)),
    "PUT": lambda walk: _put(walk, _index_line(walk)),
    "BINPUT": lambda walk: _put(walk, walk.number(_U1)),
    "LONG_BINPUT": lambda walk: _put(walk, walk.number(_U4)),
    "MEMOIZE": lambda walk: _put(walk, len(walk.memo)),
    "EXT1": lambda walk: _extension(walk, walk.number(_U1)),
    "EXT2": lambda walk: _extension(walk, walk.number(_U2)),
    "EXT4": lambda walk: _extension(walk, walk.number(_I4)),
    "GLOBAL": _push(_global_line),
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "BUILD": Machine.build,
    "INST": _instance,
    "OBJ": _object,
    "NEWOBJ": lambda walk: _new_object(walk, keywords=False),
    "NEWOBJ_EX": lambda walk: _new_object(walk, keywords=True),
    "PROTO": lambda walk: walk.take(1),
    "FRAME": lambda walk: walk.take(8),
    "PERSID": _persistent_line,
    "BINPERSID": _push(lambda walk: storage_of(walk.pop())),
}
OPCODES: dict[int, Rule] = {getattr(pickle, name)[0]: rule for name, rule in _BY_NAME.items()}
