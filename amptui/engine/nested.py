"""Batches, inputs and outputs are nested containers with tensors somewhere inside: copying, moving, hashing them.

Known containers (dict, list, tuple, named tuple, set, dataclass, mapping-like classes) are rebuilt; an object with a
`to` and a `clone` of its own (a graph, a TensorDict) is asked for them; what remains is copied deeply where it can be.
"""

from __future__ import annotations

import copy
import ctypes
import dataclasses
import enum
import hashlib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence


class _Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """`value` with every tensor inside replaced by `change(tensor)`; containers are rebuilt, never edited.

    Anything else is shared as it is.
    """
    return _mapped(value, change, None)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor inside `value`, in the order in which `map_tensors` meets them."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, note)
    yield from found


def copied(value: Any, device: torch.device | None) -> Any:
    """A copy that shares no memory with `value`, on `device` (None: where each tensor lies).

    A tensor that occurs twice in `value` occurs twice in the copy. What cannot be copied (a generator, a lock), and
    code (functions, classes, modules) is shared.
    """
    fresh: dict[int, Tensor] = {}

    def copied_tensor(tensor: Tensor) -> Tensor:
        if id(tensor) not in fresh:
            fresh[id(tensor)] = _fresh(tensor, device)
        return fresh[id(tensor)]

    return _mapped(value, copied_tensor, lambda leaf: _copied_leaf(leaf, device))


def _fresh(tensor: Tensor, device: torch.device | None) -> Tensor:
    detached = tensor.detach() if tensor.requires_grad else tensor
    # copy=True: `cuda` and `cuda:0` are different devices to Python and the same one to `to`
    made = detached.clone() if device is None else detached.to(device, copy=True)
    return made.requires_grad_() if tensor.requires_grad else made


def _mapped(value: Any, change: Callable[[Tensor], Tensor], leaf: Callable[[Any], Any] | None) -> Any:
    """`value` rebuilt; what is no container goes through `leaf`, or stays as it is."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, PackedSequence):  # its batch_sizes stay on the CPU, whatever the device
        data, ordered, restored = _mapped((value.data, value.sorted_indices, value.unsorted_indices), change, leaf)
        return PackedSequence(data, value.batch_sizes.clone(), ordered, restored)
    if leaf is not None and _copies_itself(value):
        return leaf(value)
    if isinstance(value, Mapping):
        return _mapped_mapping(value, {key: _mapped(item, change, leaf) for key, item in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_mapped(item, change, leaf) for item in value))
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_mapped(item, change, leaf) for item in value)
    if _is_dataclass(value):
        rebuilt = copy.copy(value)
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):
                object.__setattr__(rebuilt, field.name, _mapped(getattr(value, field.name), change, leaf))
        return rebuilt
    return value if leaf is None else leaf(value)


def _mapped_mapping(value: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if type(value) is dict:
        return items
    if isinstance(value, types.MappingProxyType):
        return types.MappingProxyType(items)
    if not hasattr(value, "__setitem__"):  # a frozen mapping is made anew
        return type(value)(items)  # type: ignore[call-arg]
    rebuilt: Any = copy.copy(value)
    attributes = getattr(rebuilt, "__dict__", {})
    for key, item in items.items():
        rebuilt[key] = item
        if isinstance(key, str) and attributes.get(key) is value[key]:  # a class that offers its items as attributes
            attributes[key] = item
    return rebuilt


def _is_dataclass(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _copies_itself(value: Any) -> bool:
    """Whether the object has methods like a tensor's `to` and `clone`."""
    kind = type(value)
    return callable(getattr(kind, "to", None)) and callable(getattr(kind, "clone", None))


#: What never changes, or is code: shared between copies.
_SHARED = (
    *(type(None), bool, int, float, complex, str, bytes, range, enum.Enum, torch.dtype, torch.device),
    *(type, types.ModuleType, types.FunctionType, types.MethodType, types.BuiltinFunctionType, nn.Module),
)


def _copied_leaf(value: Any, device: torch.device | None) -> Any:
    if isinstance(value, _SHARED):
        return value
    if _copies_itself(value):
        twin = value.clone()  # first: some `to` methods move the object itself
        return twin if device is None else twin.to(device)
    moves = device is not None and callable(getattr(type(value), "to", None))
    try:
        twin = copy.deepcopy(value)
    except Exception:  # whatever a foreign class raises when it is copied
        return value.to(device) if moves else value
    return twin.to(device) if moves else twin


def hashed(value: Any, digest: _Digest) -> None:
    """Feeds the content of `value` into `digest`: structure, dtypes, shapes and bits, not object identities."""
    _hash(value, digest, frozenset())


def _hash(value: Any, digest: _Digest, inside: frozenset[int]) -> None:
    if isinstance(value, Tensor):
        digest.update(f"tensor {value.dtype} {tuple(value.shape)};".encode())
        digest.update(tensor_bytes(value))
    elif isinstance(value, Mapping):
        digest.update(f"mapping {len(value)};".encode())
        for key, item in value.items():
            digest.update(f"{key!r}:".encode())
            _hash(item, digest, inside)
    elif isinstance(value, list | tuple):
        digest.update(f"sequence {len(value)};".encode())
        for item in value:
            _hash(item, digest, inside)
    elif isinstance(value, set | frozenset):  # in no order
        parts = sorted(_own_digest(item, inside) for item in value)
        digest.update(f"set {len(parts)};".encode() + b"".join(parts))
    elif _is_dataclass(value):
        digest.update(f"{type(value).__qualname__};".encode())
        for field in dataclasses.fields(value):
            _hash(getattr(value, field.name, None), digest, inside)
    elif callable(getattr(value, "tobytes", None)):
        _hash_array(value, digest, inside)
    elif isinstance(value, str | bytes | int | float | complex) or value is None:
        digest.update(f"{type(value).__name__} {value!r};".encode())
    else:
        _hash_object(value, digest, inside)


def _hash_array(value: Any, digest: _Digest, inside: frozenset[int]) -> None:
    """A NumPy array, an image."""
    dtype = getattr(value, "dtype", None)
    digest.update(f"array {type(value).__qualname__} {dtype} {getattr(value, 'shape', ())};".encode())
    if getattr(dtype, "hasobject", False):  # its bytes are addresses
        _hash(value.tolist(), digest, inside)
    else:
        digest.update(value.tobytes())


def _hash_object(value: Any, digest: _Digest, inside: frozenset[int]) -> None:
    """An object by its attributes, or by its text; `inside` are the objects that it lies in."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, type | types.FunctionType):
        digest.update(f"code {value.__module__}.{value.__qualname__};".encode())
    elif isinstance(getattr(value, "__dict__", None), dict) and id(value) not in inside:
        digest.update(f"object {kind};".encode())
        _hash(vars(value), digest, inside | {id(value)})
    else:
        told = repr(value)  # an address in it would differ from run to run
        digest.update(f"object {kind} {told if ' at 0x' not in told else ''};".encode())


def _own_digest(value: Any, inside: frozenset[int]) -> bytes:
    own = hashlib.sha256()
    _hash(value, own, inside)
    return own.digest()


def tensor_bytes(tensor: Tensor) -> bytes:
    """The tensor's elements as bytes, in C order; the same bits give the same bytes, NaN payloads included."""
    flat = tensor.detach().cpu()
    if flat.is_nested:  # of rows of unequal length, which no dense tensor holds
        return b"".join(f"{tuple(row.shape)};".encode() + tensor_bytes(row) for row in flat.unbind())
    if flat.layout is not torch.strided:
        flat = flat.to_dense()
    flat = flat.resolve_conj().resolve_neg().contiguous().reshape(-1)
    return ctypes.string_at(flat.data_ptr(), flat.nbytes) if flat.numel() else b""  # without needing NumPy
