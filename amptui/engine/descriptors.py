"""Descriptors out of the reach of user code.

Code that turns itself into a daemon closes "all" descriptors, in practice 0 to 1023 or up to the soft limit, and the
next file it opens gets one of those numbers: the engine would then write its protocol or its database into that file.
What the engine holds open therefore lies above both. The limit is put back, so that nobody else gets there.
"""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_LOWEST = 4096
_ROOM = 128  # descriptors of the engine's own


@contextmanager
def out_of_reach() -> Iterator[int]:
    """Inside, every descriptor that is opened gets a high number; gives the lowest of them.

    Where the hard limit leaves no room, numbers are as high as it allows. Call it before user code runs.
    """
    with _raised_limit() as lowest:
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        taken = [null]
        try:
            while taken[-1] < lowest - 1:
                taken.append(fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, 0))
            if taken[-1] >= lowest:
                os.close(taken.pop())
            yield lowest
        finally:
            for descriptor in taken:
                with suppress(OSError):
                    os.close(descriptor)


def moved_out_of_reach(descriptor: int) -> int:
    """`descriptor` under a high number, closed under its old one; it is not passed on to other programs."""
    with _raised_limit() as lowest:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(descriptor)
    return moved


@contextmanager
def _raised_limit() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = resource.RLIM_INFINITY
    wanted = max(_LOWEST, soft if soft != endless and soft <= 2**16 else 0) + _ROOM
    limit = wanted if hard == endless else min(wanted, hard)
    if soft != endless and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield max(3, limit - _ROOM)
    finally:
        if soft != endless and soft < limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
