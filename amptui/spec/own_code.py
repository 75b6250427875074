"""Which files are the user's own: what errors point at, and what a session records the digests of.

A frame inside torch, Python's own library or importlib helps nobody; the line of the user's file that led there does.
"""

from __future__ import annotations

import os
import site
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from types import TracebackType

_AMPTUI = str(Path(__file__).resolve().parents[1])


@dataclass(frozen=True)
class Line:
    """One line of a file, shown as `file:line`."""

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


@dataclass(frozen=True)
class OwnCode:
    """Tells the user's files from installed ones: the longest folder that holds a file decides.

    So a project inside an environment's folder is the user's, and so is an environment inside the project's folder not.
    """

    own: tuple[str, ...]
    installed: tuple[str, ...]

    def holds(self, file: str) -> bool:
        """Whether the file named by a code object or a module is the user's."""
        if file.startswith("<") or not file.endswith((".py", ".ipynb")):
            return False  # "<frozen importlib._bootstrap>", "<string>", an extension module
        path = str(Path(file).absolute())
        return _longest(path, self.own) >= _longest(path, self.installed)

    def lines(self, trace: TracebackType | None) -> tuple[Line, ...]:
        """The user's lines in a traceback, outermost first."""
        return tuple(
            Line(frame.f_code.co_filename, number)
            for frame, number in walk_tb(trace)
            if self.holds(frame.f_code.co_filename)
        )

    def innermost(self, trace: TracebackType | None) -> Line | None:
        """The user's line closest to where an exception was raised, or None where there is none."""
        lines = self.lines(trace)
        return lines[-1] if lines else None


def own_code(folders: Iterable[Path]) -> OwnCode:
    """The user's files: everything in `folders`, and whatever else is neither Python's, installed, nor amptui's."""
    return OwnCode(
        own=tuple(dict.fromkeys(_both_spellings(str(folder) for folder in folders))),
        installed=tuple(dict.fromkeys(_both_spellings([*_installed(), _AMPTUI]))),
    )


def _installed() -> Iterator[str]:
    paths = sysconfig.get_paths()
    yield from (paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    yield from getattr(site, "getsitepackages", list)()
    yield site.getusersitepackages()


def _both_spellings(folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        yield os.path.abspath(folder)  # noqa: PTH100 - as the interpreter spells it in co_filename: links kept
        yield os.path.realpath(folder)


def _longest(path: str, folders: Iterable[str]) -> int:
    return max((len(folder) for folder in folders if path.startswith(folder.rstrip("/") + "/")), default=0)
