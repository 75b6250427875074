"""Single numbers out of tensors: step counters and scales that are stored as tensors of one element."""

from __future__ import annotations

import struct

from amptui.inspection.containers.loaded import TensorBytes
from amptui.inspection.containers.source import DamagedError
from amptui.inspection.nodes import ITEMSIZE, Node, Tensor, number_of

_FORMATS = {
    "float64": "d",
    "float32": "f",
    "float16": "e",
    "int64": "q",
    "int32": "i",
    "int16": "h",
    "int8": "b",
    "uint8": "B",
    "uint64": "Q",
    "uint32": "I",
    "uint16": "H",
}
MAX_READS = 50_000


class NumberReader:
    """Reads numbers of one file's tree, from its tensors too; at most `MAX_READS` tensors."""

    def __init__(self, data: TensorBytes | None) -> None:
        self._data = data
        self._left = MAX_READS

    def number(self, node: Node) -> int | float | None:
        """The number that `node` is, or that a tensor of one element holds; None where there is none."""
        if not isinstance(node, Tensor):
            return number_of(node)
        if node.numel != 1 or node.storage is None or node.problem or self._data is None or self._left <= 0:
            return None
        self._left -= 1
        try:
            extents = self._data.locate(node.storage)
            size = ITEMSIZE.get(node.dtype, 0)
            if len(extents) != 1 or not size:
                return None
            raw = extents[0].source.read(extents[0].offset + node.offset * size, size)
        except DamagedError:
            return None
        return _unpacked(raw, node.dtype, ">" if extents[0].big_endian else "<")


def _unpacked(raw: bytes, dtype: str, order: str) -> int | float | None:
    if dtype == "bfloat16":  # the upper half of a float32
        raw = b"\0\0" + raw if order == "<" else raw + b"\0\0"
        dtype = "float32"
    form = _FORMATS.get(dtype)
    if form is None:
        return None
    value = struct.unpack(order + form, raw)[0]
    return value if isinstance(value, int | float) else None
