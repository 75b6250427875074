"""The way back without torch and without the project: checkpoints verified, and copied out as plain files.

Works on what a killed engine left, at whatever moment it was killed, and while a living one writes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from amptui.session.durable import PRIVATE_FILE, open_regular, write_all
from amptui.session.errors import CheckpointDamaged, SessionError, StoreDamaged
from amptui.session.folder import SessionFolder
from amptui.session.manifest import FP32, CheckpointEntry, CheckpointRecord, damage_of, gaps, verify_descriptor
from amptui.session.named_file import written
from amptui.session.store import Store
from amptui.text import safe_text

_CHUNK = 2**22


@dataclass(frozen=True)
class CheckpointCheck:
    """One checkpoint held against its record: `problem` is empty if every byte is as it was saved."""

    name: str
    path: Path
    bytes: int
    tensors: int
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem


@dataclass(frozen=True)
class VerifyReport:
    """Every checkpoint of a session. `store_problem` is empty if the store itself could be read; if not, the records
    come from the manifests beside the files."""

    folder: SessionFolder
    checkpoints: tuple[CheckpointCheck, ...]
    store_problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether there is a way back and nothing about it is in doubt."""
        return not self.store_problem and bool(self.checkpoints) and all(check.ok for check in self.checkpoints)


@dataclass(frozen=True)
class Exported:
    """A checkpoint copied out: `sha256` is that of the file at `path`, as `sha256sum` prints it."""

    name: str
    path: Path
    bytes: int
    tensors: int
    sha256: str
    store_problem: str = ""


def verify(folder: SessionFolder) -> VerifyReport:
    """Holds every checkpoint of the session against its SHA-256 sums; nothing is changed.

    Raises StoreError if the session has no database, or one that this amptui cannot read but that is not damaged.
    """
    records, store_problem = _records(folder)
    return VerifyReport(folder, tuple(_check(folder, record) for record in records), store_problem)


def export(folder: SessionFolder, output: Path, *, name: str = FP32, overwrite: bool = False) -> Exported:
    """Copies checkpoint `name` to `output`: a plain file for `torch.load(output, weights_only=True)`.

    What is written is what was verified: the sums are taken from the very bytes that are copied, and `output` appears,
    whole and durable, only if all agree. Raises CheckpointDamaged (naming the tensors), SessionError if there is no
    such checkpoint or `output` cannot be written; FileExistsError becomes SessionError unless `overwrite`.
    """
    records, store_problem = _records(folder)
    record = next((record for record in records if record.name == name), None)
    if record is None:
        raise SessionError(_no_checkpoint(folder, name, records))
    output = output.absolute()
    if output.is_dir():
        raise SessionError(
            f"{_shown(output)} is a folder; name the file to write, such as {_shown(output / 'fp32.pt')}"
        )
    descriptor = _open(folder, record)
    try:
        with written(output, overwrite=overwrite, mode=PRIVATE_FILE) as file:
            sha256 = _copied(descriptor, file.fileno(), record, _shown(folder.path / record.path))
    except FileExistsError:
        raise SessionError(f"{_shown(output)} already exists; name another file, or replace it with --force") from None
    except OSError as error:
        raise SessionError(f"{_shown(output)} cannot be written: {error.strerror or error}") from error
    finally:
        os.close(descriptor)
    return Exported(record.name, output, record.bytes, record.tensors, sha256, store_problem)


def _records(folder: SessionFolder) -> tuple[tuple[CheckpointRecord, ...], str]:
    """The session's records, and what is wrong with its store if they had to come from the manifests."""
    if not os.path.lexists(folder.database):  # ended before it had one, or it was removed
        found = _by_time(_manifests(folder))
        return found, f"{_shown(folder.database)} is missing" if found else ""
    try:
        with Store.read(folder) as store:
            return store.checkpoints(), ""
    except StoreDamaged as error:
        return _by_time(_manifests(folder)), str(error)


def _by_time(records: Iterable[CheckpointRecord]) -> tuple[CheckpointRecord, ...]:
    return tuple(sorted(records, key=lambda record: record.time))


def _manifests(folder: SessionFolder) -> Iterator[CheckpointRecord]:
    """What the manifests beside the files say. Only for a damaged store: a file alone does not make a checkpoint."""
    for path in sorted(folder.checkpoints.glob("*.json")):
        try:
            descriptor = open_regular(path)
            with os.fdopen(descriptor, "rb") as file:
                record = CheckpointRecord.from_json(file.read().decode())
        except (OSError, UnicodeDecodeError, CheckpointDamaged):
            continue
        if folder.path / record.path == path.with_suffix(".pt"):
            yield record


def _check(folder: SessionFolder, record: CheckpointRecord) -> CheckpointCheck:
    path = folder.path / record.path
    problem = ""
    try:
        descriptor = _open(folder, record)
        try:
            verify_descriptor(descriptor, record, _shown(path))
        finally:
            os.close(descriptor)
    except SessionError as error:
        problem = str(error)
    except OSError as error:
        problem = f"{_shown(path)} cannot be read: {error.strerror or error}"
    return CheckpointCheck(record.name, path, record.bytes, record.tensors, problem)


def _open(folder: SessionFolder, record: CheckpointRecord) -> int:
    path = folder.path / record.path
    if Path(record.path).parts[:1] != (folder.checkpoints.name,) or ".." in Path(record.path).parts:
        raise CheckpointDamaged(
            f"the record of checkpoint {safe_text(record.name)} points outside the session's folder"
        )
    try:
        return open_regular(path)
    except OSError as error:
        raise SessionError(f"checkpoint {_shown(path)} cannot be opened: {error.strerror or error}") from error


def _copied(source: int, target: int, record: CheckpointRecord, shown: str) -> str:
    """Copies `source` to `target`; gives the SHA-256 of the whole. CheckpointDamaged if any sum of `record` differs."""
    if os.fstat(source).st_size != record.bytes:
        verify_descriptor(source, record, shown)
    whole, structure = hashlib.sha256(), hashlib.sha256()
    wrong: list[CheckpointEntry] = []
    entries = sorted(record.entries, key=lambda entry: (entry.offset, entry.bytes))
    with ThreadPoolExecutor(2) as beside:
        for (gap, gap_bytes), entry in zip(gaps(entries, record.bytes), [*entries, None], strict=True):
            _copy_part(source, target, gap, gap_bytes, (whole, structure), beside)
            if entry is not None:
                digest = hashlib.sha256()
                _copy_part(source, target, entry.offset, entry.bytes, (whole, digest), beside)
                if digest.hexdigest() != entry.sha256:
                    wrong.append(entry)
    if wrong or structure.hexdigest() != record.structure:
        raise CheckpointDamaged(f"{shown} is not what was saved: {damage_of(wrong, record)}; nothing was written")
    return whole.hexdigest()


def _copy_part(
    source: int, target: int, offset: int, count: int, digests: tuple[hashlib._Hash, ...], beside: Executor
) -> None:
    """Copies and hashes at once: hashlib releases the interpreter's lock."""
    done = 0
    while done < count:
        try:
            data = os.pread(source, min(_CHUNK, count - done), offset + done)
        except OSError as error:
            raise CheckpointDamaged(
                f"the checkpoint cannot be read at byte {offset + done:,}: {error.strerror}"
            ) from error
        if not data:
            return  # cut off in the meantime: the sums will differ
        hashed = [beside.submit(digest.update, data) for digest in digests]
        write_all(target, memoryview(data))
        for one in hashed:
            one.result()
        done += len(data)


def _no_checkpoint(folder: SessionFolder, name: str, records: tuple[CheckpointRecord, ...]) -> str:
    session = safe_text(folder.session_id)
    if not records:
        return f"session {session} ended before its FP32 checkpoint was written: nothing had been changed by then"
    names = ", ".join(safe_text(record.name) for record in records)
    return f"session {session} has no checkpoint '{safe_text(name)}'; it has {names}"


def _shown(path: Path) -> str:
    return safe_text(path, 4096)
