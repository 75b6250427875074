"""Overflow that heals unseen, and values and gradients that are rounded away."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amptui.engine.tracing import Trace, trace

HALF = torch.float16


class Net(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor], weight: float = 1.0) -> None:
        super().__init__()
        self.fc, self.function = nn.Linear(4, 4, bias=False), function
        nn.init.constant_(self.fc.weight, weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.fc(x))


def run_of(model: nn.Module, scale: float = 1.0, *, dtype: torch.dtype = HALF) -> Trace:
    def run() -> Tensor:
        model.zero_grad()
        with torch.autocast("cpu", dtype):
            loss = model(torch.ones(2, 4)).float().mean()
        (loss * scale).backward()
        return loss

    return trace(run, modules=model)


def gradients_of(model: nn.Module) -> dict[str, Tensor | None]:
    return {name: p.grad for name, p in model.named_parameters()}


def hand_written_norm(h: Tensor) -> Tensor:
    wide = h * 100.0
    variance = (wide * wide).mean(-1, keepdim=True)  # <- square
    return wide / torch.sqrt(variance)  # <- heals


def saturates(h: Tensor) -> Tensor:
    return torch.tanh(h * 60000.0)  # <- saturates


def clamps_in_place(h: Tensor) -> Tensor:
    wide = h * 60000.0  # <- in_place
    return wide.clamp_(max=7.0)


@pytest.mark.parametrize(("function", "op", "mark", "by"), [
    (hand_written_norm, "mul", "square", "div"),
    (saturates, "mul", "saturates", "tanh"),
    (clamps_in_place, "mul", "in_place", "clamp_"),
])  # fmt: skip
def test_hidden_overflow_is_found(
    function: Callable[[Tensor], Tensor], op: str, mark: str, by: str, line_at: Callable[[str], str]
) -> None:
    found = run_of(Net(function))
    assert found.value.isfinite()
    assert found.blame(loss=found.value) == ()
    [hidden] = found.healed(loss=found.value)
    assert (hidden.op, hidden.line, hidden.cause) == (op, line_at(mark), "overflow")
    assert hidden.healed_by is not None
    assert hidden.healed_by.op == by


def test_overflow_that_reaches_the_loss_is_not_hidden() -> None:
    found = run_of(Net(lambda h: h * 60000.0))
    assert found.healed(loss=found.value) == ()
    assert found.blame(loss=found.value)


def test_hidden_overflow_that_a_healthy_run_has_too_is_accepted() -> None:
    found = run_of(Net(saturates))
    assert found.healed(loss=found.value, accepted=found.sites()) == ()


def eps_of_normalize(h: Tensor) -> Tensor:
    return F.normalize(h - h, dim=-1)  # <- normalize


def eps_added(h: Tensor) -> Tensor:
    zero = h - h
    return zero / (zero.abs() + 1e-9)  # <- eps_added


def probability(h: Tensor) -> Tensor:
    p = torch.sigmoid(-5 * h)  # <- sigmoid
    chosen = torch.where(h > 100, 1 - p, p)
    return torch.log(chosen)  # <- log


def saturated_probability(h: Tensor) -> Tensor:
    p = torch.sigmoid(5 * h)  # <- saturated
    return torch.log(1 - p)  # <- log_of_rest


def tiny_square(h: Tensor) -> Tensor:
    d = h * 1e-5
    return 1.0 / (d * d).mean()  # <- tiny_square


def root_in_place(h: Tensor) -> Tensor:
    small = torch.exp(h * -10).clone()  # <- small
    small.sqrt_()
    return 1.0 / small  # <- over_small


ROOTS = {
    "normalize": (eps_of_normalize, "div", "normalize", "clamp_min", "normalize", "scalar", 1e-12),
    "eps added": (eps_added, "div", "eps_added", "add", "eps_added", "scalar", 1e-9),
    "log of sigmoid": (probability, "log", "log", "sigmoid", "sigmoid", "all", None),
    "log of the rest": (saturated_probability, "log", "log_of_rest", "sigmoid", "saturated", "one", None),
    "in place": (root_in_place, "reciprocal", "over_small", "exp", "small", "all", None),
    "square": (tiny_square, "reciprocal", "tiny_square", "mul", "tiny_square", "all", None),
}


@pytest.mark.parametrize("name", ROOTS)
def test_underflow_is_the_root_of_a_pole(name: str, line_at: Callable[[str], str]) -> None:
    function, op, mark, root_op, root_mark, how, scalar = ROOTS[name]
    found = run_of(Net(function))
    first = found.blame(loss=found.value)[0]
    assert (first.op, first.line, first.cause) == (op, line_at(mark), "pole")
    assert first.root is not None
    assert (first.root.op, first.root.line) == (root_op, line_at(root_mark))
    assert (first.root.cause, first.root.how, first.root.scalar) == ("underflow", how, scalar)


def test_pole_of_the_formula_has_no_such_root() -> None:
    found = run_of(Net(lambda h: torch.log(torch.relu(-h))))
    [first] = found.blame(loss=found.value)
    assert first.root is None


def test_clamped_root_in_backward(line_at: Callable[[str], str]) -> None:
    def sine(h: Tensor) -> Tensor:
        cosine = h / 4
        return torch.sqrt((1 - cosine * cosine).clamp(min=1e-9))  # <- sine

    model = Net(sine)
    found = run_of(model)
    [first] = found.blame(loss=found.value, gradients=gradients_of(model))
    assert (first.phase, first.op, first.line) == ("backward", "sqrt", line_at("sine"))
    assert first.root is not None
    assert (first.root.op, first.root.scalar) == ("clamp", 1e-9)


def test_gradients_that_all_rounded_to_zero(line_at: Callable[[str], str]) -> None:
    def faint(h: Tensor) -> Tensor:
        return h.float() * 1e-10  # <- faint

    model = Net(faint)
    found = run_of(model)
    gradients = gradients_of(model)
    assert found.value != 0
    [lost] = found.vanished(gradients)
    assert (lost.phase, lost.op, lost.dtype, lost.how) == ("backward", "to", "float16", "all")
    assert lost.line == line_at("faint")
    assert lost.reaches == ("fc.weight",)
    found = run_of(model, 65536.0)
    assert found.vanished(gradients_of(model)) == ()


def test_gradients_that_are_truly_zero_were_not_lost() -> None:
    model = Net(lambda h: torch.relu(-h))
    found = run_of(model)
    assert (model.fc.weight.grad == 0).all()
    assert found.vanished(gradients_of(model)) == ()
