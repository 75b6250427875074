"""What lies where in a file that `torch.save` has just written."""

from __future__ import annotations

import ctypes
import hashlib
import os
import pickle
import struct
import zipfile
from collections.abc import Iterator
from typing import IO, Any

import torch
from torch import Tensor

from amptui.session.manifest import CheckpointEntry, CheckpointRecord, hash_extents, hash_structure

_LOCAL_HEADER = struct.Struct("<4s22xHH")


#: By a tensor's path, the bytes of its storage and their SHA-256.
StorageSums = dict[str, tuple[int, str]]


def storage_sums(content: Any) -> StorageSums:
    """The sums of the dense tensors in a content, which are on the CPU and span their storages.

    Hashed from memory, so that it can run beside the writing of the file; the interpreter lock is released.
    """
    sums: StorageSums = {}
    known: dict[int, tuple[int, str]] = {}
    twice: set[str] = set()
    for path, tensor in _tensors(content, ""):
        if tensor.layout != torch.strided or tensor.numel() == 0:
            continue
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            memory = (ctypes.c_ubyte * storage.nbytes()).from_address(storage.data_ptr())
            known[storage.data_ptr()] = storage.nbytes(), hashlib.sha256(memory).hexdigest()
        if path in sums:
            twice.add(path)  # a "/" in a name has made two paths alike
        sums[path] = known[storage.data_ptr()]
    return {path: sums[path] for path in sums.keys() - twice}


def describe(descriptor: int, name: str, path: str, time: float, sums: StorageSums) -> CheckpointRecord:
    """The record of the torch zip open at `descriptor`: every member with its place, SHA-256 and tensors.

    `sums` are those of `storage_sums`, for a file that is compared with that content bit for bit; what they lack is
    hashed from the file. ValueError if it is not what `torch.save` writes: a member that is compressed or misplaced.
    """
    size = os.fstat(descriptor).st_size
    with os.fdopen(os.dup(descriptor), "rb") as file, zipfile.ZipFile(file) as archive:
        members = sorted(archive.infolist(), key=lambda member: member.header_offset)
        places = [(_data_offset(descriptor, member), member.file_size) for member in members]
        pickled = next(member for member in members if member.filename.endswith("/data.pkl"))
        with archive.open(pickled) as content:
            tensors = _tensors_by_storage(content)
    folder = pickled.filename.removesuffix("data.pkl")
    paths = [tensors.get(member.filename.removeprefix(f"{folder}data/"), []) for member in members]
    digests = [_known_sum(own, count, sums) for own, (_, count) in zip(paths, places, strict=True)]
    unknown = [index for index, digest in enumerate(digests) if not digest]
    for index, digest in zip(unknown, hash_extents(descriptor, [places[index] for index in unknown]), strict=True):
        digests[index] = digest
    entries = tuple(
        CheckpointEntry(
            entry=member.filename,
            offset=offset,
            bytes=count,
            sha256=digest,
            tensors=tuple(own),
        )
        for member, (offset, count), digest, own in zip(members, places, digests, paths, strict=True)
    )
    return CheckpointRecord(name, path, size, hash_structure(descriptor, entries, size), entries, time)


def _known_sum(paths: list[str], count: int, sums: StorageSums) -> str:
    hashed, digest = sums.get(paths[0], (-1, "")) if paths else (-1, "")
    return digest if hashed == count else ""


def _data_offset(descriptor: int, member: zipfile.ZipInfo) -> int:
    header = os.pread(descriptor, _LOCAL_HEADER.size, member.header_offset)
    signature, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
    if signature != b"PK\x03\x04" or member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{member.filename} is not stored as it is")
    return int(member.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes)


def _tensors_by_storage(pickled: IO[bytes]) -> dict[str, list[str]]:
    """Paths of the tensors in each storage, by the storage's key."""
    found: dict[str, list[str]] = {}
    for path, key in _storages(_InertUnpickler(pickled).load(), ""):
        paths = found.setdefault(key, [])
        if path not in paths:
            paths.append(path)
    return found


def _tensors(node: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(node, Tensor):
        yield path, node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _tensors(value, f"{path}/{key}" if path else str(key))
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _tensors(value, f"{path}/{index}")


class _Storage(str):
    """The key of a storage, standing where a tensor stood."""

    __slots__ = ()


class _InertUnpickler(pickle.Unpickler):
    """Reads the structure of our own `data.pkl` and nothing else: no name in it is looked up, no code of it runs."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ARG002
        return _arguments

    def persistent_load(self, pid: Any) -> Any:
        return _Storage(pid[2])


def _arguments(*arguments: Any) -> tuple[Any, ...]:
    return arguments


def _storages(node: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, _Storage):
        yield path, node
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _storages(value, f"{path}/{key}" if path else str(key))
    elif isinstance(node, tuple) and any(isinstance(part, _Storage) for part in node):
        yield from ((path, part) for part in node if isinstance(part, _Storage))  # a tensor's own arguments
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _storages(value, f"{path}/{index}")
