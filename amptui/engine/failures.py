"""User code that raised: which of its functions, in which phase, and the user's own frames instead of torch's."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from amptui.engine.tracing.source import frames_of, is_own_code, is_user_code, plain_file
from amptui.text import safe_text

#: The innermost frames are told; an endless recursion has any number of them.
FRAMES = 50


class UserCodeError(Exception):
    """User code raised inside amptui's call; `__cause__` is the original.

    `phase` is the phase of the iteration, or `outputs`, `decide`, `quality` for cases.
    """

    def __init__(
        self,
        phase: str,
        *,
        step: int | None = None,
        update: str | None = None,
        micro_batch: int | None = None,
        case: str | None = None,
    ) -> None:
        super().__init__(phase)
        self.phase, self.step, self.update, self.micro_batch, self.case = phase, step, update, micro_batch, case

    @property
    def original(self) -> BaseException:
        return self.__cause__ or self

    @property
    def exception(self) -> str:
        return type(self.original).__name__

    @property
    def message(self) -> str:
        return safe_text(self.original, 1000, lines=True)

    @property
    def where(self) -> str | None:
        """`file:line` of the user's innermost frame."""
        frames = user_frames(self.original)
        return frames[-1][0] if frames else None

    @property
    def frames(self) -> tuple[str, ...]:
        return tuple(f"{place} in {function}" for place, function in user_frames(self.original)[-FRAMES:])


class user_code:  # noqa: N801 - read as the words of a `with`
    """Turns whatever the user's code raises inside into a `UserCodeError`, also `sys.exit` and the like.

    `KeyboardInterrupt` passes, and so does the end of a suspended generator. A class, because eight of them are
    entered in every update and a generator's context costs four times as much.
    """

    __slots__ = ("_phase", "_where")

    def __init__(self, phase: str, **where: Any) -> None:
        self._phase, self._where = phase, where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if error is not None and not isinstance(error, UserCodeError | KeyboardInterrupt | GeneratorExit):
            raise UserCodeError(self._phase, **self._where) from error


def user_frames(error: BaseException) -> list[tuple[str, str]]:
    """(`file:line`, function) of every user frame of the traceback, outermost first."""
    return [
        (f"{plain_file(frame.f_code.co_filename)}:{line}", frame.f_code.co_name)
        for frame, line in frames_of(error.__traceback__)
        if is_user_code(frame.f_code)
    ]


def raised_by_user(error: BaseException) -> str | None:
    """`file:line` where it was the user's code that raised, and not amptui's (or torch under it); None otherwise."""
    for frame, line in reversed(frames_of(error.__traceback__)):
        if is_user_code(frame.f_code):
            return f"{plain_file(frame.f_code.co_filename)}:{line}"
        if is_own_code(frame.f_code):
            return None
    return None


def defined_at(function: Any) -> str | None:
    """`file:line` where a user's function (lambda, method, partial, callable object) is defined; None for builtins."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function) if callable(function) else function
    code = getattr(function, "__code__", None) or getattr(getattr(function, "__func__", None), "__code__", None)
    if code is None:
        code = getattr(vars(type(function)).get("__call__"), "__code__", None)  # an object that can be called
    return f"{plain_file(code.co_filename)}:{code.co_firstlineno}" if code is not None else None
