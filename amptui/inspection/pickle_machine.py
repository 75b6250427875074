"""The state that a pickle stream works on: its stack, its memo, and what a real load would import and call.

Nothing is imported and nothing is called; what a call would give is worked out only where that is plain data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from amptui.inspection.nodes import Call, Global, Node, Tensor, mapping_of
from amptui.inspection.rebuild import key_of, rebuilt

MAX_LINE = 1 << 16


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


class BrokenError(Exception):
    """The stream is not a pickle from here on."""


class ShortError(BrokenError):
    """The bytes ended before the stream did."""


@dataclass(slots=True)
class Machine:
    """A walk in progress: the bytes, the place in them, the stack with its marks, and the memo."""

    data: bytes
    position: int
    stack: list[Node] = field(default_factory=list)
    marked: list[list[Node]] = field(default_factory=list)
    memo: dict[int, Node] = field(default_factory=dict)
    named: dict[tuple[str, str], Global] = field(default_factory=dict)
    code: Code = field(default_factory=Code)

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
            raise ShortError(f"byte {start}: {count:,} bytes announced, {len(self.data) - start:,} there")
        self.position = end
        return self.data[start:end]

    def number(self, form: struct.Struct) -> int:
        start = self.position
        try:
            (value,) = form.unpack_from(self.data, start)
        except struct.error:
            raise ShortError("the pickle ends within a number") from None
        self.position = start + form.size
        return value  # type: ignore[no-any-return]

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.position, self.position + MAX_LINE)
        if end < 0:
            if self.position + MAX_LINE > len(self.data):
                raise ShortError("the pickle ends within a line")
            raise BrokenError(f"byte {self.position}: a line of more than {MAX_LINE} bytes")
        text = self.data[self.position : end]
        self.position = end + 1
        return text

    # The stack

    def pop(self) -> Node:
        if not self.stack:
            raise BrokenError(f"byte {self.position}: the stack is empty")
        return self.stack.pop()

    def top(self) -> Node:
        if not self.stack:
            raise BrokenError(f"byte {self.position}: the stack is empty")
        return self.stack[-1]

    def pop_mark(self) -> list[Node]:
        if not self.marked:
            raise BrokenError(f"byte {self.position}: no mark on the stack")
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
            raise BrokenError(f"byte {self.position}: a key without a value")
        pairs = ((key_of(key), value) for key, value in zip(items[::2], items[1::2], strict=True))
        if isinstance(target, dict):
            target.update(pairs)
        elif isinstance(target, Call):
            target.pairs.update(pairs)
        else:
            raise BrokenError(f"byte {self.position}: entries set on something that is not a dict")

    def extend(self, target: Node, items: list[Node]) -> None:
        if isinstance(target, list):
            target.extend(items)
        elif isinstance(target, Call):
            target.items.extend(items)
        else:
            raise BrokenError(f"byte {self.position}: items appended to something that is not a list")

    def build(self) -> None:
        state = self.pop()
        target = self.top()
        if isinstance(target, Call):
            target.state = state
            if any(name in (mapping_of(target) or ()) for name in _CALLED_ATTRIBUTES):
                self.code.computed_calls += 1  # set as attributes, a later opcode would call these
        elif not isinstance(target, dict | list | Tensor | Global):
            raise BrokenError(f"byte {self.position}: attributes set on plain data")


#: What the unpickler looks up on an object, and calls: BUILD, APPEND, APPENDS and ADDITEMS.
_CALLED_ATTRIBUTES = ("__setstate__", "append", "extend", "add")


def _member(args: Node) -> tuple[str, str] | None:
    if not (isinstance(args, tuple) and len(args) == 2 and isinstance(args[0], Global) and isinstance(args[1], str)):
        return None
    owner, name = args
    return (owner.module, f"{owner.name}.{name}") if name.isidentifier() and not name.startswith("_") else None
