"""What reading one file gives, whatever its format: an inert tree, and where the tensors' bytes lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from amptui.findings.finding import Finding
from amptui.inspection.containers.source import DamagedError, Source
from amptui.inspection.nodes import ITEMSIZE, Node, Storage
from amptui.inspection.pickle_walk import Code


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a storage's bytes lie. `checksum` is the CRC-32 stored for all of them, where there is one."""

    source: Source
    offset: int
    length: int
    checksum: int | None = None
    big_endian: bool = False


class TensorBytes(Protocol):
    """Finds a storage's bytes in its container."""

    def locate(self, storage: Storage) -> tuple[Extent, ...]:
        """The extents that together hold `storage`; DamagedError where they are missing or not as long as announced."""


@dataclass(frozen=True, slots=True)
class PlacedBytes:
    """Storages at known places of one file: (offset, length) by key."""

    source: Source
    places: Mapping[str, tuple[int, int]]
    big_endian: bool = False

    def locate(self, storage: Storage) -> tuple[Extent, ...]:
        place = self.places.get(storage.key)
        if place is None:
            raise DamagedError("its data is missing")
        require_length(storage, place[1])
        return (Extent(self.source, *place, big_endian=self.big_endian),)


def require_length(storage: Storage, length: int) -> None:
    """DamagedError unless `length` bytes are exactly what `storage` announces."""
    announced = storage.numel * ITEMSIZE.get(storage.dtype, 1)
    if announced != length:
        raise DamagedError(f"its data has {length:,} bytes, {announced:,} are announced")


@dataclass(frozen=True)
class Loaded:
    """One file, read. `readable` is False where nothing of a checkpoint could be got out of it."""

    container: str
    size: int
    root: Node = None
    code: Code = field(default_factory=Code)
    findings: tuple[Finding, ...] = ()
    data: TensorBytes | None = None
    readable: bool = True
    #: False where the file is cut off or part of it is missing.
    complete: bool = True
