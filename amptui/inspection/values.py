"""Counts values that are not finite, and tensors that are all zero, straight from the stored bytes.

Nothing is converted: a floating point number is not finite exactly if all bits of its exponent are set, and these
lie in its top byte or top two bytes, which strided slices pick out at memory speed. IEEE 754 and OCP 8-bit formats.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from amptui.inspection.containers.loaded import Extent, TensorBytes
from amptui.inspection.containers.source import CHUNK, DamagedError
from amptui.inspection.nodes import ITEMSIZE, Tensor

_ZEROS = bytes(CHUNK)


@dataclass(frozen=True, slots=True)
class Values:
    """A tensor's values: how many are not finite, how many of these minus infinity, and whether all are zero."""

    nonfinite: int
    minus_infinite: int
    zero: bool


@dataclass(frozen=True, slots=True)
class Damage:
    """Why a tensor's values could not be read, or that they do not match their checksum."""

    problem: str


@dataclass(frozen=True, slots=True)
class _Form:
    """Where a format's exponent lies: masks for its top byte and the byte below (0: not needed)."""

    size: int
    top: int
    below: int
    minus_infinity: int
    code: str


_FORMS = {
    "float64": _Form(8, 0x7F, 0xF0, 0xFFF0_0000_0000_0000, "Q"),
    "float32": _Form(4, 0x7F, 0x80, 0xFF80_0000, "I"),
    "float16": _Form(2, 0x7C, 0, 0xFC00, "H"),
    "bfloat16": _Form(2, 0x7F, 0x80, 0xFF80, "H"),
    "float8_e5m2": _Form(1, 0x7C, 0, 0xFC, "B"),
    "float8_e4m3fn": _Form(1, 0x7F, 0, -1, "B"),
}
_FORMS["complex128"], _FORMS["complex64"], _FORMS["complex32"] = (
    _FORMS[name] for name in ("float64", "float32", "float16")
)


def _table(mask: int) -> bytes:
    return bytes(byte & mask == mask for byte in range(256))


_TABLES = {mask: _table(mask) for mask in (0x7F, 0x7C, 0xF0, 0x80)}

#: Called with the bytes read so far and those to read.
Progress = Callable[[int, int], object]


def scan(
    wanted: Sequence[tuple[Tensor, TensorBytes]], progress: Progress | None = None
) -> Iterator[Values | Damage | None]:
    """For each tensor in turn its `Values`, a `Damage`, or None where it holds no floating point data.

    A storage's checksum is verified once, with the first tensor on it; tensors that share bytes share one reading.
    """
    total = sum(tensor.span * ITEMSIZE.get(tensor.dtype, 0) for tensor, _ in wanted)
    known: dict[tuple[int, str, int, int, str], Values | Damage | None] = {}
    verified: dict[tuple[int, str], str] = {}
    done = 0
    for tensor, data in wanted:
        length = tensor.span * ITEMSIZE.get(tensor.dtype, 0)
        if tensor.storage is None or tensor.problem:
            yield None
            continue
        key = (id(data), tensor.storage.key, tensor.offset, tensor.span, tensor.dtype)
        if key not in known:
            known[key] = _read(tensor, data, verified)
            done += length
            if progress is not None:
                progress(done, total)
        yield known[key]


def _read(tensor: Tensor, data: TensorBytes, verified: dict[tuple[int, str], str]) -> Values | Damage | None:
    storage = tensor.storage
    if storage is None:
        return None
    size, form = ITEMSIZE.get(tensor.dtype, 0), _FORMS.get(tensor.dtype)
    whole = (id(data), storage.key)
    try:
        extents = data.locate(storage)
        covers = tensor.offset == 0 and tensor.span == storage.numel and len(extents) == 1
        first = whole not in verified
        if first and not covers:
            verified[whole] = _checked(extents)
        big = extents[0].big_endian if extents else False
        crc = 0
        nonfinite = minus = 0
        zero = True
        for chunk in _range(extents, tensor.offset * size, tensor.span * size):
            if first and covers:
                crc = zlib.crc32(chunk, crc)
            if form is not None:
                count, below = _nonfinite(chunk, form, big_endian=big)
                nonfinite, minus = nonfinite + count, minus + below
            zero = zero and chunk == _ZEROS[: len(chunk)]
        if first and covers:
            verified[whole] = (
                "" if extents[0].checksum in (None, crc) else "its data does not match its stored checksum"
            )
    except DamagedError as error:
        return Damage(str(error))
    if verified.get(whole):
        return Damage(verified[whole])
    return Values(nonfinite, minus, zero and tensor.span > 0) if form is not None else None


def _checked(extents: Iterable[Extent]) -> str:
    for extent in extents:
        if extent.checksum is not None:
            crc = 0
            for chunk in extent.source.chunks(extent.offset, extent.length):
                crc = zlib.crc32(chunk, crc)
            if crc != extent.checksum:
                return "its data does not match its stored checksum"
    return ""


def _range(extents: Iterable[Extent], begin: int, count: int) -> Iterator[bytes]:
    """`count` bytes from `begin` on of the extents laid end to end."""
    for extent in extents:
        if begin >= extent.length:
            begin -= extent.length
            continue
        here = min(count, extent.length - begin)
        yield from extent.source.chunks(extent.offset + begin, here)
        begin, count = 0, count - here
        if count <= 0:
            return


def _nonfinite(chunk: bytes, form: _Form, *, big_endian: bool) -> tuple[int, int]:
    """How many numbers of `chunk` are not finite, and how many of these are minus infinity."""
    top_at, below_at = (0, 1) if big_endian else (form.size - 1, form.size - 2)
    tops = chunk[top_at :: form.size].translate(_TABLES[form.top])
    count = tops.count(1)
    if count and form.below:
        belows = chunk[below_at :: form.size].translate(_TABLES[form.below])
        count = (int.from_bytes(tops, "little") & int.from_bytes(belows, "little")).bit_count()
    if not count or form.minus_infinity < 0:
        return count, 0
    numbers = array(form.code)
    numbers.frombytes(chunk[: len(chunk) // numbers.itemsize * numbers.itemsize])
    if big_endian:
        numbers.byteswap()
    return count, numbers.count(form.minus_infinity)
