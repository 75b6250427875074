"""The entries of a zip file, as torch writes them: stored, not compressed, each with its CRC-32.

An own reader because the standard library's takes for granted what a hostile or damaged file gets wrong (two entries
of one name, local names that differ, lying sizes) and is slow for the tens of thousands of entries of a large model.
Layout: PKWARE APPNOTE 6.3.x, sections 4.3 and 4.4; zip64 included.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from amptui.inspection.containers.source import DamagedError, Source

LOCAL_MAGIC = b"PK\x03\x04"
_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
LOCAL = struct.Struct("<4s5H3L2H")
_MAX_DIRECTORY = 64 << 20
_MAX_ENTRIES = 300_000
_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One member: `offset` is that of its local header, `size` the bytes it holds, `packed` those it takes."""

    name: str
    offset: int
    size: int
    packed: int
    checksum: int
    method: int
    flags: int


@dataclass(frozen=True)
class Archive:
    """A zip file's members by name, and what is wrong with them in sentence fragments."""

    source: Source
    entries: Mapping[str, Entry]
    oddities: tuple[str, ...]
    #: False where the writer stored no checksums (torch can be told so): all of them are zero.
    has_checksums: bool

    def start(self, entry: Entry) -> int:
        """The offset of `entry`'s data, from its local header; DamagedError where the two headers disagree."""
        header = LOCAL.unpack(self.source.read(entry.offset, LOCAL.size))
        magic, name_length, extra_length = header[0], header[9], header[10]
        if magic != LOCAL_MAGIC:
            raise DamagedError(f"no member begins at byte {entry.offset:,}, where the directory says so")
        name = self.source.read(entry.offset + LOCAL.size, name_length)
        if name.decode("utf-8", "replace") != entry.name:
            raise DamagedError("a member's own name differs from the directory's")
        start: int = entry.offset + LOCAL.size + name_length + extra_length
        if start + entry.packed > self.source.size:
            raise DamagedError("a member reaches beyond the end of the file")
        return start

    def read(self, entry: Entry, limit: int) -> bytes:
        """`entry`'s bytes, unpacked, at most `limit` of them; DamagedError where they are not as announced."""
        if entry.flags & _ENCRYPTED:
            raise DamagedError("it is encrypted")
        if max(entry.size, entry.packed) > limit:
            raise DamagedError(f"it has {entry.size:,} bytes; at most {limit:,} are read")
        raw = self.source.read(self.start(entry), entry.packed)
        if entry.method == _DEFLATED:
            raw = _inflated(raw, entry.size)
        elif entry.method != _STORED:
            raise DamagedError("it is compressed in a way that torch does not write")
        if len(raw) != entry.size:
            raise DamagedError("it does not have the size that the directory says")
        return raw

    def matches(self, entry: Entry, raw: bytes) -> bool:
        """Whether `raw` has the checksum stored for `entry`."""
        return not self.has_checksums or zlib.crc32(raw) == entry.checksum


def _inflated(raw: bytes, size: int) -> bytes:
    try:
        return zlib.decompressobj(-15).decompress(raw, size + 1)
    except zlib.error:
        raise DamagedError("its compressed data is broken") from None


def read_archive(source: Source) -> Archive:
    """The directory of a zip file; DamagedError where there is none, as in a file that was cut off."""
    start, size, count = _directory(source)
    if size > _MAX_DIRECTORY or count > _MAX_ENTRIES:
        raise DamagedError(f"a directory of {count:,} members")
    raw = source.read(start, size)
    entries: dict[str, Entry] = {}
    oddities: list[str] = []
    position = 0
    for _ in range(count):
        entry, position = _entry(raw, position)
        if entry.name in entries:
            oddities.append(f"two members are named {entry.name!r}")
            continue
        entries[entry.name] = entry
    oddities.extend(_placement(entries.values(), start))
    return Archive(source, entries, tuple(oddities), any(entry.checksum for entry in entries.values()))


def _directory(source: Source) -> tuple[int, int, int]:
    """Offset, size in bytes and number of members of the central directory."""
    tail_start = max(0, source.size - _END.size - 0xFFFF)
    tail = source.read(tail_start, source.size - tail_start)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + _END.size > len(tail):
        raise DamagedError("the directory at the end of the zip file is not there")
    fields = _END.unpack_from(tail, at)
    count, size, start = fields[4], fields[5], fields[6]
    if count == 0xFFFF or size == 0xFFFFFFFF or start == 0xFFFFFFFF:
        if at < _END64_LOCATOR.size:
            raise DamagedError("the large-file part of the zip directory is not there")
        locator = _END64_LOCATOR.unpack_from(tail, at - _END64_LOCATOR.size)
        if locator[0] != b"PK\x06\x07":
            raise DamagedError("the large-file part of the zip directory is not there")
        large = _END64.unpack(source.read(locator[2], _END64.size))
        if large[0] != b"PK\x06\x06":
            raise DamagedError("the large-file part of the zip directory is not there")
        count, size, start = large[7], large[8], large[9]
    if start + size > source.size:
        raise DamagedError("the zip directory reaches beyond the end of the file")
    return start, size, count


def _entry(raw: bytes, position: int) -> tuple[Entry, int]:
    try:
        fields = _CENTRAL.unpack_from(raw, position)
    except struct.error:
        raise DamagedError("the zip directory is cut off") from None
    magic, flags, method, checksum = fields[0], fields[3], fields[4], fields[7]
    packed, size, offset = fields[8], fields[9], fields[16]
    name_length, extra_length, comment_length = fields[10:13]
    if magic != b"PK\x01\x02":
        raise DamagedError("the zip directory is broken")
    name_end = position + _CENTRAL.size + name_length
    name = raw[position + _CENTRAL.size : name_end].decode("utf-8", "replace")
    extra_end = name_end + extra_length
    if extra_length and 0xFFFFFFFF in (packed, size, offset):
        size, packed, offset = _large_sizes(raw[name_end:extra_end], size, packed, offset)
    return Entry(name, offset, size, packed, checksum, method, flags), extra_end + comment_length


def _large_sizes(extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
    """The 64-bit values that replace those fields which hold 0xFFFFFFFF (APPNOTE 4.5.3)."""
    position = 0
    while position + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, position)
        if tag == 1:
            wide = extra[position + 4 : position + 4 + length]
            numbers = list(struct.unpack(f"<{len(wide) // 8}Q", wide[: len(wide) // 8 * 8]))
            values = []
            for value in (size, packed, offset):
                if value == 0xFFFFFFFF and not numbers:
                    raise DamagedError("the zip directory lacks a large size")
                values.append(numbers.pop(0) if value == 0xFFFFFFFF else value)
            return values[0], values[1], values[2]
        position += 4 + length
    return size, packed, offset


def _placement(entries: object, directory: int) -> list[str]:
    """What is odd about where members lie and how they are stored."""
    found: list[str] = []
    end, last = 0, ""
    for entry in sorted(entries, key=lambda entry: entry.offset):  # type: ignore[call-overload]
        if entry.name.startswith(("/", "\\")) or ".." in entry.name.replace("\\", "/").split("/"):
            found.append(f"the member name {entry.name!r} points out of the archive")
        if entry.flags & _ENCRYPTED:
            found.append(f"{entry.name!r} is encrypted")
        elif entry.method != _STORED:
            found.append(f"{entry.name!r} is compressed, which torch never writes")
        if entry.offset < end:
            found.append(f"{entry.name!r} lies within {last!r}")
        elif not end and entry.offset:
            found.append(f"{entry.offset:,} bytes precede the first member")
        end, last = entry.offset + LOCAL.size + entry.packed, entry.name
        if end > directory:
            found.append(f"{entry.name!r} reaches into the directory")
        if len(found) > 20:
            break
    return found
