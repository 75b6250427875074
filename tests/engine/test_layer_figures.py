"""What is measured of each layer's gradient, and that it is only measured where somebody looks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from amptui.engine.layer_figures import before_clipping, layer_figures
from amptui.engine.live import LiveUpdate
from amptui.protocol.codec import Floats
from amptui.protocol.events import LayersMeasured
from amptui.protocol.facts import UpdateRecord


class _Update:
    name = "main"

    def __init__(self, *gradients: torch.Tensor | None) -> None:
        self.parameters = []
        for gradient in gradients:
            parameter = nn.Parameter(torch.zeros(1 if gradient is None else gradient.shape))
            parameter.grad = gradient
            self.parameters.append(parameter)


def measured(*gradients: torch.Tensor | None) -> LayersMeasured:
    update: Any = _Update(*gradients)
    given: LiveUpdate = update
    return layer_figures(given, 7)


def test_largest_magnitude_share_of_zeros_and_dtype_of_each_layer() -> None:
    told = measured(torch.tensor([1.0, -3.0, 0.0, 0.0]), None, torch.tensor([[math.inf, 1.0]]), torch.zeros(2))
    assert (told.step, told.update) == (7, "main")
    assert list(told.norms) == [pytest.approx(math.sqrt(10)), -1.0, math.inf, 0.0]
    assert list(told.highest) == [3.0, -1.0, math.inf, 0.0]
    assert list(told.zeros) == [0.5, -1.0, 0.0, 1.0]
    assert told.dtypes == ("float32", "", "float32", "float32")


def test_nan_is_told_and_an_empty_gradient_is_no_error() -> None:
    told = measured(torch.tensor([1.0, math.nan]), torch.zeros(0))
    assert math.isnan(told.highest[0])
    assert told.highest[1] == 0.0
    assert list(measured(None).dtypes) == [""]


def test_gradients_stay_as_they_are() -> None:
    gradient = torch.tensor([1.0, -2.0])
    before = gradient.clone()
    measured(gradient)
    assert torch.equal(gradient, before)


def record(norms: list[float], clipped_to: float = 1.0) -> UpdateRecord:
    return UpdateRecord(
        step=7,
        update="main",
        outcome="ok",
        loss=1.0,
        losses=Floats.of([1.0]),
        shown={},
        norms=Floats.of(norms),
        norm=math.hypot(*norms),
        clipped_to=clipped_to,
        found_inf=False,
        scale=1.0,
        applied=True,
        skipped=False,
        withheld=False,
        zero_gradient=False,
        learning_rate=0.1,
    )


def test_what_was_clipped_by_norm_is_told_as_it_was_before() -> None:
    whole = torch.tensor([3.0, 0.0, -4.0])
    told = before_clipping(measured(whole * 0.67, None), record([5.0, -1.0], clipped_to=0.67), by_value=False)
    assert list(told.highest) == [pytest.approx(4.0), -1.0]
    assert list(told.norms) == [5.0, -1.0]
    assert list(told.zeros) == [pytest.approx(1 / 3), -1.0]


def test_what_was_clipped_by_value_has_no_largest_magnitude_and_keeps_its_zeros() -> None:
    clipped = measured(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
    told = before_clipping(clipped, record([3.0, math.sqrt(0.5)]), by_value=True)
    assert list(told.highest) == [-1.0, 0.5], "a layer that no limit cut is as it was"
    assert list(told.zeros) == [0.5, 0.0]


def test_what_a_later_update_has_written_into_is_left_empty_and_nan_stays() -> None:
    changed = measured(torch.tensor([2.0, 2.0]), torch.tensor([math.nan]))
    told = before_clipping(changed, record([1.0, 1.0]), by_value=False)
    assert (told.highest[0], told.zeros[0]) == (-1.0, -1.0)
    assert math.isnan(told.highest[1])
