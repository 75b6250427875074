"""Where a dispatch mode cannot go: compiled models and higher-order ops get a coarser answer, or an honest none."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from amptui.engine.tracing import Trace, trace
from amptui.engine.tracing.ladder import Level


class Inner(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.fc, self.function = nn.Linear(4, 4), function
        nn.init.constant_(self.fc.weight, 1.0)
        nn.init.zeros_(self.fc.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.fc(x))


class Outer(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.stem, self.inner = nn.Linear(4, 4), Inner(function)
        nn.init.constant_(self.stem.weight, 1.0)
        nn.init.zeros_(self.stem.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.stem(x))  # <- call_of_inner


def traced(
    model: nn.Module, *, levels: tuple[Level, ...] = ("op", "module", "name"), known: nn.Module | None = None
) -> Trace:
    def run() -> Tensor:
        (known or model).zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = model(torch.ones(2, 4)).float().mean()
        loss.backward()
        return loss

    def fails(value: object, error: BaseException | None) -> bool:
        gradients = [p.grad for p in (known or model).parameters() if p.grad is not None]
        bad = any(not g.isfinite().all() for g in gradients)
        return error is None and (bad or (isinstance(value, Tensor) and not math.isfinite(value.item())))

    return trace(run, modules=known or model, reproduced=fails, levels=levels)


def gradients_of(model: nn.Module) -> dict[str, Tensor | None]:
    return {name: p.grad for name, p in model.named_parameters()}


def burst(h: Tensor) -> Tensor:
    return torch.exp(h)  # <- burst


def root(h: Tensor) -> Tensor:
    return (h - h).sqrt()  # <- root


def test_op_level_is_taken_where_it_works() -> None:
    found = traced(Outer(burst))
    assert (found.level, found.reproduced, found.notes) == ("op", True, ())
    assert found.ops > 0


def test_compiled_code_runs_eagerly_under_the_trace(line_at: Callable[[str], str]) -> None:
    model = Outer(burst)
    compiled = torch.compile(model, backend="eager")
    found = traced(compiled, known=model)
    [first] = found.blame(loss=found.value)
    assert (found.level, first.op, first.module, first.line) == ("op", "exp", "inner", line_at("burst"))


def test_paths_of_a_compiled_model_are_the_users_own() -> None:
    compiled = torch.compile(Outer(burst), backend="eager")
    found = traced(compiled)
    [first] = found.blame(loss=found.value)
    assert first.module == "inner"


def test_module_compiled_in_place(line_at: Callable[[str], str]) -> None:
    model = Outer(burst)
    model.inner.compile(backend="eager")
    found = traced(model)
    [first] = found.blame(loss=found.value)
    assert (first.module, first.line) == ("inner", line_at("burst"))


def test_failure_that_eager_code_does_not_show_goes_to_module_level() -> None:
    class OnlyCompiled(nn.Module):
        def forward(self, h: Tensor) -> Tensor:
            return h * (math.inf if torch.compiler.is_compiling() else 1.0)

    model = Outer(OnlyCompiled())
    found = traced(torch.compile(model, backend="eager"), known=model)
    assert found.level in ("module", "name")
    assert found.reproduced
    assert "op level" in found.notes[0]
    [first] = found.blame(loss=found.value)
    assert first.cause == "unknown"


def test_module_level_names_the_innermost_module_and_the_line_of_its_call(line_at: Callable[[str], str]) -> None:
    model = Outer(burst)
    found = traced(model, levels=("module",))
    [first] = found.blame(loss=found.value, gradients=gradients_of(model))
    assert (first.phase, first.module, first.kinds) == ("forward", "inner", ("inf",))
    assert first.line == line_at("call_of_inner")
    assert first.inputs[0].absmax == 4.0


def test_module_level_in_backward(line_at: Callable[[str], str]) -> None:
    model = Outer(root)
    found = traced(model, levels=("module",))
    [first] = found.blame(loss=found.value, gradients=gradients_of(model))
    assert (first.phase, first.module) == ("backward", "inner")
    assert first.line == line_at("call_of_inner")


def test_name_level_names_the_loss_or_a_parameter() -> None:
    model = Outer(burst)
    found = traced(model, levels=("name",))
    [first] = found.blame(loss=found.value, gradients=gradients_of(model))
    assert (first.tensor, first.module) == ("loss", "loss")
    model = Outer(root)
    found = traced(model, levels=("name",))
    [first] = found.blame(loss=found.value, gradients=gradients_of(model))
    assert (first.phase, first.module, first.tensor) == ("backward", "inner.fc", "gradient inner.fc.bias")


def test_higher_order_op() -> None:
    def branch(h: Tensor) -> Tensor:
        return torch.cond(h.sum() > 0, torch.exp, lambda t: t + 1, (h,))

    model = Outer(branch)
    found = traced(model)
    assert found.reproduced
    [first] = found.blame(loss=found.value)
    assert first.module in ("inner", "")
    assert found.level in ("op", "module")


def test_torch_without_the_private_functions_gets_module_level(monkeypatch: pytest.MonkeyPatch) -> None:
    from amptui.engine.tracing import backward

    monkeypatch.setattr(backward, "_sequence", None)
    found = traced(Outer(burst))
    assert (found.level, found.reproduced) == ("module", True)
    assert "op level" in found.notes[0]


def test_a_failure_that_never_shows_again_is_not_called_reproduced() -> None:
    found = traced(Outer(torch.relu))
    assert not found.reproduced
    assert len(found.notes) == 3


def test_an_error_that_is_expected_stays_at_op_level() -> None:
    class Fails(nn.Module):
        def forward(self, h: Tensor) -> Tensor:
            raise ValueError("no")

    model = Outer(Fails())
    found = trace(lambda: model(torch.ones(2, 4)), modules=model)
    assert found.level == "op"
    assert isinstance(found.error, ValueError)
    assert found.error_place is not None
    assert found.error_place.module == "inner.function"


@pytest.mark.parametrize("level", ["op", "module", "name"])
def test_hooks_and_modes_are_gone_afterwards(level: Level) -> None:
    from torch.nn.modules import module as registry

    model = Outer(burst)
    traced(model, levels=(level,))
    assert not registry._global_forward_hooks
    assert not registry._global_forward_pre_hooks
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
