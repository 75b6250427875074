"""safetensors files: a header length (uint64), a JSON header, then the tensors' bytes without holes.

Source: the format's README and `SafeTensors::read_metadata` / `Metadata::validate` of the reference implementation.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from amptui.findings.finding import Finding
from amptui.inspection.containers.loaded import Loaded, PlacedBytes
from amptui.inspection.containers.source import Source
from amptui.inspection.containers.torch_zip import COPY_AGAIN
from amptui.inspection.nodes import ITEMSIZE, Storage, Tensor
from amptui.inspection.notes import fault
from amptui.inspection.pickle_walk import Code

MAX_HEADER = 100_000_000  # the reference implementation's own limit
_MAX_PROBLEMS = 10
_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}


class _DuplicateError(ValueError):
    """A name that stands twice in one object."""


def looks_like_safetensors(head: bytes, size: int) -> bool:
    """Whether the first bytes of a file of `size` bytes begin a safetensors header."""
    if len(head) < 9 or head[8:9] != b"{":
        return False
    (length,) = struct.unpack("<Q", head[:8])
    return bool(length < 1 << 40) and (head[9:10] in (b'"', b"}", b" ", b"\n") or length < size)


def read_safetensors(source: Source) -> Loaded:
    """The header of a safetensors file as a dict of tensors by name; its every claim is checked."""
    (length,) = struct.unpack("<Q", source.read(0, 8))
    if length > MAX_HEADER:
        return _refused(source, f"its header announces {length:,} bytes; the format allows {MAX_HEADER:,}")
    if 8 + length > source.size:
        return _refused(source, f"the file is incomplete: its header has {length:,} bytes, the file {source.size:,}")
    try:
        header = json.loads(source.read(8, length).decode("utf-8"), object_pairs_hook=_unique)
    except _DuplicateError as error:
        return _refused(source, str(error))
    except (ValueError, RecursionError):
        return _refused(source, "its header is not valid JSON")
    if not isinstance(header, dict):
        return _refused(source, "its header is not a JSON object")
    metadata = header.pop("__metadata__", None)
    start, size = 8 + length, source.size - 8 - length
    tensors: dict[str, object] = {}
    places: dict[str, tuple[int, int]] = {}
    problems: list[str] = []
    for name, entry in header.items():
        tensor, place = _tensor(name, entry)
        tensors[name] = tensor
        if tensor.problem:
            problems.append(f"{name[:100]!r}: {tensor.problem}")
        else:
            places[name] = (start + place[0], place[1])
    problems.extend(_layout(places, start, size))
    if isinstance(metadata, dict):
        tensors["__metadata__"] = {key: value for key, value in metadata.items() if isinstance(value, str)}
    findings = tuple(_damaged(problem) for problem in problems[:_MAX_PROBLEMS])
    data = PlacedBytes(source, places)
    return Loaded("safetensors", source.size, tensors, Code(), findings, data, complete=not problems)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _DuplicateError("its header names something twice")
    return result


def _tensor(name: str, entry: object) -> tuple[Tensor, tuple[int, int]]:
    """The tensor that a header entry describes, and its bytes as (offset, length) within the data."""
    nowhere = (0, 0)
    if not isinstance(entry, dict):
        return Tensor("unknown", (), problem="its entry is not an object"), nowhere
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    known = _DTYPES.get(dtype) if isinstance(dtype, str) else None
    if known is None:
        return Tensor("unknown", (), problem=f"unknown dtype {str(dtype)[:20]!r}"), nowhere
    if not (isinstance(shape, list) and len(shape) <= 64 and all(_count(size) for size in shape)):
        return Tensor(known, (), problem="its shape is not a list of counts"), nowhere
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(_count(value) for value in offsets)):
        return Tensor(known, tuple(shape), _contiguous(shape), problem="its data offsets are not two counts"), nowhere
    begin, end = offsets
    tensor = Tensor(known, tuple(shape), _contiguous(shape))
    if not _count(tensor.numel):
        return Tensor(known, (), problem="its shape has more elements than any memory"), nowhere
    if end - begin != tensor.numel * ITEMSIZE[known]:
        what = f"it needs {tensor.numel * ITEMSIZE[known]:,} bytes, {end - begin:,} are set aside"
        return Tensor(known, tuple(shape), tensor.stride, problem=what), nowhere
    storage = Storage(name, tensor.numel, known, "")
    return Tensor(known, tensor.shape, tensor.stride, 0, storage), (begin, end - begin)


def _contiguous(shape: list[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))


def _count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _layout(places: dict[str, tuple[int, int]], start: int, size: int) -> list[str]:
    """Holes, overlaps and missing bytes in the data, which the format forbids."""
    problems: list[str] = []
    end = start
    for name, (offset, length) in sorted(places.items(), key=lambda item: item[1]):
        if offset != end and len(problems) < _MAX_PROBLEMS:
            problems.append(f"{name[:100]!r} {'overlaps the tensor before it' if offset < end else 'follows a hole'}")
        end = max(end, offset + length)
    if end > start + size:
        problems.insert(0, f"the file is incomplete: {end - start - size:,} bytes of tensor data are missing")
    elif end < start + size:
        problems.append(f"{start + size - end:,} bytes follow the last tensor")
    return problems


def _damaged(problem: str) -> Finding:
    return fault("truncated" if "incomplete" in problem else "damaged", problem, advice=COPY_AGAIN)


def _refused(source: Source, problem: str) -> Loaded:
    return Loaded("safetensors", source.size, findings=(_damaged(problem),), readable=False, complete=False)
