"""A loss that makes calls of the training loop itself is refused with the line that makes them; inner loops are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Project, Update
from amptui.protocol.events import CodeFailed, Refused
from tests.engine.conducted import opened_by

X = torch.ones(2, 4)
Loss = Callable[[Any, Any], Any]


def project(make_loss: Callable[[Any, Any, Any], Loss], **how: Any) -> Project:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    loss = make_loss(optimizer, scheduler, torch.amp.GradScaler("cpu"))
    updates = [Update(optimizer=optimizer, scheduler=scheduler, loss=loss, **how)]
    return Project(model=model, updates=updates, batches=[(X,)] * 4)


def calling(name: str, *, returned: Callable[[Tensor], Any] = lambda total: total) -> Callable[..., Loss]:
    def make(optimizer: Any, scheduler: Any, scaler: Any) -> Loss:
        def loss(model: Any, batch: Any) -> Any:
            total = model(batch[0]).sum()
            calls = {
                "backward": total.backward,
                "backward, its graph kept": lambda: total.backward(retain_graph=True),
                "autograd.backward": lambda: torch.autograd.backward(total),
                "optimizer.step": optimizer.step,
                "optimizer.zero_grad": optimizer.zero_grad,
                "scheduler.step": scheduler.step,
                "scaler.unscale_": lambda: scaler.unscale_(optimizer),
                "scaler.update": scaler.update,
            }
            calls[name]()
            return returned(total)

        return loss

    return make


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("backward", "calls backward itself"),
        ("backward, its graph kept", "calls backward itself"),
        ("autograd.backward", "calls backward itself"),
        ("optimizer.step", "calls optimizer.step itself"),
        ("optimizer.zero_grad", "calls optimizer.zero_grad itself"),
        ("scheduler.step", "calls scheduler.step itself"),
        ("scaler.unscale_", "uses a GradScaler of its own"),
        ("scaler.update", "uses a GradScaler of its own"),
    ],
)
def test_a_call_of_the_loop_is_refused_at_its_line(
    call: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = opened_by(project(calling(call)), tmp_path, monkeypatch).one(Refused)
    assert told in refused.message
    assert "return the loss alone" in refused.hint
    file, _, line = (refused.where or "").rpartition(":")
    assert file == __file__
    assert int(line) > calling.__code__.co_firstlineno
    assert [finding.kind for finding in refused.findings] == ["loop_order"]


@pytest.mark.parametrize("returned", [lambda total: total.item(), lambda total: total.detach()], ids=["item", "detach"])
def test_backward_is_the_reason_also_where_the_loss_returns_what_drives_nothing(
    returned: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = opened_by(project(calling("backward", returned=returned)), tmp_path, monkeypatch).one(Refused)
    assert refused.code == "loop-in-loss"


def inner_loop(_optimizer: Any, _scheduler: Any, _scaler: Any) -> Loss:
    """A latent that is fitted anew for each batch, with the model held still."""

    def loss(model: Any, batch: Any) -> Tensor:
        latent = torch.zeros(4, requires_grad=True)
        fitting = torch.optim.SGD([latent], lr=0.1)
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        fitting.zero_grad()
        model(batch[0] + latent).sum().backward()
        fitting.step()
        for parameter in model.parameters():
            parameter.requires_grad_(True)
        return model(batch[0] + latent.detach()).sum()

    return loss


def attack(_optimizer: Any, _scheduler: Any, _scaler: Any) -> Loss:
    """An input gradient by backward, and the model's own gradients cleared behind it."""

    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0].clone().requires_grad_()
        model(x).sum().backward()
        model.zero_grad()
        return model(batch[0] + x.grad.sign()).sum()

    return loss


def penalty(_optimizer: Any, _scheduler: Any, _scaler: Any) -> Loss:
    def loss(model: Any, batch: Any) -> Tensor:
        x = batch[0].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return model(batch[0]).sum() + gradient.square().sum()

    return loss


@pytest.mark.parametrize("make", [inner_loop, attack, penalty])
def test_gradients_of_the_losss_own_are_left_alone(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = opened_by(project(make), tmp_path, monkeypatch)
    assert done.all(Refused) == []
    conductor = done.conductor
    assert conductor.bench is not None
    assert "zero_grad" not in vars(conductor.bench.live.updates[0].update.optimizer), "nothing is left replaced"


def test_a_graph_kept_from_an_earlier_batch_has_a_mend_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Tensor] = []

    def remembering(model: Any, batch: Any) -> Tensor:
        kept.append(model(batch[0]).sum())
        return sum(kept[-2:], torch.zeros(()))

    done = opened_by(project(lambda *_: remembering, accumulate=2), tmp_path, monkeypatch)
    assert done.all(CodeFailed)
    assert "detach() what is kept between batches" in done.one(Refused).hint
