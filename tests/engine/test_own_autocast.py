"""Autocast that the project's code switches on itself: kept closed in true FP32, and named where it is left on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from amptui.engine.own_autocast import Opened, neutral_autocast
from amptui.engine.precision import policy_autocast, true_fp32

A, B = torch.ones(2, 2), torch.ones(2, 2)
SWITCH = torch.set_autocast_enabled
"""As a project has it that imported the function by name."""


@pytest.fixture(autouse=True)
def _all_off_afterwards() -> Iterator[None]:
    yield
    assert not torch.is_autocast_enabled("cpu"), "whatever was left on is off again"
    assert torch.autocast_decrement_nesting() == -1, "and no context is counted as open"
    torch.autocast_increment_nesting()


def with_block() -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return A @ B


@torch.autocast("cpu", dtype=torch.bfloat16)
def decorated() -> torch.Tensor:
    return A @ B


def deprecated() -> torch.Tensor:
    with pytest.warns(FutureWarning), torch.cpu.amp.autocast():
        return A @ B


def nested() -> torch.Tensor:
    with torch.autocast("cpu", enabled=False), torch.autocast("cpu", dtype=torch.float16):
        return A @ B


def entered_by_hand() -> torch.Tensor:
    context = torch.autocast("cpu", dtype=torch.bfloat16)
    context.__enter__()
    try:
        return A @ B
    finally:
        context.__exit__(None, None, None)


KEPT = torch.autocast("cpu", dtype=torch.bfloat16)


def kept_for_reuse() -> torch.Tensor:
    with KEPT:
        return A @ B


def switched_by_hand() -> torch.Tensor:
    torch.set_autocast_enabled("cpu", True)
    try:
        return A @ B
    finally:
        torch.set_autocast_enabled("cpu", False)


def switched_by_the_older_function() -> torch.Tensor:
    torch.set_autocast_cpu_enabled(True)
    try:
        return A @ B
    finally:
        torch.set_autocast_cpu_enabled(False)


FORMS: list[Callable[[], torch.Tensor]] = [
    with_block,
    decorated,
    deprecated,
    nested,
    entered_by_hand,
    kept_for_reuse,
    switched_by_hand,
    switched_by_the_older_function,
]


@pytest.mark.filterwarnings("ignore:torch.set_autocast_cpu_enabled:DeprecationWarning")
@pytest.mark.parametrize("form", FORMS)
def test_an_autocast_of_the_projects_own_stays_closed_in_true_fp32(form: Callable[[], torch.Tensor]) -> None:
    opened: list[Opened] = []
    with true_fp32(on_autocast=opened.append) as own:
        assert form().dtype == torch.float32
        assert not torch.is_autocast_enabled("cpu")
        assert own.left_on() is None
    [told] = opened
    assert (told.device, told.deprecated) == ("cpu", form is deprecated)
    assert told.dtype in ("bfloat16", "float16")
    assert told.where is not None
    assert told.where.startswith(f"{__file__}:")
    assert form().dtype in (torch.bfloat16, torch.float16), "and works again afterwards"


def test_a_closed_autocast_is_not_told_of() -> None:
    opened: list[Opened] = []
    with true_fp32(on_autocast=opened.append), torch.autocast("cpu", enabled=False):
        assert (A @ B).dtype == torch.float32
    assert not opened


def test_an_autocast_that_was_left_open_is_closed_and_opened_again() -> None:
    left_open = torch.autocast("cpu", dtype=torch.bfloat16)
    left_open.__enter__()
    try:
        with true_fp32():
            assert (A @ B).dtype == torch.float32
        assert (A @ B).dtype == torch.bfloat16
        with policy_autocast("cpu", "float16", enabled=False):
            assert (A @ B).dtype == torch.float32, "a policy without autocast has none"
    finally:
        left_open.__exit__(None, None, None)


def test_other_threads_are_kept_in_fp32_too() -> None:
    made = []
    with true_fp32():
        thread = threading.Thread(target=lambda: made.append(with_block()))
        thread.start()
        thread.join()
    assert made[0].dtype == torch.float32


def test_contexts_within_contexts_put_everything_back() -> None:
    def in_place() -> tuple[object, ...]:
        return torch.autocast.__enter__, torch.autocast.__exit__, torch.set_autocast_enabled

    before = in_place()
    with true_fp32(), neutral_autocast(), true_fp32():
        assert with_block().dtype == torch.float32
    assert in_place() == before
    with pytest.raises(ValueError), neutral_autocast():
        raise ValueError
    assert in_place() == before


# Left on.


def entered_and_left() -> None:
    torch.autocast("cpu", dtype=torch.bfloat16).__enter__()


def switched_and_left() -> None:
    torch.set_autocast_enabled("cpu", True)


def switched_and_left_by_an_imported_function() -> None:
    SWITCH("cpu", True)


@pytest.mark.parametrize(
    ("code", "where"),
    [
        (entered_and_left, f"{__file__}:{entered_and_left.__code__.co_firstlineno + 1}"),
        (switched_and_left, f"{__file__}:{switched_and_left.__code__.co_firstlineno + 1}"),
        (switched_and_left_by_an_imported_function, None),
    ],
)
def test_what_is_left_on_is_named_with_its_line_and_switched_off_at_the_end(
    code: Callable[[], None], where: str | None
) -> None:
    with true_fp32() as own:
        code()
        assert own.left_on() == Opened("cpu", "bfloat16", where)
    assert (A @ B).dtype == torch.float32


def test_an_autocast_that_is_switched_off_by_hand_is_not_left_on() -> None:
    with true_fp32() as own:
        context = torch.autocast("cpu", dtype=torch.bfloat16)
        context.__enter__()
        switched_and_left()
        assert own.left_on() is not None
        torch.set_autocast_enabled("cpu", False)
        context.__exit__(None, None, None)
        assert own.left_on() is None


def test_another_threads_autocast_is_its_own() -> None:
    with true_fp32() as own:
        thread = threading.Thread(target=entered_and_left)
        thread.start()
        thread.join()
        assert own.left_on() is None
