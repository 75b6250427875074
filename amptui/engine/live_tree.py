"""Nested containers of live tensors (an optimizer's state), captured so that they can be put back in place.

Nothing goes through `Optimizer.load_state_dict`: it aliases the tensors that it is given, so that the next step would
write into the snapshot, and it replaces flags such as `fused` behind the optimizer's back.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from amptui.engine.tensor_copies import TensorCopies
from amptui.engine.training_state import copied

_UNCHANGING = (type(None), bool, int, float, complex, str, bytes)


@dataclass(frozen=True, eq=False)
class _TensorNode:
    tensor: Tensor


@dataclass(frozen=True, eq=False)
class _DictNode:
    container: dict[Any, Any]
    items: dict[Any, Any]


@dataclass(frozen=True, eq=False)
class _ListNode:
    container: list[Any] | tuple[Any, ...]
    items: list[Any]


@dataclass(frozen=True, eq=False)
class _ValueNode:
    value: Any


def captured(value: Any, copies: TensorCopies) -> Any:
    """A node that remembers `value`: its containers by identity, its tensors in `copies`, the rest by value."""
    if isinstance(value, Tensor):
        copies.add(value)
        return _TensorNode(value)
    if isinstance(value, dict):
        return _DictNode(value, {key: captured(item, copies) for key, item in value.items()})
    if type(value) in (list, tuple):
        return _ListNode(value, [captured(item, copies) for item in value])
    return _ValueNode(value if type(value) in _UNCHANGING else copied(value))


def put_back(node: Any) -> Any:
    """The value that `node` remembers: the same containers and tensor objects, with what they held (see `captured`)."""
    if isinstance(node, _TensorNode):
        return node.tensor
    if isinstance(node, _DictNode):
        items = {key: put_back(item) for key, item in node.items.items()}
        node.container.clear()
        node.container.update(items)
        return node.container
    if isinstance(node, _ListNode):
        values = [put_back(item) for item in node.items]
        if isinstance(node.container, tuple):
            return tuple(values)
        node.container[:] = values
        return node.container
    return node.value if type(node.value) in _UNCHANGING else copied(node.value)


def flat_objects(state: Mapping[Any, Any]) -> list[object] | None:
    """Every key, container and value in a dict of dicts of tensors and numbers; None if it is anything else.

    Two lists of the same objects (see `same_objects`) mean that nothing was exchanged: what a tensor holds is kept by
    `TensorCopies`, and numbers do not change.
    """
    contents = [*state.values()]
    if not set(map(type, contents)) <= {dict}:
        return None
    names = [name for content in contents for name in content]
    values = [value for content in contents for value in content.values()]
    if not all(issubclass(kind, Tensor) or kind in _UNCHANGING for kind in set(map(type, values))):
        return None
    return [*state, *contents, *map(len, contents), *names, *values]


def same_objects(one: Sequence[object], other: Sequence[object] | None) -> bool:
    return other is not None and len(one) == len(other) and all(map(operator.is_, one, other))


def leaves(node: Any, path: str, copies: TensorCopies) -> Iterator[tuple[str, Any]]:
    """(path, saved tensor or value) of everything in `node`."""
    if isinstance(node, _TensorNode):
        index = copies.index_of(node.tensor)
        assert index is not None, "captured together with the tree"
        yield path, copies.saved[index]
    elif isinstance(node, _DictNode):
        for key, item in node.items.items():
            yield from leaves(item, f"{path}.{key}", copies)
    elif isinstance(node, _ListNode):
        for index, item in enumerate(node.items):
            yield from leaves(item, f"{path}.{index}", copies)
    else:
        yield path, node.value
