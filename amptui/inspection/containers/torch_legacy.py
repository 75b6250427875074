"""torch's format before 1.6: pickles (magic number, protocol, system, object, storage keys), then raw storages.

Source: torch/serialization.py `_legacy_save`. Each storage is its element count (int64) and its bytes.
A file that holds one bare pickle is read here too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace

from amptui.inspection.containers.loaded import Loaded, PlacedBytes
from amptui.inspection.containers.source import Source
from amptui.inspection.containers.torch_zip import COPY_AGAIN, MAX_PICKLE
from amptui.inspection.nodes import ITEMSIZE, Call, Node, Storage, Tensor, mapping_of, sequence_of
from amptui.inspection.notes import fault
from amptui.inspection.pickle_walk import Code, Walked, walk

LEGACY_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
_NESTED = "torch.storage._load_from_bytes"
_FIRST_WINDOW = 1 << 20


def read_legacy(source: Source) -> Loaded:
    """A legacy torch file, from its magic number on."""
    position, code = len(LEGACY_MAGIC), Code()
    walks: list[Walked] = []
    for _ in range(4):  # protocol version, system information, the object, the storages' keys
        walked = _walk_at(source, position)
        code.add(walked.code)
        if walked.problem and len(walks) < 3:
            return _broken(source, walked, code)
        walks.append(walked)
        position = walked.end
    _, system, described, keys = walks
    places, problem = _places(source, keys, _storages(described.root))
    findings = () if not problem else (fault("truncated", f"the file is incomplete: {problem}", advice=COPY_AGAIN),)
    big = isinstance(system.root, dict) and system.root.get("little_endian") is False
    return Loaded(
        "legacy",
        source.size,
        described.root,
        code,
        findings,
        PlacedBytes(source, places, big),
        complete=not problem,
    )


def read_bare_pickle(source: Source) -> Loaded:
    """A file that is one pickle and no torch file; whatever follows its end mark is walked too, for what it names."""
    first = _walk_at(source, 0)
    code, end, problem = first.code, first.end, first.problem
    findings = []
    if problem:
        what = f"the file is a pickle that breaks: {problem}"
        findings.append(fault("truncated" if first.short else "damaged", what, advice=COPY_AGAIN))
    elif end < source.size:
        code.add(_walk_at(source, end).code)
        what = f"{source.size - end:,} bytes follow the end of the pickle"
        findings.append(
            fault("trailing-bytes", what, advice="No writer leaves such bytes: treat the file as tampered with.")
        )
    if any(found.dotted == _NESTED for found in code.globals):
        _add_nested_torch_files(first.root, code)
    return Loaded(
        "pickle",
        source.size,
        first.root,
        code,
        tuple(findings),
        readable=not problem or bool(code.globals) or bool(first.root),
        complete=not problem,
    )


def _walk_at(source: Source, position: int) -> Walked:
    """Walk the pickle at `position`; how long it is, only its end mark says, so the window grows as needed."""
    window = _FIRST_WINDOW
    while True:
        raw = source.up_to(position, window)
        walked = walk(raw)
        if not walked.short or position + len(raw) >= source.size or window >= MAX_PICKLE:
            return replace(walked, end=position + walked.end)
        window = min(window * 8, MAX_PICKLE)


def _broken(source: Source, walked: Walked, code: Code) -> Loaded:
    what = f"the file is incomplete or damaged: {walked.problem}"
    finding = fault("truncated" if walked.short else "damaged", what, advice=COPY_AGAIN)
    return Loaded(
        "legacy",
        source.size,
        walked.root,
        code,
        (finding,),
        readable=walked.root is not None or bool(code.globals),
        complete=False,
    )


def _storages(root: Node) -> Mapping[str, Storage]:
    """Every storage that a tensor below `root` names."""
    found: dict[str, Storage] = {}
    for node in _every_node(root):
        if isinstance(node, Tensor) and node.storage is not None:
            found[node.storage.key] = node.storage
    return found


def _every_node(root: Node) -> Iterator[Node]:
    """`root` and all that it holds; what holds others comes once, also where it holds itself."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict | list | tuple | Call):
            if id(node) in seen:
                continue
            seen.add(id(node))
            waiting.extend((mapping_of(node) or {}).values())
            waiting.extend(sequence_of(node) or ())
            if isinstance(node, Call):
                waiting.append(node.args)
        yield node


def _places(source: Source, keys: Walked, storages: Mapping[str, Storage]) -> tuple[dict[str, tuple[int, int]], str]:
    """Offset and length of each storage by key, and what stopped the count ("" if nothing)."""
    places: dict[str, tuple[int, int]] = {}
    if keys.problem or not isinstance(keys.root, list):
        return places, "the list of its tensors' data is not there"
    position = keys.end
    for key in keys.root:
        header = source.up_to(position, 8)
        if len(header) < 8:
            return places, f"the data of {len(keys.root) - len(places):,} of {len(keys.root):,} storages is missing"
        (count,) = struct.unpack("<q", header)
        storage = storages.get(str(key))
        if storage is None or count != storage.numel:
            return places, f"storage {str(key)[:40]!r} announces {count:,} elements, which no tensor asks for"
        length = count * ITEMSIZE[storage.dtype]
        if position + 8 + length > source.size:
            return places, f"the data of {len(keys.root) - len(places):,} of {len(keys.root):,} storages is missing"
        places[storage.key] = (position + 8, length)
        position += 8 + length
    return places, ""


def _add_nested_torch_files(root: Node, code: Code) -> None:
    """Add what tensors name that a plain pickle holds as torch files (`torch.storage._load_from_bytes`)."""
    budget = 1000
    for node in _every_node(root):
        raw = node.args[0] if isinstance(node, Call) and isinstance(node.args, tuple) and node.args else None
        if not isinstance(node, Call) or node.name != _NESTED or not isinstance(raw, bytes):
            continue
        position = 0
        for _ in range(8):
            walked = walk(raw, position)
            code.add(walked.code)
            position = walked.end
            if walked.problem or position >= len(raw):
                break
        budget -= 1
        if not budget:
            return
