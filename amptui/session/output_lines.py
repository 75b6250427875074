"""What a project printed, put together into lines as a terminal would show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

#: Of a longer line only the beginning is kept.
LINE_CHARACTERS = 2000


@dataclass(frozen=True, kw_only=True)
class OutputLine:
    """One printed line as it came; pass it through `safe_text`.

    `ended`: its newline has been printed too; `over`: a carriage return was, what comes next is written over it.
    """

    stream: Literal["stdout", "stderr"]
    text: str
    ended: bool = True
    over: bool = False


def continued(lines: Sequence[OutputLine], stream: Literal["stdout", "stderr"], text: str) -> tuple[OutputLine, ...]:
    """`lines` with what was printed next; an open line of the same stream is gone on with."""
    found = list(lines)
    pieces = text.split("\n")
    if found and found[-1].stream == stream and not found[-1].ended:
        open_line = found.pop()
        pieces[0] = open_line.text + ("\r" if open_line.over else "") + pieces[0]
    *whole, rest = pieces
    found += [_line(stream, piece.rstrip("\r")) for piece in whole]
    if rest:
        found.append(replace(_line(stream, rest.rstrip("\r")), ended=False, over=rest.endswith("\r")))
    return tuple(found)


def _line(stream: Literal["stdout", "stderr"], text: str) -> OutputLine:
    return OutputLine(stream=stream, text=text.rpartition("\r")[2][:LINE_CHARACTERS])
