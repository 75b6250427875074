"""The predicted scale is the one that bisection finds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amptui.engine.scale_probe import LARGEST_SCALE, fit_scale

torch.set_num_threads(1)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, None, None, :].expand(-1, 2, 4, 6)
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mha, self.head = nn.MultiheadAttention(6, 2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, None, :].expand(-1, 3, 6)
        return self.head(self.mha(x, x, x)[0].mean(1))


def run_of(model: nn.Module, gain: float) -> Callable[[float], Tensor]:
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(2))

    def run(scale: float) -> Tensor:
        model.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = F.cross_entropy(model(x), torch.tensor([0, 1, 2, 0, 1])) * gain
        (loss * scale).backward()
        return loss

    return run


def finite_at(model: nn.Module, run: Callable[[float], Tensor], scale: float) -> bool:
    run(scale)
    return all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("gain", [1.0, 3e-5, 700.0])
@pytest.mark.parametrize("make", [Mlp, Conv, Attention])
def test_prediction_equals_bisection(make: type[nn.Module], gain: float) -> None:
    torch.manual_seed(1)
    model = make()
    run = run_of(model, gain)
    fit = fit_scale(run, model)
    assert fit.scale is not None
    assert not finite_at(model, run, fit.scale * 2)
    assert fit.passes == 1
    if make is Conv:  # partial sums inside the kernel: only a trial is sure
        fit = fit_scale(run, model, verify=True)
        assert fit.passes <= 3
        assert fit.scale is not None
        assert not finite_at(model, run, fit.scale * 2)
    assert finite_at(model, run, fit.scale)


def test_limiting_gradient_has_a_place() -> None:
    torch.manual_seed(1)
    model = Mlp()
    fit = fit_scale(run_of(model, 1.0), model)
    assert fit.dtype == "float16"
    assert fit.module is not None
    assert fit.op is not None


def test_halvings_from_the_default_scale() -> None:
    torch.manual_seed(1)
    model = Mlp()
    run = run_of(model, 700.0)
    fit = fit_scale(run, model)
    assert fit.scale is not None
    skips, scale = 0, 65536.0
    while not finite_at(model, run, scale):
        skips, scale = skips + 1, scale / 2
    assert fit.halvings_from(65536.0) == skips
    assert fit.halvings_from(fit.scale) == 0


def test_no_scale_fits_a_fault_of_the_model() -> None:
    model = Mlp()

    def run(scale: float) -> None:
        model.zero_grad()
        out = model(torch.ones(2, 6)).float()
        ((out - out).sqrt().mean() * scale).backward()

    fit = fit_scale(run, model)
    assert fit.scale is None
    assert (fit.op, fit.module) == ("sqrt", "loss")
    assert fit.halvings_from(65536.0) == 0


def test_half_precision_loss_is_limited_by_the_scale_itself() -> None:
    model = nn.Linear(6, 1)

    def run(scale: float) -> None:
        model.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = model(torch.full((1, 6), 0.1)).mean()
        (loss * torch.tensor(scale)).backward()

    assert fit_scale(run, model).scale == 32768.0


def test_tiny_gradients_take_a_second_pass_at_a_higher_scale() -> None:
    torch.manual_seed(1)
    model = Mlp()
    run = run_of(model, 1e-12)
    fit = fit_scale(run, model)
    assert fit.passes > 1
    assert fit.scale is not None
    assert finite_at(model, run, fit.scale)
    assert not finite_at(model, run, fit.scale * 2)


def test_huge_gradients_take_a_second_pass_at_a_lower_scale() -> None:
    torch.manual_seed(1)
    model = Mlp()
    run = run_of(model, 1e6)
    fit = fit_scale(run, model)
    assert fit.scale is not None
    assert finite_at(model, run, fit.scale)
    assert not finite_at(model, run, fit.scale * 2)


def test_gradients_that_are_zero_at_any_scale_allow_any() -> None:
    model = Mlp()

    def run(scale: float) -> None:
        model.zero_grad()
        (model(torch.ones(2, 6)).sum() * 0.0 * scale).backward()

    assert fit_scale(run, model).scale == LARGEST_SCALE
