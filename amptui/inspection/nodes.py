"""What a pickle stream describes, as inert values: nothing here was imported, called or built from the file.

Plain data (numbers, text, bytes, lists, tuples, dicts) stands for itself. Whatever a real load would import is a
`Global`, whatever it would call is a `Call`, and the bytes of a tensor are a `Storage` that says where they lie.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

#: Any inert value. The walker promises only what this module lists, so readers check before they use.
Node: TypeAlias = Any

#: Bytes per element, by torch's dtype names.
ITEMSIZE: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
    "complex128": 16,
    "complex64": 8,
    "complex32": 4,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
    "qint8": 1,
    "quint8": 1,
    "qint32": 4,
    "quint4x2": 1,
    "quint2x4": 1,
}

#: The dtypes that hold real floating point numbers of 16 bits.
HALF = frozenset({"float16", "bfloat16"})


@dataclass(frozen=True, slots=True, eq=False)
class Global:
    """A name that a real load would import: `module` and the dotted `name` within it."""

    module: str
    name: str

    @property
    def dotted(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class Call:
    """A call that a real load would make, and what it would then fill into the result."""

    callee: Node
    args: Node = ()
    state: Node = None
    items: list[Node] = field(default_factory=list)
    pairs: dict[Node, Node] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The dotted name of what would be called, or "" where that is itself computed."""
        return self.callee.dotted if isinstance(self.callee, Global) else ""


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """A value that is not worth holding or not safe to hold (a number of a million digits), in words."""

    words: str


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """The bytes behind one or more tensors: `key` names them in their container, `numel` counts elements."""

    key: str
    numel: int
    dtype: str
    device: str


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A tensor's description. `problem` says why its claim cannot be true, "" where it can."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...] = ()
    offset: int = 0
    storage: Storage | None = None
    problem: str = ""

    @property
    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def span(self) -> int:
        """How many elements of its storage the tensor reaches over, from `offset` on."""
        if not self.numel:
            return 0
        return 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))


def mapping_of(node: Node) -> dict[Node, Node] | None:
    """The names a value holds: a dict itself, the attributes of an object, or what would be set on it."""
    if isinstance(node, dict):
        return node
    if isinstance(node, Call):
        state = node.state
        if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
            return state[1]  # (None, slots)
        if isinstance(state, dict):
            return state
        return node.pairs or None
    return None


def sequence_of(node: Node) -> Sequence[Node] | None:
    """The items a value holds in order: a list or tuple itself, or what would be appended to an object."""
    if isinstance(node, list | tuple):
        return node
    if isinstance(node, Call):
        if node.items:
            return node.items
        if isinstance(node.args, tuple) and len(node.args) == 1 and isinstance(node.args[0], list):
            return node.args[0]
    return None


_NUMPY_FORMATS = {"f2": "e", "f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q"}
_NUMPY_FORMATS.update({"u1": "B", "u2": "H", "u4": "I", "u8": "Q"})


def number_of(node: Node) -> int | float | None:
    """The number that `node` is, else None. A numpy scalar is one; True and integers beyond 256 bits are not."""
    if isinstance(node, bool):
        return None
    if isinstance(node, int):
        return node if node.bit_length() <= 256 else None
    if isinstance(node, float):
        return node
    if isinstance(node, Call) and node.name.endswith("multiarray.scalar"):
        return _numpy_scalar(node.args)
    return None


def _numpy_scalar(args: Node) -> int | float | None:
    if not (isinstance(args, tuple) and len(args) == 2 and isinstance(args[0], Call) and isinstance(args[1], bytes)):
        return None
    described = args[0].args
    code = described[0] if isinstance(described, tuple) and described else None
    form = _NUMPY_FORMATS.get(code) if isinstance(code, str) else None
    if form is None or struct.calcsize("<" + form) != len(args[1]):
        return None
    value = struct.unpack("<" + form, args[1])[0]
    return value if isinstance(value, int | float) else None
