"""Walks a pickle stream opcode by opcode and builds inert nodes; imports nothing, calls nothing.

The opcodes and their argument layouts are those of the standard library's `pickletools`. Bounds: the bytes that it is
given, `MAX_OPCODES`, no recursion anywhere, and no allocation larger than what the stream really holds.
"""

from __future__ import annotations

import codecs
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from amptui.inspection.nodes import Call, Global, Node, Opaque, Tensor, mapping_of
from amptui.inspection.rebuild import key_of, rebuilt, storage_of

MAX_OPCODES = 5_000_000
MAX_LINE = 1 << 16
MAX_INTEGER_BYTES = 1024


@dataclass(slots=True)
class Use:
    """What a stream does with a global.

    `calls` are real calls, `lookups` those among them that only name a member of a class, `makes` are objects made
    without a call (`cls.__new__`), which only classes allow.
    """

    calls: int = 0
    lookups: int = 0
    makes: int = 0


@dataclass(slots=True)
class Code:
    """What a real load would import and call."""

    globals: dict[Global, Use] = field(default_factory=dict)
    #: Calls of something that another call returned: what they would run cannot be told.
    computed_calls: int = 0
    #: The largest single number with which something is called: a load may allocate so much.
    largest_argument: int = 0

    def add(self, other: Code) -> None:
        """Take in what another stream would import and call."""
        self.globals.update(other.globals)
        self.computed_calls += other.computed_calls
        self.largest_argument = max(self.largest_argument, other.largest_argument)


@dataclass(frozen=True, slots=True)
class Walked:
    """A stream's value and how the walk ended.

    `problem` is "" where the stream was well formed; otherwise `root` is what had been built until then.
    `short` says that the bytes ran out; `end` is the offset after the last opcode read.
    """

    root: Node
    end: int
    code: Code
    problem: str = ""
    short: bool = False


class _BrokenError(Exception):
    """The stream is not a pickle from here on."""


class _ShortError(_BrokenError):
    """The bytes ended before the stream did."""


def walk(data: bytes, start: int = 0) -> Walked:
    """Read one pickle stream in `data` from `start` to its STOP. Never raises for what the stream holds."""
    state = _Walk(data, start)
    problem, short, root = "", False, None
    try:
        root = state.run()
    except _ShortError as error:
        problem, short = str(error), True
    except _BrokenError as error:
        problem = str(error)
    if problem:
        root = state.salvage()
    return Walked(root, state.position, state.code, problem, short)


@dataclass(slots=True)
class _Walk:
    data: bytes
    position: int
    stack: list[Node] = field(default_factory=list)
    marked: list[list[Node]] = field(default_factory=list)
    memo: dict[int, Node] = field(default_factory=dict)
    named: dict[tuple[str, str], Global] = field(default_factory=dict)
    code: Code = field(default_factory=Code)

    def run(self) -> Node:
        data, dispatch = self.data, _OPCODES
        for _ in range(MAX_OPCODES):
            try:
                opcode = data[self.position]
            except IndexError:
                raise _ShortError("the pickle ends before its end mark") from None
            self.position += 1
            if opcode == _STOP:
                return self.pop()
            rule = dispatch.get(opcode)
            if rule is None:
                raise _BrokenError(f"byte {self.position - 1}: 0x{opcode:02x} is not a pickle opcode")
            rule(self)
        raise _BrokenError(f"more than {MAX_OPCODES:,} opcodes")

    def salvage(self) -> Node:
        """What had been built when the stream broke: open marks are closed into the containers beneath them."""
        while self.marked:
            items, self.stack = self.stack, self.marked.pop()
            target = self.stack[-1] if self.stack else None
            if isinstance(target, dict):
                target.update((key_of(key), value) for key, value in zip(items[::2], items[1::2], strict=False))
            elif isinstance(target, list):
                target.extend(items)
        return self.stack[0] if self.stack else None

    # Reading arguments

    def take(self, count: int) -> bytes:
        start, end = self.position, self.position + count
        if end > len(self.data):
            raise _ShortError(f"byte {start}: {count:,} bytes announced, {len(self.data) - start:,} there")
        self.position = end
        return self.data[start:end]

    def number(self, form: struct.Struct) -> int:
        start = self.position
        try:
            (value,) = form.unpack_from(self.data, start)
        except struct.error:
            raise _ShortError("the pickle ends within a number") from None
        self.position = start + form.size
        return value  # type: ignore[no-any-return]

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.position, self.position + MAX_LINE)
        if end < 0:
            if self.position + MAX_LINE > len(self.data):
                raise _ShortError("the pickle ends within a line")
            raise _BrokenError(f"byte {self.position}: a line of more than {MAX_LINE} bytes")
        text = self.data[self.position : end]
        self.position = end + 1
        return text

    # The stack

    def pop(self) -> Node:
        if not self.stack:
            raise _BrokenError(f"byte {self.position}: the stack is empty")
        return self.stack.pop()

    def top(self) -> Node:
        if not self.stack:
            raise _BrokenError(f"byte {self.position}: the stack is empty")
        return self.stack[-1]

    def pop_mark(self) -> list[Node]:
        if not self.marked:
            raise _BrokenError(f"byte {self.position}: no mark on the stack")
        items, self.stack = self.stack, self.marked.pop()
        return items

    # What the opcodes build

    def found(self, module: str, name: str) -> Global:
        """The one node for this global, noted as used."""
        found = self.named.get((module, name))
        if found is None:
            found = self.named[module, name] = Global(module, name)
            self.code.globals[found] = Use()
        return found

    def called(self, callee: Node, args: Node, *, only_made: bool = False) -> Node:
        if not isinstance(callee, Global):
            self.code.computed_calls += 1
            return Call(callee, args)
        use = self.code.globals[callee]
        if only_made:
            use.makes += 1
            return rebuilt(callee, args)
        use.calls += 1
        if isinstance(args, tuple) and len(args) == 1 and type(args[0]) is int:
            self.code.largest_argument = max(self.code.largest_argument, args[0])
        if callee.name == "getattr" and callee.module in ("builtins", "__builtin__"):
            member = _member(args)
            if member is not None:  # getattr(SomeClass, "name") only names SomeClass.name
                use.lookups += 1
                return self.found(*member)
        result = rebuilt(callee, args)
        if isinstance(result, Call) and isinstance(result.callee, Global) and result.callee is not callee:
            self.code.globals[result.callee].makes += 1  # copyreg._reconstructor and the like
        return result

    def set_items(self, target: Node, items: list[Node]) -> None:
        if len(items) % 2:
            raise _BrokenError(f"byte {self.position}: a key without a value")
        pairs = ((key_of(key), value) for key, value in zip(items[::2], items[1::2], strict=True))
        if isinstance(target, dict):
            target.update(pairs)
        elif isinstance(target, Call):
            target.pairs.update(pairs)
        else:
            raise _BrokenError(f"byte {self.position}: entries set on something that is not a dict")

    def extend(self, target: Node, items: list[Node]) -> None:
        if isinstance(target, list):
            target.extend(items)
        elif isinstance(target, Call):
            target.items.extend(items)
        else:
            raise _BrokenError(f"byte {self.position}: items appended to something that is not a list")

    def build(self) -> None:
        state = self.pop()
        target = self.top()
        if isinstance(target, Call):
            target.state = state
            if any(name in (mapping_of(target) or ()) for name in _CALLED_ATTRIBUTES):
                self.code.computed_calls += 1  # set as attributes, a later opcode would call these
        elif not isinstance(target, dict | list | Tensor | Global):
            raise _BrokenError(f"byte {self.position}: attributes set on plain data")


#: What the unpickler looks up on an object, and calls: BUILD, APPEND, APPENDS and ADDITEMS.
_CALLED_ATTRIBUTES = ("__setstate__", "append", "extend", "add")


def _member(args: Node) -> tuple[str, str] | None:
    if not (isinstance(args, tuple) and len(args) == 2 and isinstance(args[0], Global) and isinstance(args[1], str)):
        return None
    owner, name = args
    return (owner.module, f"{owner.name}.{name}") if name.isidentifier() and not name.startswith("_") else None


_U1, _U2, _I4, _U4, _U8, _F8 = (struct.Struct(form) for form in ("<B", "<H", "<i", "<I", "<Q", ">d"))
_STOP = pickle.STOP[0]
_Rule = Callable[[_Walk], object]


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise _BrokenError(f"text that is not UTF-8 ({error.reason})") from None


def _old_text(raw: bytes) -> str | bytes:
    """A Python 2 string: text where it is ASCII, else bytes."""
    return raw.decode("ascii") if raw.isascii() else raw


def _quoted(walk: _Walk) -> str | bytes:
    raw = walk.line().strip()
    if len(raw) < 2 or raw[:1] != raw[-1:] or raw[:1] not in (b"'", b'"'):
        raise _BrokenError("a string without its quotes")
    try:
        return _old_text(codecs.escape_decode(raw[1:-1])[0])
    except ValueError:
        raise _BrokenError("a string with a broken escape") from None


def _raw_unicode(walk: _Walk) -> str:
    try:
        return walk.line().decode("raw_unicode_escape")
    except UnicodeDecodeError:
        raise _BrokenError("text with a broken escape") from None


def _integer_line(walk: _Walk) -> Node:
    text = walk.line().rstrip(b"L")
    if text in (b"00", b"01"):
        return text == b"01"
    if len(text) > 2 * MAX_INTEGER_BYTES:
        return Opaque(f"a number of {len(text):,} digits")
    try:
        return int(text)
    except ValueError:
        raise _BrokenError("a line that is not a number") from None


def _integer_bytes(walk: _Walk, count: int) -> Node:
    raw = walk.take(count)
    return (
        int.from_bytes(raw, "little", signed=True) if count <= MAX_INTEGER_BYTES else Opaque(f"a {count:,}-byte number")
    )


def _float_line(walk: _Walk) -> float:
    try:
        return float(walk.line())
    except ValueError:
        raise _BrokenError("a line that is not a number") from None


def _index_line(walk: _Walk) -> int:
    value = _integer_line(walk)
    if type(value) is not int:
        raise _BrokenError("a line that is not a number")
    return value


def _global_line(walk: _Walk) -> Global:
    module, name = walk.line(), walk.line()
    return walk.found(_text(module), _text(name))


def _stack_global(walk: _Walk) -> None:
    name, module = walk.pop(), walk.pop()
    if not (isinstance(name, str) and isinstance(module, str)):
        raise _BrokenError(f"byte {walk.position}: a global whose name is not text")
    walk.stack.append(walk.found(module, name))


def _get(walk: _Walk, index: int) -> None:
    try:
        walk.stack.append(walk.memo[index])
    except KeyError:
        raise _BrokenError(f"byte {walk.position}: memo entry {index} was never put") from None


def _put(walk: _Walk, index: int) -> None:
    walk.memo[index] = walk.top()


def _mark(walk: _Walk) -> None:
    walk.marked.append(walk.stack)
    walk.stack = []


def _tuple(walk: _Walk, count: int) -> None:
    stack = walk.stack
    if len(stack) < count:
        raise _BrokenError(f"byte {walk.position}: the stack is empty")
    stack[-count:] = [tuple(stack[-count:])]


def _dict(walk: _Walk) -> None:
    items = walk.pop_mark()
    result: dict[Node, Node] = {}
    walk.set_items(result, items)
    walk.stack.append(result)


def _reduce(walk: _Walk) -> None:
    args, callee = walk.pop(), walk.pop()
    walk.stack.append(walk.called(callee, args))


def _new_object(walk: _Walk, *, keywords: bool) -> None:
    names = walk.pop() if keywords else None
    args, kind = walk.pop(), walk.pop()
    made = walk.called(kind, args, only_made=True)
    if isinstance(made, Call) and isinstance(names, dict):
        made.pairs.update(names)
    walk.stack.append(made)


def _object(walk: _Walk) -> None:
    items = walk.pop_mark()
    if not items:
        raise _BrokenError(f"byte {walk.position}: an object without a class")
    walk.stack.append(walk.called(items[0], tuple(items[1:])))


def _instance(walk: _Walk) -> None:
    kind = _global_line(walk)
    walk.stack.append(walk.called(kind, tuple(walk.pop_mark())))


def _set_item(walk: _Walk) -> None:
    value, key = walk.pop(), walk.pop()
    walk.set_items(walk.top(), [key, value])


def _set_items(walk: _Walk) -> None:
    items = walk.pop_mark()
    walk.set_items(walk.top(), items)


def _append(walk: _Walk) -> None:
    item = walk.pop()
    walk.extend(walk.top(), [item])


def _appends(walk: _Walk) -> None:
    items = walk.pop_mark()
    walk.extend(walk.top(), items)


def _extension(walk: _Walk, code: int) -> None:
    """A global named by a number of the reading process's own registry: what it would be cannot be told."""
    walk.stack.append(walk.found("copyreg", f"extension_{code}"))


def _persistent_line(walk: _Walk) -> None:
    walk.line()
    walk.stack.append(Opaque("a reference to something outside the pickle"))


def _push(make: Callable[[_Walk], Node]) -> _Rule:
    def rule(walk: _Walk) -> None:
        value = make(walk)  # first: it may change which list is the stack
        walk.stack.append(value)

    return rule


def _pop_any(walk: _Walk) -> None:
    if walk.stack:
        walk.stack.pop()
    else:
        walk.pop_mark()  # as the standard library does: POP may remove a mark


_BY_NAME: dict[str, _Rule] = {
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
    "BUILD": _Walk.build,
    "INST": _instance,
    "OBJ": _object,
    "NEWOBJ": lambda walk: _new_object(walk, keywords=False),
    "NEWOBJ_EX": lambda walk: _new_object(walk, keywords=True),
    "PROTO": lambda walk: walk.take(1),
    "FRAME": lambda walk: walk.take(8),
    "PERSID": _persistent_line,
    "BINPERSID": _push(lambda walk: storage_of(walk.pop())),
}
_OPCODES: dict[int, _Rule] = {getattr(pickle, name)[0]: rule for name, rule in _BY_NAME.items()}
