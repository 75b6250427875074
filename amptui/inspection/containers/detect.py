"""Which format a file has, by its first bytes and never by its name."""

from __future__ import annotations

from amptui.inspection.containers.json_file import read_json
from amptui.inspection.containers.loaded import Loaded
from amptui.inspection.containers.safetensors import looks_like_safetensors, read_safetensors
from amptui.inspection.containers.source import Source
from amptui.inspection.containers.torch_legacy import LEGACY_MAGIC, read_bare_pickle, read_legacy
from amptui.inspection.containers.torch_zip import read_torch_zip
from amptui.inspection.notes import fault

#: What people name by mistake, by its first bytes.
_OTHERS = (
    (b"\x89HDF\r\n", "an HDF5 file (Keras, MATLAB)"),
    (b"GGUF", "a GGUF file (llama.cpp weights)"),
    (b"\x93NUMPY", "a NumPy array file"),
    (b"\x1f\x8b", "a gzip file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"version https://git-lfs", "a Git LFS pointer: the real file was never fetched (git lfs pull)"),
    (b"\x08\x07\x12", "an ONNX model"),
    (b"\x08\x08\x12", "an ONNX model"),
    (b"<!DOCTYPE", "a web page: the download went wrong"),
    (b"<html", "a web page: the download went wrong"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x7fELF", "a program"),
)
_PICKLE_STARTS = frozenset(b"\x80(]})c}lditNIKMJLGFSUVXPQ")
_PROTOCOL = 0x80
_USE_ANOTHER = "Name the file or folder that training wrote."


def read_file(source: Source) -> Loaded:
    """Read one file of whatever format. Never raises for what the file holds."""
    if not source.size:
        advice = "The save was interrupted or the disk was full: use an earlier checkpoint."
        finding = fault("truncated", "the file is empty, so incomplete", advice=advice)
        return Loaded("empty", 0, findings=(finding,), readable=False, complete=False)
    head = source.up_to(0, 512)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return read_torch_zip(source)
    if head.startswith(LEGACY_MAGIC):
        return read_legacy(source)
    if looks_like_safetensors(head, source.size):
        return read_safetensors(source)
    for magic, words in _OTHERS:
        if head.startswith(magic):
            return _other(source, words)
    if head[257:262] == b"ustar":
        return _other(source, "a tar archive (torch before 0.1.10 wrote checkpoints so; load and save it again there)")
    if head.lstrip()[:1] in (b"{", b"["):
        return _text_or_pickle(source)
    if head[0] in _PICKLE_STARTS:
        loaded = read_bare_pickle(source)
        # Text can begin like the oldest pickles; what really is one ends well or names something.
        if head[0] == _PROTOCOL or loaded.complete or any(found.module.isidentifier() for found in loaded.code.globals):
            return loaded
    if not any(head):
        return _other(source, "filled with zero bytes: its data never reached the disk", complete=False)
    return _other(source, "in no format that training writes")


def _text_or_pickle(source: Source) -> Loaded:
    loaded = read_json(source)
    return loaded if loaded.readable else _other(source, "in no format that training writes")


def _other(source: Source, words: str, *, complete: bool = True) -> Loaded:
    code = "not-a-checkpoint" if complete else "truncated"
    finding = fault(code, f"the file is {words}", advice=_USE_ANOTHER)
    return Loaded("other", source.size, findings=(finding,), readable=False, complete=False)
