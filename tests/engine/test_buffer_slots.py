"""A look at where buffers hang sees every change of place, and no change of value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from amptui.engine.buffer_slots import BufferSlots


def two_norms() -> Any:
    return nn.Sequential(nn.BatchNorm1d(3), nn.ReLU(), nn.BatchNorm1d(3, track_running_stats=False))


def renamed(net: Any) -> None:
    """The same tensors in the same order under other names."""
    buffers = net[0]._buffers
    for name in list(buffers):
        buffers[f"new_{name}"] = buffers.pop(name)


def moved(net: Any) -> None:
    """As many buffers as before, one of them where there was none."""
    net[1].register_buffer("late", net[0]._buffers.pop("num_batches_tracked"))


CHANGES: dict[str, Callable[[Any], object]] = {
    "replaced": lambda net: setattr(net[0], "running_mean", torch.zeros(3)),
    "set to None": lambda net: setattr(net[0], "running_mean", None),
    "set from None": lambda net: setattr(net[2], "running_mean", torch.ones(3)),
    "registered where there were some": lambda net: net[0].register_buffer("late", torch.ones(1)),
    "registered where there were none": lambda net: net[1].register_buffer("late", torch.ones(1)),
    "deleted": lambda net: delattr(net[0], "running_var"),
    "renamed": renamed,
    "moved to another module": moved,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_place_is_seen_once(change: str) -> None:
    net = two_norms()
    slots = BufferSlots(net.named_modules())
    assert not slots.changed()
    CHANGES[change](net)
    assert slots.changed()
    assert not slots.changed()
    assert [(path, name) for path, name, _ in slots] == [
        (path, name) for path, module in net.named_modules() for name in module._buffers
    ]


def test_a_change_of_value_is_none() -> None:
    net = two_norms()
    slots = BufferSlots(net.named_modules())
    net(torch.randn(4, 3))
    assert not slots.changed()
