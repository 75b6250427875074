"""Counting values that are not finite, in every format and byte order, without converting any."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path

import pytest

from amptui.inspection.containers.loaded import Extent, PlacedBytes
from amptui.inspection.containers.source import CHUNK, Source, opened
from amptui.inspection.nodes import ITEMSIZE, Storage, Tensor
from amptui.inspection.values import Damage, Values, scan

_STRUCT = {"float64": "d", "float32": "f", "float16": "e"}


def source_of(tmp_path: Path, data: bytes) -> Source:
    path = tmp_path / "data"
    path.write_bytes(data)
    return opened(path)


def one(
    tmp_path: Path, dtype: str, data: bytes, *, big_endian: bool = False, span: tuple[int, int] | None = None
) -> object:
    count = len(data) // ITEMSIZE[dtype]
    offset, length = span or (0, count)
    bytes_of = PlacedBytes(source_of(tmp_path, data), {"0": (0, len(data))}, big_endian)
    tensor = Tensor(dtype, (length,), (1,), offset, Storage("0", count, dtype, "cpu"))
    return next(scan([(tensor, bytes_of)]))


@pytest.mark.parametrize("big_endian", [False, True])
@pytest.mark.parametrize("dtype", _STRUCT)
def test_counts_are_those_of_the_numbers(dtype: str, big_endian: bool, tmp_path: Path) -> None:
    draw = random.Random(3)
    largest = {"float64": 1.7e308, "float32": 3.4e38, "float16": 65504.0}[dtype]
    usual = [0.0, -0.0, 1.0, -2.5, largest, -largest, 6e-8]
    odd = [math.inf, -math.inf, math.nan]
    numbers = [draw.choice(usual if draw.random() < 0.9 else odd) for _ in range(5000)]
    data = struct.pack(f"{'>' if big_endian else '<'}{len(numbers)}{_STRUCT[dtype]}", *numbers)
    bad = sum(not math.isfinite(number) for number in numbers)
    assert one(tmp_path, dtype, data, big_endian=big_endian) == Values(bad, numbers.count(-math.inf), False)


def test_bfloat16(tmp_path: Path) -> None:
    data = b"".join(struct.pack("<f", number)[2:] for number in (1.0, math.inf, -math.inf, math.nan, 3.3e38, 0.0))
    assert one(tmp_path, "bfloat16", data) == Values(3, 1, False)


def test_eight_bit_formats(tmp_path: Path) -> None:
    assert one(tmp_path, "float8_e5m2", bytes([0x7C, 0xFC, 0x7B, 0x7D, 0])) == Values(3, 1, False)
    assert one(tmp_path, "float8_e4m3fn", bytes([0x7F, 0xFF, 0x7E, 0x78])) == Values(2, 0, False)


def test_complex_numbers_count_by_part(tmp_path: Path) -> None:
    assert one(tmp_path, "complex64", struct.pack("<4f", 1, math.nan, math.inf, 0)) == Values(2, 0, False)


def test_all_zero(tmp_path: Path) -> None:
    assert one(tmp_path, "float32", bytes(4 * CHUNK)) == Values(0, 0, True)
    assert one(tmp_path, "float32", bytes(4 * CHUNK - 4) + struct.pack("<f", 1)) == Values(0, 0, False)
    assert one(tmp_path, "float32", b"") == Values(0, 0, False)


def test_integers_have_no_values_to_tell(tmp_path: Path) -> None:
    assert one(tmp_path, "int64", b"\xff" * 16) is None


def test_only_a_tensors_own_part_of_its_storage_counts(tmp_path: Path) -> None:
    data = struct.pack("<4f", math.nan, 1, math.inf, 2)
    assert one(tmp_path, "float32", data, span=(1, 1)) == Values(0, 0, False)
    assert one(tmp_path, "float32", data, span=(1, 2)) == Values(1, 0, False)


class Extents:
    """Data in several pieces, as shards have it, with a checksum if there is one piece."""

    def __init__(self, *extents: Extent) -> None:
        self.extents = extents

    def locate(self, storage: Storage) -> tuple[Extent, ...]:
        return self.extents


def test_pieces_count_as_one(tmp_path: Path) -> None:
    source = source_of(tmp_path, struct.pack("<6f", 1, math.inf, 9, 9, math.nan, 1))
    tensor = Tensor("float32", (4,), (1,), 0, Storage("0", 4, "float32", ""))
    pieces = Extents(Extent(source, 0, 8), Extent(source, 16, 8))
    assert list(scan([(tensor, pieces)])) == [Values(2, 0, False)]


def test_a_wrong_checksum_is_damage_for_every_tensor_on_the_storage(tmp_path: Path) -> None:
    source = source_of(tmp_path, bytes(16))
    bytes_of = Extents(Extent(source, 0, 16, checksum=1))
    storage = Storage("0", 4, "float32", "")
    whole, part = Tensor("float32", (4,), (1,), 0, storage), Tensor("float32", (2,), (1,), 1, storage)
    for order in ([whole, part], [part, whole]):
        found = list(scan([(tensor, bytes_of) for tensor in order]))
        assert found == [Damage("its data does not match its stored checksum")] * 2


def test_progress_reaches_its_total(tmp_path: Path) -> None:
    source = source_of(tmp_path, bytes(4096))
    tensors = [Tensor("float32", (256,), (1,), start, Storage("0", 1024, "float32", "")) for start in (0, 256, 512)]
    told: list[tuple[int, int]] = []
    list(scan([(tensor, PlacedBytes(source, {"0": (0, 4096)})) for tensor in tensors], lambda *now: told.append(now)))
    assert told == [(1024, 3072), (2048, 3072), (3072, 3072)]
