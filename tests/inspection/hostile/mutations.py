"""Damaged and malicious variants of good files: random bytes, and changes that know pickles and zips."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_OPCODES = b"(.0123FINJKMLTUXBCG]}l)tdubeasRcioqrhjgpQPVS"
_OPCODES += b"\x80\x81\x82\x84\x85\x86\x87\x88\x8a\x8b\x8c\x8d\x8e\x91\x92\x93\x94\x95\x96"


def mutated(data: bytes, others: Sequence[bytes], draw: random.Random) -> bytes:
    """One to four random changes of `data`; pieces of `others` may be spliced in."""
    changed = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        if changed:
            draw.choice(_CHANGES)(changed, others, draw)
    return bytes(changed)


def _flip(data: bytearray, others: Sequence[bytes], draw: random.Random) -> None:
    at = draw.randrange(len(data))
    data[at] ^= 1 << draw.randrange(8)


def _byte(data: bytearray, others: Sequence[bytes], draw: random.Random) -> None:
    data[draw.randrange(len(data))] = draw.choice((0, 0xFF, 0x7F, draw.randrange(256)))


def _opcode(data: bytearray, others: Sequence[bytes], draw: random.Random) -> None:
    data[draw.randrange(min(len(data), 4096))] = draw.choice(_OPCODES)


def _number(data: bytearray, others: Sequence[bytes], draw: random.Random) -> None:
    at = draw.randrange(len(data))
    data[at : at + 4] = struct.pack("<I", draw.choice(_NUMBERS))


def _large_number(data: bytearray, others: Sequence[bytes], draw: random.Random) -> None:
    at = draw.randrange(len(data))
    data[at : at + 8] = struct.pack("<Q", draw.choice((1 << 31, 1 << 40, 1 << 62, (1 << 64) - 1)))


def _cut(data: bytearray, others: Sequence[bytes], draw: random.Random) -> None:
    del data[draw.randrange(len(data)) :]


def _remove(data: bytearray, others: Sequence[bytes], draw: random.Random) -> None:
    at = draw.randrange(len(data))
    del data[at : at + draw.choice((1, 2, 8, 64, 512))]


def _repeat(data: bytearray, others: Sequence[bytes], draw: random.Random) -> None:
    at = draw.randrange(len(data))
    data[at:at] = data[at : at + draw.choice((1, 4, 32, 256))] * draw.choice((1, 2, 50))


def _splice(data: bytearray, others: Sequence[bytes], draw: random.Random) -> None:
    other = draw.choice(others)
    at, begin = draw.randrange(len(data)), draw.randrange(len(other))
    length = draw.choice((4, 32, 300, 2000))
    data[at : at + length] = other[begin : begin + length]


def _zeros(data: bytearray, others: Sequence[bytes], draw: random.Random) -> None:
    at = draw.randrange(len(data))
    length = min(len(data) - at, draw.choice((16, 256, 4096)))
    data[at : at + length] = bytes(length)


_CHANGES = (_flip, _flip, _byte, _opcode, _opcode, _number, _large_number, _cut, _remove, _repeat, _splice, _zeros)


def mutants(corpus: Sequence[bytes], count: int, seed: int) -> Iterator[bytes]:
    """`count` mutants of the files in `corpus`, the same for the same seed."""
    draw = random.Random(seed)
    for index in range(count):
        yield mutated(corpus[index % len(corpus)], corpus, draw)
