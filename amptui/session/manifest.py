"""What is written down about a checkpoint file, and how the file is held against it, byte for byte, without torch.

A checkpoint is what `torch.save` writes: a zip whose members are stored, not compressed, so that each tensor's storage
lies in the file as it lay in memory. `torch.load` checks no sum of it: a flipped bit loads silently. Here every member
has a SHA-256, and so have all bytes between the members (headers, padding, directory); no byte of the file is left out.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from amptui.session.errors import CheckpointDamaged
from amptui.text import safe_text

#: The name of the checkpoint that `amptui restore` gives back.
FP32 = "fp32"

#: Two threads hash 1 GB in a third of a second; more would take the cores that the user's own work runs on.
HASHING_THREADS = 2

_CHUNK = 2**20


@dataclass(frozen=True)
class CheckpointEntry:
    """One member of the file: its name in the zip, where its bytes lie, and the paths of the tensors in it."""

    entry: str
    offset: int
    bytes: int
    sha256: str
    tensors: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What a person calls it: the tensors, else the member's own name."""
        return safe_text(", ".join(self.tensors[:3]) + (", …" if len(self.tensors) > 3 else "") or self.entry)


@dataclass(frozen=True)
class CheckpointRecord:
    """One checkpoint as the store knows it.

    `path` is relative to the session's folder; `structure` is the SHA-256 of all bytes outside the entries, in file
    order; `sha256` that of the manifest (name, size, structure and entries), so it stands for the whole content;
    `time` is Unix time.
    """

    name: str
    path: str
    bytes: int
    structure: str
    entries: tuple[CheckpointEntry, ...]
    time: float

    @property
    def sha256(self) -> str:
        content = [self.name, self.bytes, self.structure, [asdict(entry) for entry in self.entries]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def tensors(self) -> int:
        """How many tensors it holds."""
        return sum(len(entry.tensors) for entry in self.entries)

    def as_json(self) -> str:
        """The manifest as it lies beside the file and in the store; `from_json` reads it back."""
        return json.dumps({**asdict(self), "sha256": self.sha256}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> CheckpointRecord:
        """Raises CheckpointDamaged if `text` is no manifest or does not agree with its own digest."""
        try:
            said: Mapping[str, Any] = json.loads(text)
            entries = tuple(
                CheckpointEntry(**{**entry, "tensors": tuple(entry["tensors"])}) for entry in said["entries"]
            )
            fields = {name: said[name] for name in ("name", "path", "bytes", "structure", "time")}
            record = cls(entries=entries, **fields)
            intact = record.sha256 == said["sha256"]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointDamaged("the manifest of a checkpoint cannot be read") from error
        if not intact:
            raise CheckpointDamaged(
                f"the manifest of checkpoint {safe_text(record.name)} does not match its own digest"
            )
        return record


def hash_extents(descriptor: int, extents: Iterable[tuple[int, int]]) -> list[str]:
    """SHA-256 of each (offset, bytes) of an open file, hashed in threads (hashlib releases the GIL)."""
    extents = list(extents)
    largest_first = sorted(range(len(extents)), key=lambda index: -extents[index][1])
    digests = [""] * len(extents)
    with ThreadPoolExecutor(HASHING_THREADS) as threads:
        # A few contiguous hand-outs per thread would be unfair with one large tensor: largest first, one by one.
        for index, digest in zip(
            largest_first, threads.map(lambda index: _hash(descriptor, [extents[index]]), largest_first), strict=True
        ):
            digests[index] = digest
    return digests


def hash_structure(descriptor: int, entries: Iterable[CheckpointEntry], file_bytes: int) -> str:
    """SHA-256 of all bytes of an open file that lie outside `entries`, in file order."""
    return _hash(descriptor, gaps(entries, file_bytes))


def gaps(entries: Iterable[CheckpointEntry], file_bytes: int) -> list[tuple[int, int]]:
    """(offset, bytes) of what lies outside `entries`; CheckpointDamaged if they overlap or leave the file."""
    found, position = [], 0
    for entry in sorted(entries, key=lambda entry: (entry.offset, entry.bytes)):
        if entry.offset < position or entry.bytes < 0:
            raise CheckpointDamaged(f"the manifest's entry {entry.label} overlaps another one")
        found.append((position, entry.offset - position))
        position = entry.offset + entry.bytes
    if position > file_bytes:
        raise CheckpointDamaged("the manifest has entries beyond the end of the file")
    return [*found, (position, file_bytes - position)]


def verify_descriptor(descriptor: int, record: CheckpointRecord, shown: str) -> None:
    """Raises CheckpointDamaged, naming the tensors, unless the open file is exactly the recorded one.

    `shown` names the file in the message. 1 GB takes about 0.35 s from the disk cache (two threads).
    """
    size = os.fstat(descriptor).st_size
    if size != record.bytes:
        what = (
            f"cut off: {size:,} of {record.bytes:,} bytes"
            if size < record.bytes
            else f"{size:,} bytes long, not {record.bytes:,}"
        )
        raise CheckpointDamaged(f"{shown} is {what}; it was not loaded")
    extents = [(entry.offset, entry.bytes) for entry in record.entries]
    structure = hash_structure(descriptor, record.entries, record.bytes)
    digests = hash_extents(descriptor, extents)
    wrong = [entry for entry, digest in zip(record.entries, digests, strict=True) if digest != entry.sha256]
    if wrong or structure != record.structure:
        raise CheckpointDamaged(f"{shown} is not what was saved: {damage_of(wrong, record)}; it was not loaded")


def damage_of(wrong: list[CheckpointEntry], record: CheckpointRecord) -> str:
    """What differs, in words; without wrong entries it is the bytes between them."""
    if not wrong:
        return "the zip structure around the tensors differs"
    if len(wrong) == len(record.entries):
        return "every part differs, as if it were another file"
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    verb = "differ" if more else "differs"
    return f"{wrong[0].label}{more} {verb} from the recorded SHA-256"


def _hash(descriptor: int, extents: Iterable[tuple[int, int]]) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_CHUNK))
    for offset, count in extents:
        done = 0
        while done < count:
            got = os.preadv(descriptor, [buffer[: min(_CHUNK, count - done)]], offset + done)
            if got == 0:
                return "cut off"
            digest.update(buffer[:got])
            done += got
    return digest.hexdigest()
