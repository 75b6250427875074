"""Small files that would take gigabytes, minutes or the process itself if a reader believed them."""

from __future__ import annotations

import json
import pickle
import struct
import zlib

from tests.inspection.writer import torch_zip_bytes, zip_bytes


def _deep(opening: bytes, closing: bytes, depth: int) -> bytes:
    return b"\x80\x02" + opening * depth + closing * (depth - 1) + b"."


def _doubling(levels: int) -> bytes:
    """A list of 2^levels leaves in a few bytes a level: each holds the one before twice."""
    body = b"\x80\x02]q\0"
    for level in range(levels):
        at, new = bytes([level % 200]), bytes([(level + 1) % 200])
        body += b"](h" + at + b"h" + at + b"eq" + new
    return body + b"."


def _text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _tensor(size: bytes, stride: bytes) -> bytes:
    storage = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu") + b"K\1tQ"
    body = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0" + size + stride + b"\x89NtR"
    return zip_bytes([("a/data.pkl", b"\x80\x02}" + _text("w") + body + b"s."), ("a/data/0", bytes(4))])


def _long(number: int) -> bytes:
    return pickle.dumps(number, 2)[2:-1]


def _deflated_member() -> bytes:
    """A data.pkl of 400 MB in 400 kB, as torch would inflate it."""
    inner = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = inner.compress(b"\x80\x02(")
    for _ in range(400):
        packed += inner.compress(b"K\1" * (1 << 19))
    packed += inner.compress(b"l.") + inner.flush()
    out = struct.pack("<4s5H3L2H", b"PK\3\4", 0, 0, 8, 0, 0, 0, len(packed), 400 << 20, 10, 0) + b"a/data.pkl" + packed
    head = (b"PK\1\2", 0, 0, 0, 8, 0, 0, 0, len(packed), 400 << 20, 10, 0, 0, 0, 0, 0, 0)
    central = struct.pack("<4s6H3L5H2L", *head) + b"a/data.pkl"
    return out + central + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(central), len(out), 0)


def _many_members(count: int) -> bytes:
    return zip_bytes([("a/data.pkl", b"\x80\x02}."), *((f"a/data/{index}", b"") for index in range(count))])


BOMBS: dict[str, bytes] = {
    "bytearray of 2^36": b"\x80\x02cbuiltins\nbytearray\n" + _long(2**36) + b"\x85R.",
    "tensor class of 2^36": b"\x80\x02ctorch\nFloatTensor\n" + _long(2**36) + b"\x85R.",
    "memo index of 2^32": b"\x80\x02]r\xff\xff\xff\xff.",
    "text of 2^63 bytes": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 63) + b"a.",
    "bytes of 2^31": b"\x80\x03B" + struct.pack("<I", 1 << 31) + b"a.",
    "number of 2^31 bytes": b"\x80\x02\x8b" + struct.pack("<I", (1 << 31) - 1) + b"a.",
    "number of a million digits": b"I" + b"9" * 1_000_000 + b"\n.",
    "number of 60,000 digits": b"\x80\x02}" + _text("scale") + b"I" + b"9" * 60_000 + b"\ns.",
    "float of 60,000 digits": b"F" + b"9" * 60_000 + b"\n.",
    "5,000,000 opcodes": b"\x80\x02" + b"N0" * 2_600_000 + b"N.",
    "1,000,000 marks": b"\x80\x02" + b"(" * 1_000_000 + b"N.",
    "1,000,000 lists": b"\x80\x02](" + b"]" * 1_000_000 + b"e.",
    "100,000 lists deep": _deep(b"]", b"a", 100_000),
    "100,000 tuples deep": b"\x80\x02N" + b"\x85" * 100_000 + b".",
    "100,000 tuples deep as a key": b"\x80\x02}N" + b"\x85" * 100_000 + b"Ns.",
    "100,000 dicts deep": b"\x80\x02" + b"}K\1" * 100_000 + b"N" + b"s" * 100_000 + b".",
    "100,000 calls deep": b"\x80\x02ca\nB\nq\0" + b"h\0" * 100_000 + b")R" + b"\x85R" * 100_000 + b".",
    "a list that holds itself": b"\x80\x02]q\0h\0a.",
    "a dict that holds itself": b"\x80\x02}q\0" + _text("a") + b"h\0s.",
    "an object that is its own state": b"\x80\x02ca\nB\n)\x81q\0h\0b.",
    "2^60 leaves": _doubling(60),
    "2^190 leaves": _doubling(190),
    "10^12 elements of stride zero": _tensor(b"(" + _long(10**12) + b"t", b"(K\0t"),
    "64 dimensions of 2^61": _tensor(b"(" + _long(2**61) * 64 + b"t", b"(" + b"K\0" * 64 + b"t"),
    "65 dimensions": _tensor(b"(" + b"K\1" * 65 + b"t", b"(" + b"K\0" * 65 + b"t"),
    "a negative size": _tensor(b"(" + _long(-5) + b"t", b"(K\1t"),
    "inflates to 400 MB": _deflated_member(),
    "60,000 members": _many_members(60_000),
    "directory of 2^64 members": b"PK\3\4"
    + bytes(100)
    + struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 0, 0, 0, 0, (1 << 64) - 1, (1 << 64) - 1, (1 << 64) - 1, 0)
    + struct.pack("<4sLQL", b"PK\6\7", 0, 104, 1)
    + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0),
    "1 MB key": torch_zip_bytes({"k" * (1 << 20): {"scale": 1.0, "_growth_tracker": 1}}),
    "100,000 keys": torch_zip_bytes({f"layer.{index}": index for index in range(100_000)}),
    "safetensors header of 2^63": struct.pack("<Q", 1 << 63) + b'{"a":1}',
    "safetensors header of 99 MB, absent": struct.pack("<Q", 99_000_000) + b'{"a":1}',
    "JSON nested 100,000 deep": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "safetensors header nested 100,000 deep": struct.pack("<Q", 200_006)
    + b'{"a":'
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}",
    "safetensors of 10^400 elements": struct.pack("<Q", 200)
    + json.dumps({"a": {"dtype": "F32", "shape": [1 << 61] * 6, "data_offsets": [0, 4]}}).encode().ljust(200)
    + bytes(4),
    "protocol 0 lines": b"(" + b"lp0\n" * 100_000,
    "extension codes": b"\x80\x02" + b"\x84\xff\xff\xff\x7f" * 100_000 + b".",
}
