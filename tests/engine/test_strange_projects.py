"""Projects that do unusual but legal things: the guard still equals the plain loop, or says what is wrong."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Policy, Project, Scaler, Update
from amptui.engine.failures import UserCodeError
from tests.engine.projects import (
    Net,
    assert_same_bits,
    batches,
    guarded,
    opened,
    plain_amp_loop,
    state_of,
    weighted_loss,
)

Make = Callable[[], tuple[Any, list[Update]]]
SCALER = Scaler(init_scale=4096.0, growth_interval=3)


def adamw(parameters: Any, **how: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01, **how)


def tied_weights() -> tuple[Any, list[Update]]:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(6)
            self.out = nn.Linear(6, 6)
            self.out.weight = self.net.enter.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.net(self.out(x))

    model = Tied()
    return model, [Update(optimizer=adamw(model.parameters()), loss=weighted_loss, clip_norm=0.5)]


def shared_modules() -> tuple[Any, list[Update]]:
    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            block = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))
            self.blocks = nn.ModuleList([block, block])
            self.net = Net()

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = block(x)
            return self.net(x)

    model = Repeated()
    return model, [Update(optimizer=adamw(model.parameters()), loss=weighted_loss)]


def unused_parameters() -> tuple[Any, list[Update]]:
    model = nn.ModuleDict({"net": Net(), "unused": nn.Linear(2, 2)})

    def loss(m: Any, batch: Any) -> Tensor:
        return weighted_loss(m["net"], batch)

    return model, [Update(optimizer=adamw(model.parameters()), loss=loss, clip_norm=0.1)]


def frozen_parameters() -> tuple[Any, list[Update]]:
    model = Net()
    model.enter.requires_grad_(False)
    return model, [Update(optimizer=adamw(model.parameters()), loss=weighted_loss)]


def several_groups() -> tuple[Any, list[Update]]:
    model = Net()
    groups = [
        {"params": model.enter.parameters(), "lr": 0.001, "weight_decay": 0.1},
        {"params": [*model.norm.parameters(), *model.head.parameters()], "lr": 0.02},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    return model, [Update(optimizer=optimizer, loss=weighted_loss, scheduler=scheduler, clip_norm=1.0)]


def rate_as_tensor() -> tuple[Any, list[Update]]:
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.01), fused=True)
    return model, [
        Update(
            optimizer=optimizer, loss=weighted_loss, scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        )
    ]


def no_foreach() -> tuple[Any, list[Update]]:
    model = Net()
    return model, [Update(optimizer=adamw(model.parameters(), foreach=False, amsgrad=True), loss=weighted_loss)]


def gradient_hooks() -> tuple[Any, list[Update]]:
    model = Net()
    model.head.weight.register_hook(lambda gradient: gradient * 0.5)

    def doubled(parameter: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.mul_(2.0)

    model.enter.weight.register_post_accumulate_grad_hook(doubled)
    return model, [Update(optimizer=adamw(model.parameters()), loss=weighted_loss)]


def graph_kept() -> tuple[Any, list[Update]]:
    model, kept = Net(), []

    def loss(m: Any, batch: Any) -> Tensor:
        value = weighted_loss(m, batch)
        kept.append(value)  # every graph stays alive
        value.backward(retain_graph=True)  # and is used by the project itself first
        for parameter in m.parameters():
            parameter.grad = None
        return value

    return model, [Update(optimizer=adamw(model.parameters()), loss=loss)]


def noisy_loss() -> tuple[Any, list[Update]]:
    model = Net()

    def loss(m: Any, batch: Any) -> Tensor:
        print("\x1b[31mloss", flush=True)
        warnings.warn("old habit", stacklevel=1)
        return weighted_loss(m, batch)

    return model, [Update(optimizer=adamw(model.parameters()), loss=loss)]


@dataclasses.dataclass
class Output:
    score: Tensor
    extra: Any = None


def dataclass_output() -> tuple[Any, list[Update]]:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, x: Tensor) -> Output:
            return Output(self.net(x), {"kept": x})

    model = Wrapped()

    def loss(m: Any, batch: Any) -> dict[str, Any]:
        out = m(batch[0])
        return {"loss": ((out.score - batch[1]).float() ** 2).mean() * batch[2], "mean": out.score.mean()}

    class Plain(dict):  # type: ignore[type-arg]
        pass

    return model, [Update(optimizer=adamw(model.parameters()), loss=lambda m, b: Plain(loss(m, b)))]


def loss_of_one_element() -> tuple[Any, list[Update]]:
    model = Net()
    return model, [Update(optimizer=adamw(model.parameters()), loss=lambda m, b: weighted_loss(m, b).reshape(1, 1))]


def custom_function() -> tuple[Any, list[Update]]:
    class Cube(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
            (x,) = ctx.saved_tensors
            return gradient * 3 * x * x

    class Cubed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, x: Tensor) -> Tensor:
            return Cube.apply(self.net(x))

    model = Cubed()
    return model, [Update(optimizer=adamw(model.parameters()), loss=weighted_loss)]


STRANGE: list[Make] = [
    tied_weights,
    shared_modules,
    unused_parameters,
    frozen_parameters,
    several_groups,
    rate_as_tensor,
    no_foreach,
    gradient_hooks,
    noisy_loss,
    loss_of_one_element,
    custom_function,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", STRANGE)
def test_the_guard_equals_the_plain_loop_bit_for_bit(make: Make, tmp_path: Path) -> None:
    data = batches(8, bad=(3,))
    torch.manual_seed(6)
    model, updates = make()
    torch.manual_seed(5)
    plain_amp_loop(model, updates, copy.deepcopy(data), dtype=torch.float16, scaler=SCALER)
    torch.manual_seed(6)
    twin, twins = make()
    live = opened(Project(model=twin, updates=twins, batches=data), tmp_path)
    torch.manual_seed(5)
    left = guarded(live, Policy(scaler=SCALER))
    assert_same_bits(state_of(twin, twins), state_of(model, updates))
    assert any(not record.updates[0].applied for record in left.records)


@pytest.mark.parametrize("make", [graph_kept, dataclass_output])
def test_what_the_plain_loop_of_the_tests_cannot_say_runs_too(make: Make, tmp_path: Path) -> None:
    torch.manual_seed(6)
    model, updates = make()
    live = opened(Project(model=model, updates=updates, batches=batches(4)), tmp_path)
    left = guarded(live, Policy(scaler=SCALER))
    assert [record.updates[0].applied for record in left.records] == [True] * 4


def test_batches_that_want_gradients_get_them(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    seen: list[Tensor] = []

    def loss(m: Any, batch: Any) -> Tensor:
        (latent,) = batch
        assert latent.is_leaf
        assert latent.grad is None, "each window has its own"
        seen.append(latent)
        return m(latent).float().sum()

    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
    given = torch.ones(2, 4, requires_grad=True)
    live = opened(Project(model=model, updates=[update], batches=[(given,)] * 3), tmp_path)
    guarded(live, Policy(dtype="bfloat16"))
    assert all(latent.grad is not None for latent in seen)
    assert given.grad is None


def test_the_same_loss_object_twice_is_the_projects_error(tmp_path: Path) -> None:
    model, kept = nn.Linear(4, 1), []

    def loss(m: Any, batch: Any) -> Tensor:
        if not kept:
            kept.append(m(batch[0]).float().pow(2).sum())
        return kept[0]

    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=loss)
    live = opened(Project(model=model, updates=[update], batches=[(torch.ones(2, 4),)] * 2), tmp_path)
    with pytest.raises(UserCodeError) as failed:
        guarded(live, Policy(dtype="bfloat16"))
    assert (failed.value.phase, failed.value.step) == ("backward", 1)


def test_complex_parameters_train_without_a_scaler_and_fail_by_name_with_one(tmp_path: Path) -> None:
    class Waves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, dtype=torch.complex64))

    def project() -> Project:
        model = Waves()
        update = Update(
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            loss=lambda m, b: (m.weight * b[0]).abs().sum(),
            clip_norm=1.0,
        )
        return Project(model=model, updates=[update], batches=[(torch.ones(4),)] * 2)

    left = guarded(opened(project(), tmp_path / "1"), Policy(dtype="bfloat16"))
    assert [record.updates[0].applied for record in left.records] == [True, True]
    with pytest.raises(UserCodeError) as failed:
        guarded(opened(project(), tmp_path / "2"), Policy())
    assert failed.value.phase == "unscale"
    assert failed.value.exception == "NotImplementedError"


def test_a_step_or_a_schedule_that_raises_is_the_projects_error(tmp_path: Path) -> None:
    class Broken(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            raise OSError("no such device")

    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    late = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0 / (2 - epoch))
    for phase, update in {
        "step": Update(optimizer=Broken(model.parameters(), lr=0.1), loss=lambda m, b: m(b[0]).float().sum()),
        "scheduler": Update(optimizer=optimizer, scheduler=late, loss=lambda m, b: m(b[0]).float().sum()),
    }.items():
        live = opened(Project(model=model, updates=[update], batches=[(torch.ones(2, 4),)] * 4), tmp_path / phase)
        with pytest.raises(UserCodeError) as failed:
            guarded(live, Policy(dtype="bfloat16"))
        assert failed.value.phase == phase


@pytest.mark.parametrize("every_step", [lambda: torch.manual_seed(3), lambda: torch.set_num_threads(1)])
def test_code_that_seeds_in_every_step_is_as_reproducible_as_before(every_step: Any, tmp_path: Path) -> None:
    def project() -> Project:
        torch.manual_seed(2)
        model = Net()

        def loss(m: Any, batch: Any) -> Tensor:
            every_step()
            return weighted_loss(m, batch)

        return Project(
            model=model, updates=[Update(optimizer=adamw(model.parameters()), loss=loss)], batches=batches(4)
        )

    states = []
    for run in ("one", "two"):
        given = project()
        torch.manual_seed(5)
        guarded(opened(given, tmp_path / run), Policy(scaler=SCALER))
        states.append(state_of(given.model, given.updates))
    assert_same_bits(*states)
