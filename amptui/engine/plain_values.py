"""State turned into tensors and primitives, as `torch.load(weights_only=True)` accepts them with an empty allow-list.

What comes back is what went in, with these exceptions: NumPy scalars become Python's, subclasses of dict, list, tuple,
str, int and float become the plain type (so a defaultdict loses its factory), a frozenset becomes a set.
NumPy arrays and empty bytes are kept under a mark and come back as they were; an array that no tensor holds is refused.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

#: Deeper state is a cycle, or nothing that a training state holds.
_MAX_DEPTH = 64

_ARRAY_MARK = "__amptui_numpy_dtype__"
_EMPTY_BYTES_MARK = "__amptui_empty_bytes__"
_ARRAY_TYPES = frozenset(["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"])
_SCALARS: tuple[type[Any], ...] = (bool, int, float, complex, str, bytes)
_SAME_WIDTH = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class NotPlain(TypeError):
    """A value that a checkpoint cannot keep without running code when it is loaded; the message names its path."""


def to_plain(value: Any, path: str) -> Any:
    """`value` as tensors and primitives; tensors are kept as they are (see `stored`), containers are copied.

    `path` names the value in messages, its levels divided by "/". Raises NotPlain.
    """
    return _plain(value, path, 0)


def from_plain(value: Any) -> Any:
    """The inverse of `to_plain`: arrays are arrays again; tensors are those of `value`, containers are new."""
    if type(value) is dict:
        if _ARRAY_MARK in value:
            return value["array"].numpy().astype(value[_ARRAY_MARK]).reshape(value["shape"])
        if _EMPTY_BYTES_MARK in value:
            return b""
        return {key: from_plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(from_plain(item) for item in value)
    return value


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A copy of the containers of `value` with each tensor replaced by `change(tensor)`."""
    if isinstance(value, Tensor):
        return change(value)
    if type(value) is dict:
        return {key: map_tensors(item, change) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map_tensors(item, change) for item in value)
    return value


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors agree in dtype, shape and every bit: NaN equals itself, -0.0 differs from 0.0."""
    if one.dtype != other.dtype or one.shape != other.shape or one.layout != other.layout:
        return False
    if one.layout != torch.strided:
        return all(same_bits(a, b) for a, b in zip(parts_of(one), parts_of(other), strict=True))
    if one.device != other.device:
        one, other = one.cpu(), other.cpu()
    if _is_flat(one) and _is_flat(other):
        return torch.equal(one.detach().reshape(-1).view(torch.int64), other.detach().reshape(-1).view(torch.int64))
    return torch.equal(_bits(one), _bits(other))


def parts_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """The dense tensors that a sparse one (COO, CSR, CSC, BSR, BSC) consists of; a dense tensor itself."""
    if tensor.layout == torch.strided:
        return (tensor,)
    if tensor.layout == torch.sparse_coo:
        return (tensor._indices(), tensor._values())
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    return (tensor.ccol_indices(), tensor.row_indices(), tensor.values())


def stored(tensor: Tensor) -> Tensor:
    """`tensor` as a file keeps it: on the CPU, detached, without conjugate or negative bit, with no storage beyond it.

    A tensor that spans its storage is returned as an alias, so that tied tensors are stored once.
    """
    plain = tensor.detach().to("cpu")
    if plain.layout != torch.strided:
        return plain
    plain = plain.resolve_conj().resolve_neg()
    spans = plain.untyped_storage().nbytes() == plain.numel() * plain.element_size() and plain.storage_offset() == 0
    return plain if spans else plain.clone(memory_format=torch.contiguous_format)


def _is_flat(tensor: Tensor) -> bool:
    """Whether the bytes can be compared eight at a time (1.6 times as fast)."""
    return (
        tensor.is_contiguous()
        and tensor.numel() * tensor.element_size() % 8 == 0
        and tensor.storage_offset() * tensor.element_size() % 8 == 0
        and tensor.dim() > 0
        and not (tensor.is_conj() or tensor.is_neg())
    )


def _bits(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    width = tensor.element_size()
    # Integers are compared as they are; everything else by bits, where NaN has an identity.
    return tensor.view(_SAME_WIDTH[width]) if width in _SAME_WIDTH and tensor.dtype != _SAME_WIDTH[width] else tensor


def _plain(value: Any, path: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise NotPlain(f"{path[:200]}… is nested more than {_MAX_DEPTH} deep; it probably contains itself")
    if isinstance(value, Tensor):
        return _plain_tensor(value, path)
    if isinstance(value, bytes) and not value:
        return {_EMPTY_BYTES_MARK: True}  # pickled as a call of `bytes`, which torch refuses
    if value is None or isinstance(value, _SCALARS):
        return _plain_scalar(value, path)
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.Size | bytearray):
        return value
    if isinstance(value, Mapping):
        items = {_plain_key(key, path): _plain(item, f"{path}/{key}", depth + 1) for key, item in value.items()}
        return Counter(items) if isinstance(value, Counter) else items
    if isinstance(value, list | tuple):
        kept = [_plain(item, f"{path}/{index}", depth + 1) for index, item in enumerate(value)]
        return tuple(kept) if isinstance(value, tuple) else kept
    if isinstance(value, set | frozenset):
        return {_plain_key(item, path) for item in value}
    return _plain_numpy(value, path)


def _plain_scalar(value: Any, path: str) -> Any:
    for kind in _SCALARS:
        if isinstance(value, kind):
            if kind is int and value.bit_length() > 2000:
                raise NotPlain(f"{path} is an integer of {value.bit_length()} bits; a checkpoint keeps at most 2000")
            return value if type(value) is kind else kind(value)
    return None


def _plain_key(key: Any, path: str) -> Any:
    if isinstance(key, tuple):
        return tuple(_plain_key(part, path) for part in key)
    if (key is None or isinstance(key, _SCALARS)) and key != b"":
        return _plain_scalar(key, path)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(key, numpy.generic):
        return _plain_scalar(key.item(), path)
    raise NotPlain(f"{path} has a key of type {_type_name(key)}; a checkpoint keeps text, numbers and tuples of them")


def _plain_tensor(value: Tensor, path: str) -> Tensor:
    if type(value) not in (Tensor, torch.nn.Parameter):
        raise NotPlain(f"{path} is a {_type_name(value)}; a checkpoint keeps plain tensors only")
    if value.is_meta or value.is_quantized or value.is_nested or value.is_mkldnn:
        raise NotPlain(
            f"{path} is a {'meta' if value.is_meta else 'quantized, nested or MKL-DNN'} tensor: no plain data"
        )
    return value


def _plain_numpy(value: Any, path: str) -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        scalar = value.item()
        if scalar is None or isinstance(scalar, _SCALARS):
            return _plain_scalar(scalar, path)
    if numpy is not None and isinstance(value, numpy.ndarray):
        return {_ARRAY_MARK: value.dtype.str, "shape": tuple(value.shape), "array": _array_as_tensor(value, path)}
    raise NotPlain(
        f"{path} is a {_type_name(value)}; a checkpoint keeps tensors, numbers, text and containers of them. "
        "Return those from state_dict()."
    )


def _array_as_tensor(array: Any, path: str) -> Tensor:
    import numpy as np  # noqa: PLC0415 - the state holds an array, so NumPy is there

    native = array.dtype.newbyteorder("=")
    if native.str[1:] not in _ARRAY_TYPES:
        raise NotPlain(f"{path} is an array of {array.dtype}, which no tensor can hold")
    # Unsigned integers go as int64 (uint64 by its bits): not every torch can load the unsigned types.
    return torch.from_numpy(array.reshape(-1).astype(np.int64 if native.kind == "u" else native))


def _type_name(value: object) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
