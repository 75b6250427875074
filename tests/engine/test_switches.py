"""What user code changes in torch itself ends with the run in which it did."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from amptui.engine.switches import Switches

CHANGES: dict[str, Callable[[], object]] = {
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "gradients": lambda: torch.set_grad_enabled(False),
    "threads": lambda: torch.set_num_threads(2),
    "deterministic": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "cudnn benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "cudnn deterministic": lambda: setattr(torch.backends.cudnn, "deterministic", True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_switch_is_put_back(change: str) -> None:
    before = Switches.current()
    CHANGES[change]()
    try:
        assert Switches.current() != before
    finally:
        before.restore()
    assert Switches.current() == before
