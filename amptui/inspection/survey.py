"""One walk over an inert tree that sights, by shape, everything a resume needs: tensors, scalers, optimizers, RNG, …

No recursion, each container once, at most `MAX_NODES` nodes and `MAX_DEPTH` levels: a file decides none of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from amptui.inspection.nodes import Call, Global, Node, Opaque, Tensor, mapping_of, sequence_of
from amptui.inspection.numbers import NumberReader
from amptui.inspection.optimizers import OptimizerState, is_optimizer, optimizer_at
from amptui.inspection.result import Row, ScalerState
from amptui.inspection.roles import role_of, role_of_file
from amptui.inspection.scalers import named_like_scaler, scaler_at, words_of
from amptui.inspection.shapes import generator_of, is_rng_tuple, is_scheduler, named_scheduler, plain_numbers

MAX_NODES = 400_000
MAX_DEPTH = 64
MAX_ROWS = 60_000

#: Settings that tell in which precision a run trained.
PRECISION_KEYS = frozenset(
    {
        "fp16",
        "bf16",
        "amp",
        "amp_dtype",
        "amp_impl",
        "mixed_precision",
        "precision",
        "half",
        "use_amp",
        "use_fp16",
        "dtype",
    }
)
_DATA_NAME = re.compile(
    r"sampler|data_?loader|dl_state|consumed_(train_)?samples|batch_progress|batches_that_stepped|data_position"
)
_MODULE_PARTS = ("_parameters", "_buffers", "_modules")


@dataclass(frozen=True, slots=True)
class SeenTensor:
    """A tensor with its path and role; `key` is the last part of the path."""

    path: str
    key: str
    tensor: Tensor
    role: str


@dataclass
class Sightings:
    """Everything of interest in one tree, in the order of the tree."""

    tensors: list[SeenTensor] = field(default_factory=list)
    scalers: list[ScalerState] = field(default_factory=list)
    optimizers: list[OptimizerState] = field(default_factory=list)
    schedulers: list[str] = field(default_factory=list)
    #: Paths by generator: python, numpy, cpu, cuda, other.
    rng: dict[str, list[str]] = field(default_factory=dict)
    data: list[str] = field(default_factory=list)
    #: (path, setting, value) of precision settings.
    settings: list[tuple[str, str, Node]] = field(default_factory=list)
    #: Paths of keys that are named like a scaler and hold None.
    scaler_is_none: list[str] = field(default_factory=list)
    devices: set[str] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    #: Whether the tree was too large or too deep to be seen whole.
    cut: bool = False


@dataclass(frozen=True, slots=True)
class _Visit:
    node: Node
    key: Node
    path: str
    depth: int
    role: str


def survey(root: Node, reader: NumberReader, file: str = "") -> Sightings:
    """Walk `root`; paths begin with `file: ` where `file` is given."""
    found = Sightings()
    seen: set[int] = set()
    prefix = f"{file}: " if file else ""
    stack = [_Visit(root, file, "", 0, role_of_file(file))]
    for count in range(MAX_NODES):
        if not stack:
            return found
        visit = stack.pop()
        node = visit.node
        if isinstance(node, Tensor):
            _tensor(found, visit, prefix)
            continue
        if not isinstance(node, dict | list | tuple | Call):
            _leaf(found, visit, prefix, reader)
            continue
        if id(node) in seen:
            _row(found, visit, "(as above)")
            continue
        seen.add(id(node))
        if visit.depth >= MAX_DEPTH:
            found.cut = True
            _row(found, visit, "(deeper levels are not shown)")
            continue
        inner = list(islice(_container(found, visit, prefix, reader), MAX_NODES - count))
        stack.extend(reversed(inner))
    found.cut = True
    return found


def _container(found: Sightings, visit: _Visit, prefix: str, reader: NumberReader) -> Iterator[_Visit]:
    """Note what a container is; its children, in order."""
    node, path = visit.node, visit.path
    place = prefix + path if path else prefix.removesuffix(": ")
    _row(found, visit, _container_text(node))
    if is_rng_tuple(node):
        found.rng.setdefault("python" if node[0] != "MT19937" else "numpy", []).append(place)
        return iter(())
    mapping = mapping_of(node)
    role = visit.role
    if mapping is not None or not isinstance(node, list | tuple):
        scaler = scaler_at(place, visit.key, node, reader.number)
        if scaler is not None:
            found.scalers.append(scaler)
            if scaler.kind in ("GradScaler", "GradScaler object", "Megatron"):
                role = role or "other"
    if mapping is not None:
        role = _mapping(found, visit, mapping, place, reader) or role
    if isinstance(node, list | tuple) and node and named_scheduler(visit.key):
        found.schedulers.append(place)
    _named_parts(found, visit, place)
    return _children(visit, mapping, role)


def _mapping(found: Sightings, visit: _Visit, mapping: dict[Node, Node], place: str, reader: NumberReader) -> str:
    """Note what a mapping is by its shape; the role that it gives to what is below."""
    for key in PRECISION_KEYS & mapping.keys():
        if key != "dtype" or (isinstance(mapping[key], str) and "config.json" not in place):  # that is how weights lie
            found.settings.append((place, key, mapping[key]))
    role = visit.role
    if is_optimizer(mapping):
        found.optimizers.append(optimizer_at(place, mapping, reader.number))
        return "optimizer_state"
    if is_scheduler(mapping) or (visit.depth <= 1 and named_scheduler(visit.key) and mapping):
        found.schedulers.append(place)
        return role or "other"
    if mapping.get("bit_generator") == "MT19937" or ("bit_generator" in mapping and "state" in mapping):
        found.rng.setdefault("numpy", []).append(place)
    return role


def _named_parts(found: Sightings, visit: _Visit, place: str) -> None:
    """Parts that only their name tells: data position, private generators."""
    if not isinstance(visit.key, str) or not (mapping_of(visit.node) or sequence_of(visit.node)):
        return
    if _DATA_NAME.search(visit.key):
        found.data.append(place)


def _children(visit: _Visit, mapping: dict[Node, Node] | None, role: str) -> Iterator[_Visit]:
    node, depth = visit.node, visit.depth + 1
    if mapping is not None:
        module = any(part in mapping for part in _MODULE_PARTS) and isinstance(node, Call)
        for key, value in mapping.items():
            if module and key in _MODULE_PARTS and isinstance(value, dict):
                for name, inner in value.items():
                    if inner is not None:
                        yield _Visit(inner, name, _join(visit.path, name), depth, role or "parameters")
            elif not module or isinstance(value, dict | list | tuple | Call | Tensor | int | float | str):
                below = role_of(key, value, inherited=role, parent=node, top=visit.depth == 0)
                yield _Visit(value, key, _join(visit.path, key), depth, below)
    items = sequence_of(node) or ()
    if not plain_numbers(items):
        for index, value in enumerate(items):
            yield _Visit(value, index, _join(visit.path, index), depth, role)
    if isinstance(node, Call) and mapping is None and not items and isinstance(node.args, tuple):
        for index, value in enumerate(node.args):
            if isinstance(value, dict | list | tuple | Call | Tensor):
                yield _Visit(value, index, _join(visit.path, index), depth, role)


def _join(path: str, key: Node) -> str:
    if isinstance(key, str):
        name = key[:200]
    elif isinstance(key, int):
        name = str(key) if key.bit_length() < 256 else "(a large number)"
    elif isinstance(key, Global):
        name = key.dotted[:200]
    else:
        name = f"({words_of(key)})"
    return f"{path}.{name}" if path else name


def _tensor(found: Sightings, visit: _Visit, prefix: str) -> None:
    tensor, place = visit.node, prefix + visit.path
    if tensor.storage is not None and tensor.storage.device:
        found.devices.add(tensor.storage.device.split(":")[0][:16])
    role = visit.role or "parameters"
    generator = generator_of(tensor, place)
    if generator:
        found.rng.setdefault(generator, []).append(place)
        role = "rng"
    key = visit.key if isinstance(visit.key, str) else str(visit.key)[:40]
    found.tensors.append(SeenTensor(place, key, tensor, role))
    _row(found, visit, f"{tensor.dtype} {list(tensor.shape)}")


def _leaf(found: Sightings, visit: _Visit, prefix: str, reader: NumberReader) -> None:
    node = visit.node
    _row(found, visit, _leaf_text(node))
    if not isinstance(visit.key, str) or visit.key == "":
        return
    place = prefix + visit.path if visit.path else prefix.removesuffix(": ")
    if named_like_scaler(visit.key) and visit.depth <= 2:
        if node is None:
            found.scaler_is_none.append(place)
        else:
            scaler = scaler_at(place, visit.key, node, reader.number)
            if scaler is not None:
                found.scalers.append(scaler)
    if node is not None and node is not False and _DATA_NAME.search(visit.key):
        found.data.append(place)


def _row(found: Sightings, visit: _Visit, text: str) -> None:
    if len(found.rows) < MAX_ROWS:
        name = visit.path.rpartition(".")[2] if not isinstance(visit.key, str) else visit.key[:200]
        found.rows.append(Row(depth=visit.depth, name=name, text=text))


def _container_text(node: Node) -> str:
    if isinstance(node, Call):
        return f"object {node.name[:120]}" if node.name else "computed object"
    kind = "dict" if isinstance(node, dict) else "list" if isinstance(node, list) else "tuple"
    return f"{kind} of {len(node):,}"


def _leaf_text(node: Node) -> str:
    if isinstance(node, Global):
        return f"names {node.dotted[:120]}"
    if isinstance(node, str):
        return repr(node[:80])
    if isinstance(node, bytes):
        return f"{len(node):,} bytes"
    return node.words if isinstance(node, Opaque) else words_of(node)
