"""A training state kept in memory and put back in place, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from amptui.engine import rng
from amptui.engine.buffer_slots import BufferSlots
from amptui.engine.live_tree import captured, flat_objects, leaves, put_back, same_objects
from amptui.engine.plain_values import same_bits
from amptui.engine.tensor_copies import TensorCopies
from amptui.engine.training_state import TrainingState, copied, has_extra_state, joined, load_state, state_of

__all__ = ["BufferSnapshot", "Snapshot", "TrainingState"]


class Snapshot:
    """All that a run changes, as it was at `take`.

    Parameters and all buffers (persistent or not; tied ones once), training and requires_grad flags, the full state of
    the optimizers, schedulers, extra objects, and the random number generators. `restore` may be called often.

    Copies are detached and lie beside their tensors. Tensors are restored into the same objects, so that optimizers,
    tied weights and views keep what they refer to; a parameter or buffer that was replaced, resized, deleted or
    registered since is put back as it was; gradients are set to None.
    """

    def __init__(self, state: TrainingState, copies: TensorCopies) -> None:
        """Use `take`."""
        self.state = state
        self._copies = copies
        self._modules = [_ModuleEntry.of(path, module, copies) for path, module in state.named_modules()]
        self._optimizers = {name: _OptimizerEntry.of(value, copies) for name, value in state.all_optimizers().items()}
        self._stateful = {path: (value, copied(state_of(value, path))) for path, value in state.stateful().items()}
        self._parameter_names = state.parameter_names()
        copies.fill()
        self.rng = rng.capture()

    @classmethod
    def take(cls, state: TrainingState) -> Snapshot:
        """Copies `state`. TypeError if an object in it has no state to give."""
        return cls(state, TensorCopies())

    @property
    def bytes(self) -> int:
        """Bytes of all tensors in it."""
        return self._copies.bytes

    def restore(self, *, with_rng: bool = True) -> None:
        """Puts everything back in place: the tensors at the speed of memcpy."""
        for path, (value, saved) in self._stateful.items():
            load_state(value, copied(saved), path)
        for module in self._modules:
            module.put_back()
        for optimizer in self._optimizers.values():
            optimizer.put_back()
        self._copies.restore()
        for tensor in [live for live in self._copies.live if live.grad is not None]:
            tensor.grad = None
        if with_rng:
            rng.restore(self.rng)

    def differences(self, other: Snapshot, *, with_rng: bool = True) -> str | None:
        """The path of the first tensor or value that differs in any bit, None if all agree.

        Parameters and buffers by dotted path ("encoder.bn.running_mean"), then "optimizers.main.<parameter>.exp_avg",
        "schedulers.main.last_epoch", "extra:ema.…", "rng.torch".
        """
        for mine, its in zip_longest(self._leaves(), other._leaves()):
            if mine is None or its is None:
                return str((mine or its)[0])
            if mine[0] != its[0] or not _same(mine[1], its[1]):
                return str(mine[0])
        generator = self.rng.first_difference(other.rng) if with_rng else None
        return None if generator is None else f"rng.{generator}"

    def tensors(self) -> dict[str, Tensor]:
        """The saved parameters and buffers by dotted path. They are the snapshot's own: read only."""
        return {path: value for path, value in self._module_leaves() if isinstance(value, Tensor)}

    def _leaves(self) -> Iterator[tuple[str, Any]]:
        yield from self._module_leaves()
        for name, optimizer in self._optimizers.items():
            yield from optimizer.leaves(f"optimizers.{name}", self._parameter_names, self._copies)
        for path, (_value, saved) in self._stateful.items():
            yield from _value_leaves(saved, path)

    def _module_leaves(self) -> Iterator[tuple[str, Any]]:
        for module in self._modules:
            yield from module.leaves(self._copies)


class BufferSnapshot:
    """The buffers alone, taken again and again around single iterations (a few microseconds for a few buffers)."""

    def __init__(self, state: TrainingState) -> None:
        self._slots = BufferSlots(state.named_modules())
        self._copies = TensorCopies()
        self._list()
        self._copies.fill()

    def take(self) -> None:
        """Copies all buffers as they are now, into the same memory."""
        if self._slots.changed():
            self._list()
        self._copies.fill()

    def _list(self) -> None:
        self._contents = [dict(content) for content in self._slots.contents]
        self._copies = TensorCopies(reuse=self._copies)
        for _, _, buffer in self._slots:
            if buffer is not None:
                self._copies.add(buffer)

    def restore(self) -> None:
        """Puts all buffers back, also those that were replaced, resized, set to None, deleted or registered since."""
        for live, saved in zip(self._slots.contents, self._contents, strict=True):
            _put_back_slots(live, saved)
        self._copies.restore()

    def tensors(self) -> dict[str, Tensor]:
        """The saved buffers by dotted path. They are the snapshot's own: read only."""
        saved = {}
        for path, content in zip(self._slots.paths, self._contents, strict=True):
            for name, buffer in content.items():
                index = None if buffer is None else self._copies.index_of(buffer)
                if index is not None:
                    saved[joined(path, name)] = self._copies.saved[index]
        return saved


@dataclass(frozen=True, eq=False)
class _ModuleEntry:
    path: str
    module: nn.Module
    training: bool
    parameters: Mapping[str, Tensor | None]
    buffers: Mapping[str, Tensor | None]
    non_persistent: frozenset[str]
    extra_state: Any

    @classmethod
    def of(cls, path: str, module: nn.Module, copies: TensorCopies) -> _ModuleEntry:
        for slots in (module._parameters, module._buffers):
            for name, tensor in slots.items():
                if tensor is None:
                    continue
                if is_lazy(tensor):
                    raise TypeError(f"{joined(path, name)} has no shape yet: run one batch through the model first")
                copies.add(tensor)
        extra = copied(module.get_extra_state()) if has_extra_state(module) else None
        return cls(
            path,
            module,
            module.training,
            dict(module._parameters),
            dict(module._buffers),
            frozenset(module._non_persistent_buffers_set),
            extra,
        )

    def put_back(self) -> None:
        module = self.module
        module.training = self.training
        _put_back_slots(module._parameters, self.parameters)
        _put_back_slots(module._buffers, self.buffers)
        if module._non_persistent_buffers_set != self.non_persistent:
            module._non_persistent_buffers_set = set(self.non_persistent)
        if has_extra_state(module):
            module.set_extra_state(copied(self.extra_state))

    def leaves(self, copies: TensorCopies) -> Iterator[tuple[str, Any]]:
        for slots in (self.parameters, self.buffers):
            for name, tensor in slots.items():
                path = joined(self.path, name)
                if tensor is None:
                    yield path, None
                    continue
                index = copies.index_of(tensor)
                assert index is not None, "added in `of`"
                yield path, copies.saved[index]
                yield f"{path}.requires_grad", copies.requires_grad(index)
        yield joined(self.path, "training"), self.training
        if self.extra_state is not None:
            yield from _value_leaves(self.extra_state, joined(self.path, "extra_state"))


@dataclass(frozen=True, eq=False)
class _OptimizerEntry:
    optimizer: Optimizer
    groups: Any
    state: tuple[tuple[Any, Any], ...]
    #: The state's objects as they hung in it, where identity alone tells that none was exchanged.
    objects: list[object] | None
    leftovers: frozenset[str]

    @classmethod
    def of(cls, optimizer: Optimizer, copies: TensorCopies) -> _OptimizerEntry:
        state = tuple((key, captured(value, copies)) for key, value in optimizer.state.items())
        groups, objects = captured(optimizer.param_groups, copies), flat_objects(optimizer.state)
        return cls(optimizer, groups, state, objects, _scaler_leftovers(optimizer))

    def put_back(self) -> None:
        put_back(self.groups)
        live = self.optimizer.state
        if self.objects is None or not same_objects(self.objects, flat_objects(live)):
            live.clear()
            live.update({key: put_back(value) for key, value in self.state})
        # A step that raised inside GradScaler leaves these behind, and the next step would divide by them again.
        for name in _scaler_leftovers(self.optimizer) - self.leftovers:
            delattr(self.optimizer, name)

    def leaves(self, path: str, names: Mapping[int, str], copies: TensorCopies) -> Iterator[tuple[str, Any]]:
        yield from leaves(self.groups, f"{path}.param_groups", copies)
        for key, node in self.state:
            yield from leaves(node, f"{path}.{names.get(id(key), 'parameter outside the modules')}", copies)


def _scaler_leftovers(optimizer: Optimizer) -> frozenset[str]:
    return frozenset(name for name in ("grad_scale", "found_inf") if name in vars(optimizer))


def _put_back_slots(live: dict[str, Any], saved: Mapping[str, Any]) -> None:
    if live.keys() == saved.keys() and same_objects([*live.values()], [*saved.values()]):
        return
    live.clear()
    live.update(saved)


def _value_leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _value_leaves(item, f"{path}.{key}")
    elif type(value) in (list, tuple):
        for index, item in enumerate(value):
            yield from _value_leaves(item, f"{path}.{index}")
    else:
        yield path, value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return same_bits(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return one == other or (one != one and other != other)  # noqa: PLR0124 - NaN
    if hasattr(one, "tobytes"):
        return bool(one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes())
    return bool(one == other)
