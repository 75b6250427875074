"""Which arithmetic is on: true FP32 whatever the project set, and its own settings put back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from amptui.engine.precision import PrecisionSettings, neutral_autocast, policy_autocast, true_fp32, watched_autocast

MATMUL, CUDNN, MKLDNN = torch.backends.cuda.matmul, torch.backends.cudnn, torch.backends.mkldnn
A, B = torch.ones(2, 2), torch.ones(2, 2)


@pytest.fixture(autouse=True)
def _own_settings() -> Iterator[None]:
    before = PrecisionSettings.current()
    yield
    before.restore()
    torch.backends.fp32_precision = CUDNN.fp32_precision = MKLDNN.fp32_precision = "none"
    CUDNN.allow_tf32 = True
    torch.set_float32_matmul_precision("highest")


def older_interface() -> None:
    MATMUL.allow_tf32 = True
    CUDNN.allow_tf32 = True


def one_word() -> None:
    torch.set_float32_matmul_precision("medium")


def newer_interface() -> None:
    MATMUL.fp32_precision = "tf32"
    CUDNN.conv.fp32_precision = "tf32"
    MKLDNN.matmul.fp32_precision = "bf16"


def for_everything_at_once() -> None:
    torch.backends.fp32_precision = "tf32"


def both_interfaces() -> None:
    torch.backends.fp32_precision = "tf32"
    CUDNN.fp32_precision = "ieee"


def reductions() -> None:
    MATMUL.allow_fp16_reduced_precision_reduction = (False, False)
    MATMUL.allow_bf16_reduced_precision_reduction = False
    MATMUL.allow_fp16_accumulation = True


SETTINGS: list[Callable[[], None]] = [
    older_interface,
    one_word,
    newer_interface,
    for_everything_at_once,
    both_interfaces,
    reductions,
    lambda: None,
]


@pytest.mark.parametrize("set_up", SETTINGS)
@pytest.mark.parametrize("ending", [None, RuntimeError, KeyboardInterrupt])
def test_every_shortcut_is_off_inside_and_as_it_was_afterwards(
    set_up: Callable[[], None], ending: type[BaseException] | None
) -> None:
    set_up()
    before = PrecisionSettings.current()
    inside = []

    def run() -> None:
        with true_fp32():
            inside.append(PrecisionSettings.current())
            if ending is not None:
                raise ending

    with pytest.raises(ending) if ending is not None else nullcontext():
        run()
    [fp32] = inside
    precisions = {value for name, value in fp32.switches.items() if not name.endswith(("reduction", "accumulation"))}
    others = {value for name, value in fp32.switches.items() if name.endswith(("reduction", "accumulation"))}
    assert fp32.matmul == "highest"
    assert precisions == {"ieee"}
    assert others <= {False, (False, True)}, "not allowed, whatever it says about split-K"
    assert PrecisionSettings.current() == before


def test_settings_can_be_put_on_again_for_the_trial() -> None:
    newer_interface()
    projects_own = PrecisionSettings.current()
    MATMUL.fp32_precision = "ieee"
    projects_own.restore()
    assert MATMUL.fp32_precision == "tf32"
    assert MKLDNN.matmul.fp32_precision == "bf16"


def test_settings_are_told_as_words() -> None:
    older_interface()
    told = PrecisionSettings.current().as_text()
    assert told["float32 matmul"] == "high"
    assert told["cuda matmul"] == "tf32"
    assert all(isinstance(value, str) for value in told.values())
    both_interfaces()
    PrecisionSettings.current().as_text()


# Autocast.


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


FORMS: list[Callable[[], torch.Tensor]] = [with_block, decorated, deprecated, nested, entered_by_hand, kept_for_reuse]


@pytest.mark.parametrize("form", FORMS)
def test_an_autocast_of_the_projects_own_stays_closed_in_true_fp32(form: Callable[[], torch.Tensor]) -> None:
    opened: list[Any] = []
    with true_fp32(on_autocast=opened.append):
        assert form().dtype == torch.float32
        assert not torch.is_autocast_enabled("cpu")
    assert len(opened) == 1, "and it is told"
    assert form().dtype in (torch.bfloat16, torch.float16), "and works again afterwards"


def test_a_closed_autocast_is_not_told_of() -> None:
    opened: list[Any] = []
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
    enter = torch.autocast.__enter__
    with true_fp32(), neutral_autocast(), true_fp32():
        assert with_block().dtype == torch.float32
    assert torch.autocast.__enter__ is enter
    with pytest.raises(ValueError), neutral_autocast():
        raise ValueError
    assert torch.autocast.__enter__ is enter


def test_watching_changes_nothing() -> None:
    seen: list[Any] = []
    with watched_autocast(seen.append):
        assert with_block().dtype == torch.bfloat16
    assert len(seen) == 1
    assert seen[0].fast_dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_policys_autocast_is_new_each_time(dtype: str) -> None:
    one, other = policy_autocast("cpu", dtype, enabled=True), policy_autocast("cpu:0", dtype, enabled=True)
    assert one is not other
    with other:
        assert (A @ B).dtype == getattr(torch, dtype)
    assert not torch.is_autocast_enabled("cpu")
