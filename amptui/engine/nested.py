"""Batches, inputs and outputs are nested containers with tensors somewhere inside: copying, moving, hashing them.

Known containers (dict, list, tuple, named tuple, dataclass, mapping-like classes) are rebuilt; another object is asked
for its own `to` and `clone`; everything else is shared as it is.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """`value` with every tensor inside replaced by `change(tensor)`; containers are rebuilt, never edited."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        items = {key: map_tensors(item, change) for key, item in value.items()}
        return items if type(value) is dict else _rebuilt_mapping(value, items)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(map_tensors(item, change) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        rebuilt = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(rebuilt, field.name, map_tensors(getattr(value, field.name), change))
        return rebuilt
    return value


def _rebuilt_mapping(value: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    rebuilt: Any = copy.copy(value)
    for key, item in items.items():
        rebuilt[key] = item
    return rebuilt


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor inside `value`, in the order in which `map_tensors` meets them."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, note)
    yield from found


def copied(value: Any, device: torch.device | None) -> Any:
    """A copy that shares no memory with `value`, on `device` (None: where each tensor lies)."""

    def fresh(tensor: Tensor) -> Tensor:
        if device is not None and tensor.device != device:
            return tensor.detach().to(device).requires_grad_(tensor.requires_grad)
        return tensor.detach().clone().requires_grad_(tensor.requires_grad)

    if _is_known(value):
        return map_tensors(value, fresh)
    moved = value.to(device) if device is not None and callable(getattr(value, "to", None)) else value
    if moved is value:
        return value.clone() if callable(getattr(value, "clone", None)) else copy.deepcopy(value)
    return moved


def moved(value: Any, device: torch.device | None) -> Any:
    """`value` with its tensors on `device`; without a device, as it is."""
    if device is None:
        return value
    if _is_known(value) or not callable(getattr(value, "to", None)):
        return map_tensors(value, lambda tensor: tensor.to(device))
    return value.to(device)


def _is_known(value: Any) -> bool:
    return (
        isinstance(value, Tensor | Mapping | list | tuple | set | frozenset | str | bytes | int | float | complex)
        or value is None
        or (dataclasses.is_dataclass(value) and not isinstance(value, type))
    )


def hashed(value: Any, digest: _Digest) -> None:
    """Feeds the content of `value` into `digest`: structure, dtypes, shapes and bits, not object identities."""
    if isinstance(value, Tensor):
        digest.update(f"tensor {value.dtype} {tuple(value.shape)};".encode())
        digest.update(tensor_bytes(value))
    elif isinstance(value, Mapping):
        digest.update(f"mapping {len(value)};".encode())
        for key, item in value.items():
            digest.update(f"{key!r}:".encode())
            hashed(item, digest)
    elif isinstance(value, list | tuple):
        digest.update(f"sequence {len(value)};".encode())
        for item in value:
            hashed(item, digest)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        digest.update(f"{type(value).__qualname__};".encode())
        for field in dataclasses.fields(value):
            hashed(getattr(value, field.name), digest)
    elif hasattr(value, "tobytes") and hasattr(value, "dtype"):  # a NumPy array
        digest.update(f"array {value.dtype} {getattr(value, 'shape', ())};".encode())
        digest.update(value.tobytes())
    elif isinstance(value, str | bytes | int | float | complex | bool) or value is None:
        digest.update(f"{type(value).__name__} {value!r};".encode())
    else:  # identity would differ from run to run
        digest.update(f"object {type(value).__module__}.{type(value).__qualname__};".encode())


def tensor_bytes(tensor: Tensor) -> bytes:
    """The tensor's elements as bytes, in C order; the same bits give the same bytes, NaN payloads included."""
    flat = tensor.detach().cpu()
    if flat.layout is not torch.strided:
        flat = flat.to_dense()
    flat = flat.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return ctypes.string_at(flat.data_ptr(), flat.nbytes) if flat.numel() else b""  # without needing NumPy
