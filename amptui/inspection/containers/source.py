"""The bytes of one regular file, read at given offsets; nothing is mapped and nothing is read by itself."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Large enough that system calls do not matter, small enough that memory does not either.
CHUNK = 1 << 20


class DamagedError(Exception):
    """The bytes are not what they claim to be; the message is a sentence fragment for the user."""


class UnreadableError(Exception):
    """Nothing can be read here (no such file, no permission, not a file); the message says so in words."""


@dataclass(frozen=True, slots=True)
class Source:
    """`size` bytes of an open file, from `base` on."""

    descriptor: int
    size: int
    base: int = 0

    def read(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes from `offset`; DamagedError where they are not there."""
        if offset < 0 or count < 0 or offset + count > self.size:
            raise DamagedError(f"bytes {offset:,} to {offset + count:,} of a file of {self.size:,}")
        pieces, position = [], self.base + offset
        while count:
            piece = os.pread(self.descriptor, min(count, 1 << 28), position)
            if not piece:
                raise DamagedError("the file became shorter while it was read")
            pieces.append(piece)
            position, count = position + len(piece), count - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def up_to(self, offset: int, count: int) -> bytes:
        """At most `count` bytes from `offset`: fewer where the file ends."""
        return self.read(offset, max(0, min(count, self.size - offset)))

    def chunks(self, offset: int, count: int) -> Iterator[bytes]:
        """`count` bytes from `offset` in pieces of a mebibyte."""
        end = offset + count
        while offset < end:
            piece = self.read(offset, min(CHUNK, end - offset))
            yield piece
            offset += len(piece)

    def part(self, offset: int, count: int) -> Source:
        """The `count` bytes from `offset` on as a source of their own."""
        if offset < 0 or count < 0 or offset + count > self.size:
            raise DamagedError(f"bytes {offset:,} to {offset + count:,} of a file of {self.size:,}")
        return Source(self.descriptor, count, self.base + offset)

    def close(self) -> None:
        os.close(self.descriptor)


def opened(path: Path) -> Source:
    """The regular file at `path`; a pipe or a device is refused without waiting for it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise UnreadableError(error.strerror or "it cannot be opened") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise UnreadableError("it is neither a file nor a folder")
    return Source(descriptor, status.st_size)
