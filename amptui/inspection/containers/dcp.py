"""torch distributed checkpoints: a pickled `.metadata`, and shards `__R_I.distcp` of one small torch zip per item.

The official reader unpickles `.metadata` without restriction (torch/distributed/checkpoint/filesystem.py
`read_metadata`), which runs whatever it holds; here it is walked like everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from amptui.findings.finding import Finding
from amptui.inspection.containers.loaded import Extent, Loaded
from amptui.inspection.containers.source import DamagedError, Source
from amptui.inspection.containers.torch_legacy import read_bare_pickle
from amptui.inspection.containers.torch_zip import COPY_AGAIN, read_torch_zip
from amptui.inspection.nodes import ITEMSIZE, Call, Global, Node, Storage, Tensor, mapping_of
from amptui.inspection.notes import fault
from amptui.inspection.pickle_walk import Code

#: Items that are not tensors and are read; of the many that parameter groups are flattened into, fewer.
_MAX_BLOBS, _MAX_GROUP_BLOBS = 10_000, 2_000
_MAX_ITEMS = 200_000


@dataclass(frozen=True, slots=True)
class _Piece:
    """Where one item or one chunk of a tensor lies."""

    shard: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The pieces of every item, shards that are not there or too short, and how many items point out of the folder."""

    by_name: dict[str, list[_Piece]]
    missing: tuple[str, ...]
    cut: tuple[str, ...]
    outside: int


@dataclass(frozen=True, slots=True)
class ShardBytes:
    """Tensors as the chunks that the shards hold, by fully qualified name."""

    shards: Mapping[str, Source]
    pieces: Mapping[str, list[_Piece]]

    def locate(self, storage: Storage) -> tuple[Extent, ...]:
        extents: list[Extent] = []
        for piece in self.pieces.get(storage.key, ()):
            shard = self.shards.get(piece.shard)
            if shard is None:
                raise DamagedError(f"its shard {piece.shard!r} is missing")
            loaded = read_torch_zip(shard.part(piece.offset, piece.length))
            if loaded.data is None or not isinstance(loaded.root, Tensor) or loaded.root.storage is None:
                raise DamagedError("what stands in its place is not a tensor")
            extents.extend(loaded.data.locate(loaded.root.storage))
        found, announced = sum(extent.length for extent in extents), storage.numel * ITEMSIZE.get(storage.dtype, 1)
        if found != announced:
            raise DamagedError(f"its data has {found:,} bytes, {announced:,} are announced")
        return tuple(extents)


@dataclass
class _Contents:
    root: dict[Node, Node] = field(default_factory=dict)
    code: Code = field(default_factory=Code)
    findings: list[Finding] = field(default_factory=list)


def read_dcp(metadata: Source, shards: Mapping[str, Source]) -> Loaded:
    """The state dict that a `.metadata` file and its shards (by file name) describe."""
    described = read_bare_pickle(metadata)
    fields = mapping_of(described.root) or {}
    items = fields.get("state_dict_metadata")
    if not isinstance(items, dict):
        what = ".metadata does not describe a state dict"
        findings = described.findings or (fault("damaged", what, advice=COPY_AGAIN),)
        return Loaded(
            "dcp",
            metadata.size,
            None,
            described.code,
            findings,
            readable=bool(described.code.globals),
            complete=False,
        )
    pieces = _pieces(fields.get("storage_data"), shards)
    contents = _Contents(code=described.code, findings=list(described.findings))
    paths = fields.get("planner_data")
    left = {True: _MAX_GROUP_BLOBS, False: _MAX_BLOBS}
    for name, item in islice(items.items(), _MAX_ITEMS):
        if isinstance(name, str):
            path = paths.get(name) if isinstance(paths, dict) else None
            in_group = ".param_groups." in name
            node = _item(name, item, pieces.by_name, shards, contents, blobs=left[in_group] > 0)
            left[in_group] -= not isinstance(node, Tensor)
            _place(contents.root, path if isinstance(path, tuple) and path else tuple(name.split(".")), node)
    advice = "Copy the whole folder again, or resume from an earlier save."
    for shard in pieces.missing[:10]:
        contents.findings.append(fault("missing-shard", f"the shard {shard!r} is missing", advice=advice, path=shard))
    for shard in pieces.cut[:10]:
        what = f"the shard {shard!r} is incomplete: it ends after {shards[shard].size:,} bytes"
        contents.findings.append(fault("truncated", what, advice=advice, path=shard))
    if pieces.outside:
        what = f"{pieces.outside} items are said to lie in files outside this folder"
        contents.findings.append(fault("odd-archive", what, advice="No writer does this: treat it as tampered with."))
    return Loaded(
        "dcp",
        metadata.size + sum(shard.size for shard in shards.values()),
        contents.root,
        contents.code,
        tuple(contents.findings),
        ShardBytes(shards, pieces.by_name),
        complete=described.complete and not pieces.missing and not pieces.cut,
    )


def _pieces(placed: Node, shards: Mapping[str, Source]) -> _Pieces:
    """Sort the `storage_data` of a `.metadata`: from (name, offset, index) to (shard, offset, length)."""
    pieces: dict[str, list[_Piece]] = {}
    missing: dict[str, None] = {}
    cut: dict[str, None] = {}
    outside = 0
    for index, info in placed.items() if isinstance(placed, dict) else ():
        name = (mapping_of(index) or {}).get("fqn")
        place = mapping_of(info) or {}
        shard, offset, length = place.get("relative_path"), place.get("offset"), place.get("length")
        if not (isinstance(name, str) and isinstance(shard, str) and type(offset) is int and type(length) is int):
            continue
        if "/" in shard or "\\" in shard or shard in ("", ".", ".."):
            outside += 1
            continue
        if shard not in shards:
            missing[shard] = None
        elif offset + length > shards[shard].size:
            cut[shard] = None
        pieces.setdefault(name, []).append(_Piece(shard, offset, length))
    return _Pieces(pieces, tuple(missing), tuple(cut), outside)


def _item(
    name: str,
    item: Node,
    pieces: Mapping[str, list[_Piece]],
    shards: Mapping[str, Source],
    contents: _Contents,
    *,
    blobs: bool,
) -> Node:
    """The tensor that `item` describes, or the value of the blob that it stands for."""
    fields = mapping_of(item)
    if fields is not None and "size" in fields:
        return _tensor(name, fields)
    for piece in pieces.get(name, ()) if blobs else ():
        shard = shards.get(piece.shard)
        if shard is None:
            return item
        try:
            loaded = read_torch_zip(shard.part(piece.offset, piece.length))
        except DamagedError as error:
            contents.findings.append(
                fault("truncated", f"{name!r} is incomplete: {error}", advice=COPY_AGAIN, path=name)
            )
            return item
        contents.code.add(loaded.code)
        if len(contents.findings) < 50:
            contents.findings.extend(loaded.findings)
        return loaded.root
    return item


def _tensor(name: str, fields: Mapping[Node, Node]) -> Tensor:
    """TensorStorageMetadata: properties (dtype first), size, chunks."""
    properties = fields.get("properties")
    state = properties.state if isinstance(properties, Call) else None
    if isinstance(state, dict):
        state = (state.get("dtype"),)
    dtype = state[0].name if isinstance(state, tuple) and state and isinstance(state[0], Global) else "unknown"
    size = fields["size"]
    if not isinstance(size, tuple) or not all(type(count) is int and 0 <= count < 1 << 62 for count in size):
        return Tensor(dtype, (), problem="its size is not a list of counts")
    plain = Tensor(dtype, size)
    strides, step = [], 1
    for count in reversed(size):
        strides.append(step)
        step *= max(1, count)
    return Tensor(dtype, size, tuple(reversed(strides)), 0, Storage(name, plain.numel, dtype, ""))


def _place(root: dict[Node, Node], path: tuple[Node, ...], node: Node) -> None:
    """Put `node` into nested dicts at `path`."""
    target = root
    for key in path[:-1][:32]:
        inner = target.setdefault(key if isinstance(key, str | int) else str(key), {})
        if not isinstance(inner, dict):
            return
        target = inner
    last = path[-1]
    target[last if isinstance(last, str | int) else str(last)] = node
