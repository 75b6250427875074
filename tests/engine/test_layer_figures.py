"""What is measured of each layer's gradient, and that it is only measured where somebody looks."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from amptui.engine.layer_figures import layer_figures
from amptui.engine.live import LiveUpdate
from amptui.protocol.events import LayersMeasured


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
