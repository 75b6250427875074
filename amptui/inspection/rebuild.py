"""The few calls whose result is plain data (tensors, ordered dicts, sets), worked out instead of called.

Sources: torch/_utils.py (`_rebuild_*`), torch/serialization.py (`persistent_id`), copyreg.
"""

from __future__ import annotations

from collections.abc import Callable

from amptui.inspection.nodes import ITEMSIZE, Call, Global, Node, Opaque, Storage, Tensor

_STORAGES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "UntypedStorage": "uint8",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QInt32Storage": "qint32",
    "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
}


def storage_of(reference: Node) -> Node:
    """The storage that a persistent id names: ("storage", type, key, device, number of elements, …)."""
    if not (isinstance(reference, tuple) and len(reference) >= 5 and reference[0] == "storage"):
        return Opaque("a reference to something outside the pickle")
    kind, key, device, numel = reference[1:5]
    dtype = _STORAGES.get(kind.name.rpartition(".")[2]) if isinstance(kind, Global) else None
    if dtype is None or not isinstance(key, str | int) or not _count(numel):
        return Opaque("a storage reference that makes no sense")
    return Storage(str(key), numel, dtype, device if isinstance(device, str) else "")


def rebuilt(callee: Global, args: Node) -> Node:
    """What calling `callee` with `args` would give where that is plain data, else an inert `Call`."""
    rule = _RULES.get((callee.module, callee.name))
    if rule is None or not isinstance(args, tuple):
        return Call(callee, args)
    result = rule(args)
    return Call(callee, args) if result is None else result


def _tensor(args: tuple[Node, ...]) -> Node:
    """(storage, offset, size, stride, …)"""
    if len(args) < 4 or not isinstance(args[0], Storage):
        return None
    return _described(args[0], args[0].dtype, args[1], args[2], args[3])


def _tensor_v3(args: tuple[Node, ...]) -> Node:
    """(untyped storage, offset, size, stride, requires_grad, hooks, dtype, …)"""
    if len(args) < 7 or not isinstance(args[0], Storage) or not isinstance(args[6], Global):
        return None
    bytes_of, dtype = args[0], args[6].name
    items = bytes_of.numel // ITEMSIZE.get(dtype, 1)
    return _described(Storage(bytes_of.key, items, dtype, bytes_of.device), dtype, args[1], args[2], args[3])


def _meta(args: tuple[Node, ...]) -> Node:
    """(dtype, size, stride, requires_grad): a tensor without data"""
    if len(args) < 3 or not isinstance(args[0], Global) or not _sizes(args[1]):
        return None
    return Tensor(args[0].name, tuple(args[1]))


def _described(storage: Storage, dtype: str, offset: Node, size: Node, stride: Node) -> Tensor:
    if not (_count(offset) and _sizes(size) and _sizes(stride) and len(size) == len(stride)):
        return Tensor(dtype, (), storage=storage, problem="its offset, sizes or strides are not counts")
    tensor = Tensor(dtype, tuple(size), tuple(stride), offset, storage)
    if offset + tensor.span > storage.numel:
        needs = f"it reaches over {offset + tensor.span} elements of a storage of {storage.numel}"
        return Tensor(dtype, tensor.shape, tensor.stride, offset, storage, needs)
    return tensor


def _first(args: tuple[Node, ...]) -> Node:
    return args[0] if args else None


def _from_type(args: tuple[Node, ...]) -> Node:
    """(rebuilding function, type, its args, state)"""
    if len(args) >= 3 and isinstance(args[0], Global):
        return rebuilt(args[0], args[2])
    return None


def _dictionary(args: tuple[Node, ...]) -> Node:
    """dict(), OrderedDict(pairs), Counter(mapping), defaultdict(factory)"""
    source = args[-1] if args else ()
    if isinstance(source, dict):
        return dict(source)
    result: dict[Node, Node] = {}
    for pair in source if isinstance(source, list | tuple) else ():
        if isinstance(pair, list | tuple) and len(pair) == 2:
            result[key_of(pair[0])] = pair[1]
    return result


def _listed(args: tuple[Node, ...]) -> Node:
    return list(args[0]) if args and isinstance(args[0], list | tuple) else ([] if not args else None)


def _sized(args: tuple[Node, ...]) -> Node:
    return tuple(args[0]) if args and isinstance(args[0], list | tuple) else None


def _encoded(args: tuple[Node, ...]) -> Node:
    """_codecs.encode(text, "latin1"): how protocol 2 spells bytes"""
    if len(args) == 2 and isinstance(args[0], str) and args[1] in ("latin1", "latin-1"):
        return args[0].encode("latin-1", "replace")
    return None


def _reconstructed(args: tuple[Node, ...]) -> Node:
    """copyreg._reconstructor(cls, base, state): an object of `cls`"""
    return Call(args[0], ()) if args and isinstance(args[0], Global) else None


_RULES: dict[tuple[str, str], Callable[[tuple[Node, ...]], Node]] = {
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_v3,
    ("torch._utils", "_rebuild_qtensor"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch._utils", "_rebuild_parameter_with_state"): _first,
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): _first,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _meta,
    ("torch._tensor", "_rebuild_from_type"): _from_type,
    ("torch._tensor", "_rebuild_from_type_v2"): _from_type,
    ("torch", "Size"): _sized,
    ("collections", "OrderedDict"): _dictionary,
    ("collections", "Counter"): _dictionary,
    ("collections", "defaultdict"): lambda args: _dictionary(args[1:]),
    ("_codecs", "encode"): _encoded,
    ("copyreg", "_reconstructor"): _reconstructed,
    ("copy_reg", "_reconstructor"): _reconstructed,
}
for _builtins in ("builtins", "__builtin__"):
    _RULES[_builtins, "set"] = _RULES[_builtins, "frozenset"] = _RULES[_builtins, "list"] = _listed
    _RULES[_builtins, "dict"] = _dictionary


_FLAT = (str, int, float, bytes, type(None))  # bool is an int


def key_of(node: Node) -> Node:
    """`node` as a key of an inert dict; only flat values hash by value, as hashing a deep tuple can end the process."""
    if isinstance(node, _FLAT):
        return node
    if isinstance(node, tuple) and len(node) <= 16 and all(isinstance(item, _FLAT) for item in node):
        return node
    if isinstance(node, Global | Call | Opaque | Storage | Tensor):
        return node  # by identity
    return Opaque("a key that is not plain")


def _count(value: Node) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _sizes(value: Node) -> bool:
    return isinstance(value, list | tuple) and len(value) <= 64 and all(_count(item) for item in value)
