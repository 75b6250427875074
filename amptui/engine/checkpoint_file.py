"""What lies where in a file that `torch.save` has just written."""

from __future__ import annotations

import os
import pickle
import struct
import zipfile
from collections.abc import Iterator
from typing import IO, Any

from amptui.session.manifest import CheckpointEntry, CheckpointRecord, hash_extents, hash_structure

_LOCAL_HEADER = struct.Struct("<4s22xHH")


def describe(descriptor: int, name: str, path: str, time: float) -> CheckpointRecord:
    """The record of the torch zip open at `descriptor`: every member with its place, SHA-256 and tensors.

    ValueError if it is not what `torch.save` writes (a member compressed, a directory that does not fit).
    """
    size = os.fstat(descriptor).st_size
    with os.fdopen(os.dup(descriptor), "rb") as file, zipfile.ZipFile(file) as archive:
        members = sorted(archive.infolist(), key=lambda member: member.header_offset)
        places = [(_data_offset(descriptor, member), member.file_size) for member in members]
        pickled = next(member for member in members if member.filename.endswith("/data.pkl"))
        with archive.open(pickled) as content:
            tensors = _tensors_by_storage(content)
    folder = pickled.filename.removesuffix("data.pkl")
    digests = hash_extents(descriptor, places)
    entries = tuple(
        CheckpointEntry(
            entry=member.filename,
            offset=offset,
            bytes=count,
            sha256=digest,
            tensors=tuple(tensors.get(member.filename.removeprefix(f"{folder}data/"), ())),
        )
        for member, (offset, count), digest in zip(members, places, digests, strict=True)
    )
    return CheckpointRecord(name, path, size, hash_structure(descriptor, entries, size), entries, time)


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
