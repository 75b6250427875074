"""What user code raises becomes a failure with the user's own place, whatever it was."""

from __future__ import annotations

import asyncio
import functools
import sys
from typing import Any

import pytest
import torch

from amptui.engine.failures import UserCodeError, defined_at, user_code


class Awkward(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Own(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "name", "message"),
    [
        (ValueError("row 17"), "ValueError", "row 17"),
        (SystemExit(3), "SystemExit", "3"),
        (asyncio.CancelledError("stop"), "CancelledError", "stop"),
        (Own("own"), "Own", "own"),
        (KeyError("labels"), "KeyError", "'labels'"),
        (StopIteration(), "StopIteration", ""),
    ],
)
def test_everything_that_the_project_raises_is_its_failure(error: BaseException, name: str, message: str) -> None:
    def loss() -> None:
        raise error

    with pytest.raises(UserCodeError) as failed, user_code("forward", step=3, update="main", micro_batch=1):
        loss()
    assert (failed.value.exception, failed.value.message) == (name, message)
    assert (failed.value.phase, failed.value.step, failed.value.update) == ("forward", 3, "main")
    assert failed.value.where == f"{__file__}:{loss.__code__.co_firstlineno + 1}"
    assert failed.value.frames[-1].endswith("in loss")


def test_an_interrupt_is_the_users_and_passes() -> None:
    with pytest.raises(KeyboardInterrupt), user_code("forward"):
        raise KeyboardInterrupt


def test_a_failure_within_a_failure_keeps_its_first_place() -> None:
    with pytest.raises(UserCodeError) as failed, user_code("outer"), user_code("inner"):
        raise ValueError
    assert failed.value.phase == "inner"


def test_control_characters_in_a_message_are_made_visible() -> None:
    with pytest.raises(UserCodeError) as failed, user_code("forward"):
        raise ValueError("\x1b[2J\x1b]0;title\x07 red \x1b[31m\r\n" + "x" * 5000)
    assert "\x1b" not in failed.value.message
    assert "\x07" not in failed.value.message
    assert len(failed.value.message) <= 1100


def test_an_exception_that_cannot_say_what_it_is_still_counts() -> None:
    with pytest.raises(UserCodeError) as failed, user_code("forward"):
        raise Awkward
    assert failed.value.exception == "Awkward"
    assert isinstance(failed.value.message, str)


def test_the_place_is_the_projects_line_and_not_torchs() -> None:
    def mismatched() -> None:
        torch.nn.functional.linear(torch.ones(2, 3), torch.ones(4, 5))

    with pytest.raises(UserCodeError) as failed, user_code("forward"):
        mismatched()
    assert failed.value.where == f"{__file__}:{mismatched.__code__.co_firstlineno + 1}"


class Callable:
    def __call__(self) -> None: ...

    def method(self) -> None: ...

    @classmethod
    def of_class(cls) -> None: ...


@functools.wraps(test_an_interrupt_is_the_users_and_passes)
def wrapper(*args: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (Callable().method, Callable.method.__code__),
        (Callable(), Callable.__call__.__code__),
        (Callable.of_class, Callable.of_class.__func__.__code__),  # type: ignore[attr-defined]
        (functools.partial(Callable().method), Callable.method.__code__),
        (functools.partial(functools.partial(Callable())), Callable.__call__.__code__),
        (wrapper, test_an_interrupt_is_the_users_and_passes.__code__),
    ],
)
def test_a_function_of_any_kind_is_found_where_it_is_written(function: Any, code: Any) -> None:
    assert defined_at(function) == f"{code.co_filename}:{code.co_firstlineno}"


@pytest.mark.parametrize("function", [len, torch.relu, functools.partial(len), sys.exit, torch.nn.functional.relu_])
def test_built_in_functions_have_no_place(function: Any) -> None:
    assert defined_at(function) is None
