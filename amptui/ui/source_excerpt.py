"""A few lines of the user's source around a place, read without trusting what lies there."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

#: A source file that is longer is not read.
LARGEST_BYTES = 4 << 20
#: Characters of a line that are kept.
LONGEST_LINE = 400


@dataclass(frozen=True)
class SourceLine:
    """One line as it stands in the file now; pass `text` through `safe_text`. `here`: the line in question."""

    number: int
    text: str
    here: bool


def excerpt(where: str, around: int = 2) -> tuple[SourceLine, ...]:
    """The line `where` (`file:line`, absolute) with `around` lines before and after it.

    Nothing where the file cannot be read, is no regular file, has no such line, or is named by a relative path, which
    could mean another file here than where the session ran.
    """
    file, _, line = where.rpartition(":")
    if not file or not line.isdecimal() or not Path(file).is_absolute():
        return ()
    wanted = int(line)
    first = max(1, wanted - around)
    try:
        found = Path(file).stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST_BYTES:
            return ()
        with Path(file).open(encoding="utf-8", errors="replace") as source:
            texts = [text.rstrip("\r\n") for text in islice(source, first - 1, wanted + around)]
    except (OSError, ValueError):  # a NUL in the path is a ValueError
        return ()
    if len(texts) <= wanted - first:
        return ()
    lines = [text.expandtabs(4)[:LONGEST_LINE] for text in texts]
    margin = min((len(text) - len(text.lstrip()) for text in lines if text.strip()), default=0)
    return tuple(
        SourceLine(number=first + place, text=text[margin:], here=first + place == wanted)
        for place, text in enumerate(lines)
    )
