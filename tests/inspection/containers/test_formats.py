"""Detection by content, and what is wrong with a file of each format."""

from __future__ import annotations

import gzip
import json
import os
import socket
import struct
import zlib
from pathlib import Path

import pytest

from amptui.inspection.reading import inspect_path
from amptui.inspection.result import Inspection
from tests.inspection.writer import (
    T,
    adam,
    legacy_bytes,
    pickled,
    safetensors_bytes,
    scaler,
    torch_zip_bytes,
    weights,
    zip_bytes,
)

ROOT = {"model": weights(), "optimizer": adam(), "scaler": scaler(4096.0)}


def inspect(tmp_path: Path, data: bytes, name: str = "file.bin") -> Inspection:
    path = tmp_path / name
    path.write_bytes(data)
    return inspect_path(str(path))


def faults(found: Inspection) -> list[str]:
    return [str(finding.facts["code"]) for finding in found.findings if finding.severity == "fault"]


@pytest.mark.parametrize(
    ("data", "container"),
    [
        (torch_zip_bytes(ROOT), "zip"),
        (torch_zip_bytes(ROOT, checksums=False), "zip"),
        (legacy_bytes(ROOT), "legacy"),
        (pickled({"scaler": scaler()}), "pickle"),
        (safetensors_bytes({"a": T()}), "safetensors"),
        (json.dumps({"global_step": 3}).encode(), "json"),
    ],
)
def test_the_name_does_not_matter(data: bytes, container: str, tmp_path: Path) -> None:
    found = inspect(tmp_path, data, "picture.png")
    assert found.container == container
    assert found.complete
    assert not found.has_fault


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (bytes(5000), "zero bytes"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5"),
        (b"GGUF" + bytes(100), "GGUF"),
        (b"\x93NUMPY\1\0" + bytes(100), "NumPy"),
        (gzip.compress(torch_zip_bytes(ROOT)), "gzip"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "LFS"),
        (b"<!DOCTYPE html><html>", "web page"),
        (bytes(257) + b"ustar" + bytes(300), "tar"),
        (b"import torch\nprint('no checkpoint')\n", "no format"),
        (b"\x7fELF" + bytes(60), "program"),
        (zip_bytes([("word/document.xml", b"<x/>")]), "document"),
        (zip_bytes([("arr_0.npy", b"\x93NUMPY")]), "npz"),
        (zip_bytes([("config.json", b"{}"), ("model.weights.h5", b"")]), "Keras"),
        (zip_bytes([("readme", b"")]), "without data.pkl"),
    ],
)
def test_what_is_no_checkpoint_is_named(data: bytes, said: str, tmp_path: Path) -> None:
    found = inspect(tmp_path, data)
    assert not found.readable
    assert said in found.findings[0].evidence[0]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
@pytest.mark.parametrize("write", [torch_zip_bytes, legacy_bytes])
def test_a_file_that_was_cut_off_is_incomplete_and_what_is_there_is_told(
    write: object, share: float, tmp_path: Path
) -> None:
    assert callable(write)
    data = write({"scaler": scaler(4096.0), "model": {"w": T(1.0, (4000,))}})
    found = inspect(tmp_path, data[: int(len(data) * share)])
    assert not found.complete
    assert faults(found)[0] == "truncated"
    assert [state.scale for state in found.scalers] == [4096.0]


def test_a_tail_of_zeros_is_damage(tmp_path: Path) -> None:
    data = bytearray(torch_zip_bytes({"model": {"w": T(1.5, (4000,))}}))
    at = data.index(struct.pack("<f", 1.5) * 100)
    data[at + 4096 : at + 8192] = bytes(4096)
    found = inspect(tmp_path, bytes(data))
    assert faults(found) == ["checksum"]
    assert not found.complete


def test_every_single_flipped_bit_in_tensor_data_is_noticed(tmp_path: Path) -> None:
    data = bytearray(torch_zip_bytes({"model": {"w": T(1.5, (64,))}}))
    at = data.index(struct.pack("<f", 1.5) * 64)
    for offset in range(0, 256, 5):
        data[at + offset] ^= 1 << offset % 8
        assert faults(inspect(tmp_path, bytes(data))) == ["checksum"]
        data[at + offset] ^= 1 << offset % 8
    assert faults(inspect(tmp_path, bytes(data))) == []


def members() -> list[tuple[str, bytes]]:
    return [("a/data.pkl", pickled({"epoch": 1})), ("a/byteorder", b"little"), ("a/version", b"3\n")]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (zip_bytes([*members(), ("a/data.pkl", pickled({"epoch": 2}))]), "odd-archive"),
        (zip_bytes([*members(), ("b/data.pkl", pickled({"epoch": 2}))]), "odd-archive"),
        (zip_bytes([*members(), ("../../etc/passwd", b"x")]), "odd-archive"),
        (zip_bytes([*members(), ("/etc/passwd", b"x")]), "odd-archive"),
        (zip_bytes(members(), alter=lambda name, crc: crc ^ (name == "a/version")), "checksum"),
        (zip_bytes(members(), alter=lambda name, crc: crc ^ name.endswith("data.pkl")), "checksum"),
        (zip_bytes(members()).replace(b"a/data.pkl", b"b/data.pkl", 1), "damaged"),
        (zip_bytes([("a/data.pkl", pickled({"epoch": 1}) + b"more")]), "trailing-bytes"),
        (zip_bytes([("a/data.pkl", pickled({"epoch": 1})[:-3])]), "damaged"),
        (zip_bytes([("a/data.pkl", b"")]), "damaged"),
    ],
)
def test_archives_that_torch_would_load_silently(data: bytes, code: str, tmp_path: Path) -> None:
    assert code in faults(inspect(tmp_path, data))


def test_a_compressed_archive_is_read_and_told(tmp_path: Path) -> None:
    raw = pickled({"scaler": scaler(8.0)})
    inner = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = inner.compress(raw) + inner.flush()
    crc = zlib.crc32(raw)
    local = (
        struct.pack("<4s5H3L2H", b"PK\3\4", 0, 0, 8, 0, 0, crc, len(packed), len(raw), 10, 0) + b"a/data.pkl" + packed
    )
    head = (b"PK\1\2", 0, 0, 0, 8, 0, 0, crc, len(packed), len(raw), 10, 0, 0, 0, 0, 0, 0)
    central = struct.pack("<4s6H3L5H2L", *head) + b"a/data.pkl"
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(central), len(local), 0)
    found = inspect(tmp_path, local + central + end)
    assert found.scalers[0].scale == 8.0
    assert faults(found) == ["odd-archive"]


def test_a_missing_or_short_storage_is_told_by_the_tensors_name(tmp_path: Path) -> None:
    data = torch_zip_bytes({"model": {"w": T(1.5, (64,)), "v": T(2.5, (3,))}})
    found = inspect(tmp_path, data.replace(b"archive/data/1", b"archive/data/9"))
    assert faults(found) == ["damaged"]
    assert found.findings[0].facts["path"] == "model.v"
    short = torch_zip_bytes({"model": {"w": T(shape=(4,), raw=bytes(13))}})
    assert "13 bytes, 16 are announced" in inspect(tmp_path, short).findings[0].evidence[0]


def test_big_endian_tensors(tmp_path: Path) -> None:
    number = T(shape=(), raw=struct.pack(">f", 300.0))
    data = torch_zip_bytes({"optimizer": adam(counter=number)}).replace(b"little", b"big\0\0\0")
    assert inspect(tmp_path, data).steps.optimizer != 300
    members_ = [("a/byteorder", b"big")]
    from tests.inspection.writer import Pickle

    pickle = Pickle()
    described = pickle.dumps({"optimizer": {"state": {0: {"step": number}}, "param_groups": []}})
    found = inspect(tmp_path, zip_bytes([("a/data.pkl", described), *members_, ("a/data/0", number.data())]))
    assert found.steps.optimizer == 300


def header(entries: object, data: bytes = b"", length: int | None = None) -> bytes:
    encoded = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(encoded) if length is None else length) + encoded + data


def entry(dtype: object = "F32", shape: object = (1,), offsets: object = (0, 4)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (header({"a": entry()}, bytes(4), length=1 << 20), "incomplete"),
        (header({"a": entry()}, bytes(3)), "1 bytes of tensor data are missing"),
        (header({"a": entry()}, bytes(5)), "1 bytes follow"),
        (header({"a": entry(), "b": entry(offsets=(2, 6))}, bytes(6)), "overlaps"),
        (header({"a": entry(), "b": entry(offsets=(8, 12))}, bytes(12)), "hole"),
        (header({"a": entry("F33")}, bytes(4)), "unknown dtype"),
        (header({"a": entry(7)}, bytes(4)), "unknown dtype"),
        (header({"a": entry(shape=(-1,))}, bytes(4)), "shape"),
        (header({"a": entry(shape=3)}, bytes(4)), "shape"),
        (header({"a": entry(shape=(2.5,))}, bytes(4)), "shape"),
        (header({"a": entry(shape=(True,))}, bytes(4)), "shape"),
        (header({"a": entry(shape=(1 << 61, 1 << 61))}, bytes(4)), "than any memory"),
        (header({"a": entry(offsets=(4, 0))}, bytes(4)), "set aside"),
        (header({"a": entry(offsets=(0,))}, bytes(4)), "offsets"),
        (header({"a": entry(offsets=None)}, bytes(4)), "offsets"),
        (header({"a": []}, bytes(4)), "not an object"),
        (header(b'{"a": 1, "a": 2}'), "twice"),
        (header(b'{"a": '), "JSON"),
        (header(b'{"\xff": 1}'), "JSON"),
        (header('{"a": 1}'.encode("utf-16-le")), "JSON"),
        (header('{"a": 1}'.encode("utf-32-le")), "JSON"),
    ],
)
def test_safetensors_claims_are_checked(data: bytes, said: str, tmp_path: Path) -> None:
    found = inspect(tmp_path, data)
    assert found.has_fault
    assert not found.complete
    assert any(said in finding.evidence[0] for finding in found.findings)


def test_what_is_not_a_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "s"))
        for path in (tmp_path / "fifo", tmp_path / "s", Path("/dev/zero"), tmp_path / "nothing", tmp_path / "a\0b"):
            found = inspect_path(str(path))
            assert not found.readable
            assert found.findings[0].facts["code"] == "unreadable"
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert not inspect_path(str(tmp_path / "loop")).readable
    (tmp_path / "folder").mkdir()
    assert not inspect_path(str(tmp_path / "folder")).readable


def test_a_terabyte_of_nothing_is_answered_at_once(tmp_path: Path) -> None:
    with (tmp_path / "sparse.pt").open("wb") as file:
        file.truncate(1 << 40)
    assert not inspect_path(str(tmp_path / "sparse.pt")).readable
