"""A series of float32 values as one immutable value."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload


class Floats(Sequence[float]):
    """An immutable series of float32 values, packed; equal where the bits are equal (so NaN equals the same NaN).

    Values are rounded to float32; what lies beyond its range becomes infinite.
    """

    __slots__ = ("_bytes", "_view")

    def __init__(self, data: bytes = b"") -> None:
        """`data`: little-endian float32 values, 4 bytes each."""
        if len(data) % 4:
            raise ValueError(f"{len(data)} bytes are no series of 4-byte floats")
        self._bytes = bytes(data)
        self._view = memoryview(_native(self._bytes)).cast("f")

    @classmethod
    def of(cls, values: Iterable[float]) -> Floats:
        return cls(_native(array("f", values).tobytes()))

    def tobytes(self) -> bytes:
        """The values as little-endian float32."""
        return self._bytes

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> Floats: ...
    def __getitem__(self, index: int | slice) -> float | Floats:
        if isinstance(index, slice):
            return Floats.of(self._view[index])
        return self._view[index]

    def __len__(self) -> int:
        return len(self._view)

    def __iter__(self) -> Iterator[float]:
        return iter(self._view.tolist())

    def __eq__(self, other: object) -> bool:
        return self._bytes == other._bytes if isinstance(other, Floats) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __reduce__(self) -> tuple[type[Floats], tuple[bytes]]:
        return Floats, (self._bytes,)

    def __repr__(self) -> str:
        shown = ", ".join(f"{value:g}" for value in self[:6])
        return f"Floats([{shown}{', …' if len(self) > 6 else ''}])"


def _native(data: bytes) -> bytes:
    """Little-endian float32 to the machine's order, or back."""
    if sys.byteorder == "little":
        return data
    values = array("f", data)
    values.byteswap()
    return values.tobytes()
