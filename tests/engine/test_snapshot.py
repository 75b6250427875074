"""A snapshot puts a training state back in place, to the last bit, whatever the run did to it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from amptui.engine.snapshot import BufferSnapshot, Snapshot, TrainingState
from tests.engine.training_scenarios import SCENARIOS, Net, digest, run


@pytest.mark.parametrize("name", SCENARIOS)
def test_training_goes_on_from_a_restored_snapshot_as_if_nothing_had_happened(name: str) -> None:
    state, step = SCENARIOS[name]()
    run(step, 2)
    snapshot, before = Snapshot.take(state), digest(state)
    losses, after = run(step, 3), digest(state)
    assert after != before
    for _ in range(2):  # a snapshot can be restored again and again
        snapshot.restore()
        assert digest(state) == before
        assert snapshot.differences(Snapshot.take(state)) is None
        assert run(step, 3) == losses
        assert digest(state) == after


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_snapshot_before_the_first_step_removes_the_state_that_the_steps_make(name: str) -> None:
    state, step = SCENARIOS[name]()
    snapshot, before = Snapshot.take(state), digest(state)
    losses = run(step, 2)
    snapshot.restore()
    assert digest(state) == before
    assert run(step, 2) == losses


def small() -> tuple[TrainingState, nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return TrainingState({"": net}, {"main": optimizer}), net, optimizer


def grow(net: Any) -> None:
    net.history.resize_(9).fill_(2.0)


def replace_data(net: Any) -> None:
    net.conv.weight.data = torch.zeros(7, dtype=torch.float64)


def tie_to_graph(net: Any) -> None:
    net.scale.mul_(net.head.bias[:3])


def exchange_sizes(net: Any) -> None:
    """As many elements as before, in the same tensor objects."""
    net.scale.data, net.history.data = torch.ones(net.history.numel()), torch.ones(3)


DAMAGE: dict[str, Any] = {
    "buffers that exchanged their sizes in place": exchange_sizes,
    "buffer of another dtype in place": lambda net: setattr(net.scale, "data", net.scale.half()),
    "buffer of other strides in place": lambda net: setattr(net.scale, "data", torch.zeros(6)[::2]),
    "buffer replaced": lambda net: setattr(net, "scale", torch.zeros(3)),
    "buffer replaced by another shape": lambda net: setattr(net, "scale", torch.zeros(8)),
    "buffer resized in place": grow,
    "buffer set to None": lambda net: setattr(net, "scale", None),
    "None set to a buffer": lambda net: setattr(net, "nothing", torch.ones(2)),
    "buffer deleted": lambda net: delattr(net, "scale"),
    "buffer registered": lambda net: net.register_buffer("late", torch.ones(2), persistent=False),
    "buffer made part of a graph": tie_to_graph,
    "buffer filled with NaN": lambda net: net.norm.running_mean.fill_(float("nan")),
    "parameter replaced": lambda net: setattr(net.head, "bias", nn.Parameter(torch.ones(4))),
    "parameter data replaced": replace_data,
    "parameter registered": lambda net: net.register_parameter("late", nn.Parameter(torch.ones(1))),
    "parameter frozen": lambda net: net.conv.requires_grad_(False),
    "model halved": lambda net: net.half(),
    "model laid out channels last": lambda net: net.to(memory_format=torch.channels_last),
    "model in eval mode": lambda net: net.eval(),
    "one module in eval mode": lambda net: net.norm.eval(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_a_run_does_to_modules_is_undone(damage: str) -> None:
    state, net, _ = small()
    snapshot, before = Snapshot.take(state), digest(state)
    identities = {name: id(tensor) for name, tensor in [*net.named_parameters(), *net.named_buffers()]}
    strides = [p.stride() for p in net.parameters()]
    DAMAGE[damage](net)
    assert snapshot.differences(Snapshot.take(state)) is not None or damage == "model laid out channels last"
    snapshot.restore()
    assert digest(state) == before
    assert {name: id(tensor) for name, tensor in [*net.named_parameters(), *net.named_buffers()]} == identities
    assert [p.stride() for p in net.parameters()] == strides


def test_gradients_are_gone_after_a_restore() -> None:
    state, net, _ = small()
    snapshot = Snapshot.take(state)
    net(torch.ones(2, 1, 5, 5)).sum().backward()
    snapshot.restore()
    assert all(p.grad is None for p in net.parameters())


def test_live_tensors_never_share_memory_with_the_snapshot() -> None:
    state, net, optimizer = small()
    net(torch.ones(2, 1, 5, 5)).sum().backward()
    optimizer.step()
    snapshot = Snapshot.take(state)
    snapshot.restore()
    live = {p.data_ptr() for p in net.parameters()} | {
        entry["momentum_buffer"].data_ptr() for entry in optimizer.state.values()
    }
    saved = {tensor.data_ptr() for tensor in snapshot._copies.saved if tensor.numel()}
    assert not live & saved


def test_hyperparameters_and_flags_of_the_optimizer_come_back() -> None:
    net = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW([{"params": net.weight, "lr": 0.5}, {"params": net.bias}], lr=0.1, fused=True)
    snapshot = Snapshot.take(TrainingState({"": net}, {"main": optimizer}))
    groups = [dict(group) for group in optimizer.param_groups]
    optimizer.param_groups[0].update(lr=9.0, betas=(0.0, 0.0), fused=False, invented=1)
    optimizer.param_groups[1]["params"].append(nn.Parameter(torch.ones(1)))
    optimizer.grad_scale = torch.tensor(2.0)  # what a step that raised inside GradScaler leaves behind
    snapshot.restore()
    assert [{**group, "params": None} for group in optimizer.param_groups] == [{**g, "params": None} for g in groups]
    assert optimizer.param_groups[1]["params"] == [net.bias]
    assert not hasattr(optimizer, "grad_scale")


def exchange_momenta(state: dict[Any, Any], one: Any, other: Any) -> None:
    state[one]["momentum_buffer"], state[other]["momentum_buffer"] = (
        state[other]["momentum_buffer"],
        state[one]["momentum_buffer"],
    )


def move_a_name(state: dict[Any, Any], one: Any, other: Any) -> None:
    """The same names and values in the same order, one of them in the next parameter's dict."""
    values = {"count": state[one].pop("count"), **state[other]}
    state[other].clear()
    state[other].update(values)


EXCHANGES: dict[str, Any] = {
    "tensors of two parameters exchanged": exchange_momenta,
    "tensor replaced": lambda state, one, other: state[one].update(momentum_buffer=torch.zeros(3)),
    "number changed": lambda state, one, other: state[one].update(count=4),
    "entry removed": lambda state, one, other: state[one].pop("momentum_buffer"),
    "entry added": lambda state, one, other: state[one].update(late=torch.ones(1)),
    "entry renamed": lambda state, one, other: state[one].update(other_name=state[one].pop("count")),
    "entry moved": move_a_name,
    "dict replaced": lambda state, one, other: state.update({one: dict(state[one])}),
    "parameter forgotten": lambda state, one, other: state.pop(other),
    "all forgotten": lambda state, one, other: state.clear(),
}


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_what_was_exchanged_in_the_optimizers_state_hangs_in_its_place_again(exchange: str) -> None:
    one, other = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
    net = nn.ParameterList([one, other])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    (one.sum() + 2 * other.sum()).backward()
    optimizer.step()
    optimizer.state[one]["count"] = 3
    state = TrainingState({"": net}, {"main": optimizer})
    snapshot, contents = Snapshot.take(state), [id(content) for content in optimizer.state.values()]
    EXCHANGES[exchange](optimizer.state, one, other)
    snapshot.restore()
    assert snapshot.differences(Snapshot.take(state)) is None
    assert [id(content) for content in optimizer.state.values()] == contents
    assert list(optimizer.state[one]) == ["momentum_buffer", "count"]
    assert optimizer.state[one]["momentum_buffer"].tolist() == [1.0] * 3
    assert optimizer.state[other]["momentum_buffer"].tolist() == [2.0] * 3


def test_nested_lists_of_tensors_in_optimizer_state_are_restored() -> None:
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3)
    x, y = torch.randn(8, 3), torch.randn(8, 1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        return loss

    state = TrainingState({"": net}, {"main": optimizer})
    optimizer.step(closure)
    snapshot = Snapshot.take(state)
    first = [float(optimizer.step(closure).detach()) for _ in range(2)]
    snapshot.restore()
    assert [float(optimizer.step(closure).detach()) for _ in range(2)] == first


def test_the_first_difference_is_named_by_its_path() -> None:
    state, net, optimizer = small()
    net(torch.ones(2, 1, 5, 5)).sum().backward()
    optimizer.step()
    snapshot = Snapshot.take(state)

    def difference() -> str | None:
        found = snapshot.differences(Snapshot.take(state))
        snapshot.restore()
        return found

    assert difference() is None
    net.norm.running_var[1] += 1e-6
    assert difference() == "norm.running_var"
    with torch.no_grad():
        net.head.weight[0, 0].neg_()
    assert difference() == "head.weight"
    optimizer.state[net.conv.bias]["momentum_buffer"][0] += 1
    assert difference() == "optimizers.main.conv.bias.momentum_buffer"
    optimizer.param_groups[0]["lr"] = 0.2
    assert difference() == "optimizers.main.param_groups.0.lr"
    random.random()
    assert difference() == "rng.python"
    np.random.rand()
    assert difference() == "rng.numpy"
    torch.rand(1)
    assert difference() == "rng.torch"
    assert snapshot.differences(Snapshot.take(state)) is None


def test_minus_zero_and_other_nan_bits_are_differences() -> None:
    net = nn.Module()
    net.register_buffer("x", torch.tensor([0.0, float("nan")]))
    state = TrainingState({"": net})
    snapshot = Snapshot.take(state)
    assert snapshot.differences(Snapshot.take(state)) is None
    net.x[0] = -0.0
    assert snapshot.differences(Snapshot.take(state)) == "x"
    snapshot.restore()
    net.x.view(torch.int32)[1] += 1
    assert snapshot.differences(Snapshot.take(state)) == "x"


def test_an_object_without_a_way_to_give_its_state_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"extra:counter \(object\) has neither"):
        Snapshot.take(TrainingState({}, extra={"counter": object()}))


def test_a_parameter_without_a_shape_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"1\.weight has no shape yet: run one batch"):
        Snapshot.take(TrainingState({"": nn.Sequential(nn.ReLU(), nn.LazyLinear(3))}))


def test_extra_state_of_a_module_is_restored() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.amax = [1.0]

        def get_extra_state(self) -> Any:
            return self.amax

        def set_extra_state(self, state: Any) -> None:
            self.amax = state

    net = nn.Sequential(Counting())
    snapshot = Snapshot.take(TrainingState({"": net}))
    net[0].amax.append(2.0)
    assert snapshot.differences(Snapshot.take(TrainingState({"": net}))) == "0.extra_state.1"
    snapshot.restore()
    assert net[0].amax == [1.0]


def test_buffers_made_in_inference_mode_are_restored() -> None:
    net = nn.Module()
    with torch.inference_mode():
        net.register_buffer("x", torch.ones(2))
    snapshot = Snapshot.take(TrainingState({"": net}))
    with torch.inference_mode():
        net.x.zero_()
    snapshot.restore()
    assert net.x.tolist() == [1.0, 1.0]


def test_restoring_works_without_the_private_foreach_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch, "_foreach_copy_")
    state, step = SCENARIOS["adamw"]()
    snapshot, before = Snapshot.take(state), digest(state)
    run(step, 2)
    snapshot.restore()
    assert digest(state) == before


BUFFER_DAMAGE = [name for name in DAMAGE if "buffer" in name]


@pytest.mark.parametrize("damage", BUFFER_DAMAGE)
def test_a_buffer_snapshot_restores_buffers_and_nothing_else(damage: str) -> None:
    state, net, _ = small()
    buffers = BufferSnapshot(state)
    net(torch.ones(2, 1, 5, 5))
    buffers.take()  # now with a grown history
    before = Snapshot.take(state)
    DAMAGE[damage](net)
    with torch.no_grad():
        net.head.weight.add_(1)
    buffers.restore()
    assert before.differences(Snapshot.take(state)) == "head.weight"
    with torch.no_grad():
        net.head.weight.copy_(before.tensors()["head.weight"])
    assert before.differences(Snapshot.take(state)) is None


def test_a_buffer_snapshot_taken_again_forgets_the_one_before() -> None:
    state, net, _ = small()
    buffers = BufferSnapshot(state)
    for value in (3.0, 4.0):
        net.scale.fill_(value)
        net.history = torch.full((int(value),), value)
        buffers.take()
        net.scale.zero_()
        net.history = torch.zeros(1)
        buffers.restore()
        assert net.scale.tolist() == [value] * 3
        assert net.history.tolist() == [value] * int(value)


@pytest.mark.parametrize("change", BUFFER_DAMAGE)
def test_a_buffer_snapshot_keeps_the_form_in_which_it_was_taken(change: str) -> None:
    state, net, _ = small()
    buffers = BufferSnapshot(state)
    DAMAGE[change](net)
    buffers.take()
    before = Snapshot.take(state)
    forms = {name: (b.shape, b.dtype, b.stride()) for name, b in net.named_buffers()}
    for buffer in net.buffers():
        buffer.data = torch.zeros(11)
    buffers.restore()
    assert before.differences(Snapshot.take(state)) in (None, "scale.requires_grad")  # a graph is not put back
    if "strides" not in change:  # what was swapped out comes back dense
        assert {name: (b.shape, b.dtype, b.stride()) for name, b in net.named_buffers()} == forms
