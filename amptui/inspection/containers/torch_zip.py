"""torch's zip format (since 1.6): `<name>/data.pkl` and one member `<name>/data/<key>` for each storage.

Source: torch/serialization.py `_save` and caffe2/serialize/inline_container.cc.
"""

from __future__ import annotations

from dataclasses import dataclass

from amptui.findings.finding import Finding
from amptui.inspection.containers.loaded import Extent, Loaded, require_length
from amptui.inspection.containers.source import DamagedError, Source
from amptui.inspection.containers.zip_archive import (
    LOCAL,
    LOCAL_MAGIC,
    Archive,
    Entry,
    read_archive,
)
from amptui.inspection.nodes import Storage
from amptui.inspection.notes import fault, notice
from amptui.inspection.pickle_walk import Walked, walk

MAX_PICKLE = 128 << 20
_SMALL = 1 << 16
COPY_AGAIN = "Copy the file again from where it was written and compare sizes or hashes; do not resume from this copy."


@dataclass(frozen=True, slots=True)
class ZipBytes:
    """Storages as members of an archive."""

    archive: Archive
    folder: str
    big_endian: bool

    def locate(self, storage: Storage) -> tuple[Extent, ...]:
        entry = self.archive.entries.get(f"{self.folder}data/{storage.key}")
        if entry is None:
            raise DamagedError("its data is missing")
        if entry.method or entry.flags & 1:
            raise DamagedError("its data is compressed or encrypted")
        require_length(storage, entry.size)
        checksum = entry.checksum if self.archive.has_checksums else None
        return (Extent(self.archive.source, self.archive.start(entry), entry.size, checksum, self.big_endian),)


def read_torch_zip(source: Source) -> Loaded:
    """A zip file that begins like one of torch's; says what it is instead where it is not."""
    try:
        archive = read_archive(source)
    except DamagedError as error:
        return _cut_off(source, str(error))
    pickles = [entry for name, entry in archive.entries.items() if name == "data.pkl" or name.endswith("/data.pkl")]
    if not pickles:
        return _not_torch(source, archive)
    entry = min(pickles, key=lambda entry: entry.name.count("/"))
    folder = entry.name.removesuffix("data.pkl")
    findings = [_odd(oddity) for oddity in archive.oddities]
    if len(pickles) > 1:
        findings.append(_odd(f"{len(pickles)} members are named data.pkl"))
    try:
        raw = archive.read(entry, MAX_PICKLE)
    except DamagedError as error:
        findings.append(
            fault("damaged", f"data.pkl, the part that describes all others, is unusable: {error}", advice=COPY_AGAIN)
        )
        return Loaded("zip", source.size, findings=tuple(findings), readable=False, complete=False)
    walked = walk(raw)
    if not archive.matches(entry, raw):
        findings.append(_wrong_checksum(entry.name))
    findings.extend(_small_members(archive, entry))
    findings.extend(pickle_findings(walked, len(raw)))
    if f"{folder}constants.pkl" in archive.entries:
        findings.append(_torchscript())
    return Loaded(
        "zip",
        source.size,
        walked.root,
        walked.code,
        tuple(findings),
        ZipBytes(archive, folder, _big_endian(archive, folder)),
        readable=walked.root is not None or not walked.problem,
        complete=not walked.problem,
    )


def pickle_findings(walked: Walked, size: int) -> list[Finding]:
    """What is wrong with a stream that should have filled `size` bytes and no more."""
    if walked.problem:
        what = f"the pickle that describes the contents is broken: {walked.problem}"
        return [fault("damaged", what, "what stands before that place is shown", advice=COPY_AGAIN)]
    if walked.end < size:
        what = f"{size - walked.end:,} bytes follow the end of the pickle"
        return [fault("trailing-bytes", what, advice="No writer leaves such bytes: treat the file as tampered with.")]
    return []


def _small_members(archive: Archive, pickle: Entry) -> list[Finding]:
    """Wrong checksums among the small members; storages have theirs verified when their values are read."""
    found = []
    for entry in archive.entries.values():
        if entry is pickle or entry.size > 256 or "/data/" in entry.name:
            continue
        try:
            if not archive.matches(entry, archive.read(entry, _SMALL)):
                found.append(_wrong_checksum(entry.name))
        except DamagedError as error:
            found.append(fault("damaged", f"{entry.name!r}: {error}", advice=COPY_AGAIN))
        if len(found) >= 10:
            break
    return found


def _big_endian(archive: Archive, folder: str) -> bool:
    entry = archive.entries.get(f"{folder}byteorder")
    try:
        return entry is not None and archive.read(entry, _SMALL) == b"big"
    except DamagedError:
        return False


def _cut_off(source: Source, problem: str) -> Loaded:
    """What can be told of a zip file without its directory: torch writes data.pkl first."""
    cut = fault(
        "truncated", f"the file is incomplete: {problem}", f"it ends after {source.size:,} bytes", advice=COPY_AGAIN
    )
    walked = _leading_pickle(source)
    if walked is None or walked.root is None:
        return Loaded("zip", source.size, findings=(cut,), readable=False, complete=False)
    seen = "; its description of the contents is there and shown, the tensors are not" if not walked.problem else ""
    cut = fault(
        "truncated",
        f"the file is incomplete: {problem}{seen}",
        f"it ends after {source.size:,} bytes",
        advice=COPY_AGAIN,
    )
    return Loaded("zip", source.size, walked.root, walked.code, (cut,), complete=False)


def _leading_pickle(source: Source) -> Walked | None:
    """The pickle of the first member, if that is data.pkl."""
    if source.size < LOCAL.size:
        return None
    header = LOCAL.unpack(source.read(0, LOCAL.size))
    name = source.up_to(LOCAL.size, header[9])
    if header[0] != LOCAL_MAGIC or not name.endswith(b"data.pkl"):
        return None
    start = LOCAL.size + header[9] + header[10]
    if start >= source.size:
        return None
    raw = source.up_to(start, MAX_PICKLE)
    return walk(raw)


def _not_torch(source: Source, archive: Archive) -> Loaded:
    names = list(archive.entries)
    if any(name.endswith("model.weights.h5") for name in names):
        what = "a Keras model, not a PyTorch checkpoint"
    elif names and all(name.endswith(".npy") for name in names):
        what = "a NumPy .npz file, not a PyTorch checkpoint"
    elif any(name.startswith(("word/", "xl/", "META-INF/")) for name in names):
        what = "a document or program archive, not a checkpoint"
    else:
        what = f"a zip file of {len(names):,} members without data.pkl, so not a PyTorch checkpoint"
    finding = fault("not-a-checkpoint", f"the file is {what}", advice="Name the file or folder that training wrote.")
    return Loaded("zip", source.size, findings=(finding,), readable=False, complete=False)


def _odd(oddity: str) -> Finding:
    advice = "torch writes no such archive and may load it silently: fetch it again from a source you trust."
    return fault("odd-archive", f"the archive is not as torch writes it: {oddity}", advice=advice)


def _wrong_checksum(name: str) -> Finding:
    return fault("checksum", f"{name!r} does not match its stored checksum", advice=COPY_AGAIN, path=name)


def _torchscript() -> Finding:
    what = "this is a TorchScript program: it holds code that a load would compile, and no training state"
    return notice("torchscript", what, advice="Inspect the checkpoint that training wrote instead.")
