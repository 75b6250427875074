"""Where in the user's code: the innermost Python frame outside torch, the standard library and amptui."""

from __future__ import annotations

import functools
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, TracebackType

_AMPTUI = str(Path(__file__).resolve().parents[2])
_TORCH = tuple(
    str(Path(module.__file__).parent)
    for module in map(sys.modules.get, ("torch", "functorch", "torchgen"))
    if module is not None and module.__file__
)
#: Where torch's own modules are.
_MODULES = tuple(str(Path(folder, "nn")) for folder in _TORCH)
_STDLIB = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
_SITE = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
#: Python code calls the autograd engine here; frames further out did not run this op, they waited for it.
ENGINE = "_engine_run_backward"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the user's code; `str` gives `file:line`."""

    file: str
    number: int
    function: str

    def __str__(self) -> str:
        return f"{plain_file(self.file)}:{self.number}"

    @property
    def text(self) -> str:
        """The line itself without indentation; empty where the file cannot be read."""
        return linecache.getline(self.file, self.number).strip()


@functools.cache
def plain_file(file: str) -> str:
    """The path without `.` and `..` in it."""
    return os.path.normpath(file)


@functools.cache
def is_file_of_user(file: str) -> bool:
    """Whether `file` belongs to the project or a library it uses."""
    if file.startswith("<"):  # frozen importlib, generated code
        return False
    if file.startswith((*_TORCH, _AMPTUI + "/")):
        return False
    return not file.startswith(_STDLIB) or file.startswith(_SITE)


def is_user_code(code: CodeType) -> bool:
    """Whether this code belongs to the project (or a library it uses) rather than to torch, Python or amptui."""
    return is_file_of_user(code.co_filename)


def is_own_code(code: CodeType) -> bool:
    """Whether this code is amptui's."""
    return code.co_filename.startswith(_AMPTUI + "/")


def user_frame(frame: FrameType | None, *, inside_backward: bool = False) -> FrameType | None:
    """The innermost user frame from `frame` outwards.

    With `inside_backward` the search ends at the autograd engine: what remains are frames that the backward pass
    itself entered (a custom function's `backward`, a hook, a recomputed block).
    """
    while frame is not None:
        code = frame.f_code
        if is_user_code(code):
            return frame
        if inside_backward and code.co_name == ENGINE:
            return None
        frame = frame.f_back
    return None


def selves(frame: FrameType | None) -> Iterator[object]:
    """The `self` of every method of the user's or of torch.nn from `frame` outwards, up to the autograd engine."""
    while frame is not None and frame.f_code.co_name != ENGINE:
        if _is_method(frame.f_code):
            yield frame.f_locals.get("self")
        frame = frame.f_back


@functools.cache
def _is_method(code: CodeType) -> bool:
    has_self = code.co_argcount > 0 and code.co_varnames[0] == "self"
    return has_self and (is_user_code(code) or code.co_filename.startswith(_MODULES))


def line_of(frame: FrameType, number: int | None = None) -> Line:
    """The line that a frame stands on (or stood on, in a traceback)."""
    return Line(frame.f_code.co_filename, number or frame.f_lineno or 0, frame.f_code.co_name)


def frames_of(traceback: TracebackType | None) -> list[tuple[FrameType, int]]:
    """The frames of a traceback, outermost first, with the line each one stood on."""
    frames = []
    while traceback is not None:
        frames.append((traceback.tb_frame, traceback.tb_lineno))
        traceback = traceback.tb_next
    return frames


def outermost(frame: FrameType) -> FrameType:
    """The frame that a thread began with: two frames with the same one ran in the same thread."""
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def is_torch_code(code: CodeType) -> bool:
    """Whether this code is torch's."""
    return code.co_filename.startswith(_TORCH)


def is_checkpoint_code(code: CodeType) -> bool:
    """Whether this is torch's own activation checkpointing."""
    return code.co_filename.endswith(("torch/utils/checkpoint.py", "torch\\utils\\checkpoint.py"))
