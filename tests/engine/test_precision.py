"""Which arithmetic is on: true FP32 whatever the project set, and its own settings put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch

from amptui.engine.precision import PrecisionSettings, policy_autocast, true_fp32

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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_policys_autocast_is_new_each_time(dtype: str) -> None:
    one, other = policy_autocast("cpu", dtype, enabled=True), policy_autocast("cpu:0", dtype, enabled=True)
    assert one is not other
    with other:
        assert (A @ B).dtype == getattr(torch, dtype)
    assert not torch.is_autocast_enabled("cpu")
