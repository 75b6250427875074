"""The checkpoint on disk: a plain `torch.save` file that is verified before it counts and before it is loaded.

Written as a new file, fsync'd, read back and compared with the live state bit for bit, hashed, renamed, the folder
fsync'd. It exists once `Store.add_checkpoint` has recorded what `write` returns. Nothing is ever overwritten.
"""

from __future__ import annotations

import os
import pickle
import secrets
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import load, save  # bound now: the project's code may replace those in the torch module

from amptui.engine import rng
from amptui.engine.checkpoint_content import content_of, first_difference
from amptui.engine.checkpoint_file import describe, storage_sums
from amptui.engine.checkpoint_loading import CheckpointMismatch, Loading
from amptui.engine.plain_values import map_tensors
from amptui.engine.training_state import TrainingState
from amptui.session.durable import create_file, open_regular, publish, published, temporary_beside, write_all
from amptui.session.errors import CheckpointDamaged, SessionError
from amptui.session.folder import SessionFolder
from amptui.session.manifest import CheckpointRecord, verify_descriptor
from amptui.text import safe_text

__all__ = ["CheckpointMismatch", "Restored", "restore", "write"]

_FLUSH_S = 0.05


@dataclass(frozen=True)
class Restored:
    """What a restored checkpoint said: the batch position it was given, the versions that wrote it.

    `left_out`: generators it has and this process lacks, such as "cuda:1".
    """

    position: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def write(
    folder: SessionFolder, name: str, state: TrainingState, position: Mapping[str, Any] | None = None
) -> CheckpointRecord:
    """Writes `state` as checkpoint `name` and returns its record; record it with `Store.add_checkpoint`.

    `position`: plain values that say where in the batches the run stands. Raises NotEnoughSpace before anything is
    written, NotPlain (naming the path) for state that no safe file can hold, SessionError if the disk fails.
    """
    content = content_of(state, position or {})
    folder.require_space(_bytes_of(content))
    path = folder.checkpoints / f"{name}-{secrets.token_hex(4)}.pt"
    try:
        return _published(folder, name, path, content)
    except OSError as error:
        raise SessionError(
            f"checkpoint {safe_text(name)} could not be written to {safe_text(folder.checkpoints, 4096)}: "
            f"{error.strerror or error}. Earlier checkpoints are untouched."
        ) from error


def restore(
    record: CheckpointRecord, state: TrainingState, *, folder: SessionFolder, with_rng: bool = True
) -> Restored:
    """Puts checkpoint `record` of the session in `folder` into the live objects of `state`, in place and bit for bit.

    The file is held against its SHA-256 sums, then against the live objects, before the first of them is touched;
    afterwards the bits are compared. Gradients become None. Raises CheckpointDamaged or CheckpointMismatch with
    nothing changed, SessionError if the file cannot be read.
    """
    path = folder.path / record.path
    shown = safe_text(path, 4096)
    try:
        descriptor = open_regular(path)
    except OSError as error:
        raise SessionError(f"checkpoint {shown} cannot be opened: {error.strerror or error}") from error
    try:
        verify_descriptor(descriptor, record, shown)
        content = _load(descriptor)
        loading = Loading(content, state)
        loading.check()
        loading.apply()
        generators = rng.RngState.from_plain(map_tensors(content["rng"], torch.clone))
        left_out = rng.restore(generators) if with_rng else ()
        return Restored(content["position"], content["amptui"], left_out)
    finally:
        os.close(descriptor)


def _published(folder: SessionFolder, name: str, path: Path, content: Mapping[str, Any]) -> CheckpointRecord:
    """Writes and verifies the file and its manifest, then gives the file its name `path`."""
    temporary, manifest_path = temporary_beside(path), path.with_suffix(".json")
    descriptor = create_file(temporary)
    try:
        # The sums are taken and the disk works while torch writes and while what lies in the file is compared.
        written = threading.Event()
        with ThreadPoolExecutor(2) as beside:
            sums = beside.submit(storage_sums, content)
            flushed = beside.submit(_flush, descriptor, written)
            try:
                _save(content, descriptor)
            finally:
                written.set()
            difference = first_difference(content, _load(descriptor))
            record = describe(descriptor, name, str(path.relative_to(folder.path)), time.time(), sums.result())
            flushed.result()
        if difference is not None:
            what = f"checkpoint {safe_text(name)} was written, but {safe_text(difference)} reads back differently"
            raise CheckpointDamaged(f"{what}: check this machine's disk and memory")
        with published(manifest_path) as manifest:
            manifest.write(record.as_json().encode())
        try:
            publish(temporary, path)
        except OSError:
            manifest_path.unlink(missing_ok=True)
            raise
    finally:
        os.close(descriptor)
        temporary.unlink(missing_ok=True)
    return record


def _save(content: Mapping[str, Any], descriptor: int) -> None:
    sink = _Sink(descriptor)
    try:
        save(content, cast(IO[bytes], sink))
    except (OSError, RuntimeError) as error:
        # torch says "unexpected pos" where the disk is full: the sink knows why.
        raise sink.failure or error from error
    if sink.failure is not None:
        raise sink.failure


def _flush(descriptor: int, written: threading.Event) -> None:
    """Makes the file durable, beginning while it is still being written. An error is final: it is never tried again."""
    while not written.wait(_FLUSH_S):
        os.fdatasync(descriptor)
    os.fsync(descriptor)


def _load(descriptor: int) -> dict[str, Any]:
    """The content of an open file, its tensors mapped; the descriptor's own file, whatever its name says by now."""
    path = Path(f"/proc/self/fd/{descriptor}")
    try:
        content: dict[str, Any] = load(path, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, RuntimeError, pickle.UnpicklingError) as error:
        said = safe_text(str(error).partition("\n")[0])
        raise SessionError(f"torch {torch.__version__} cannot load the checkpoint: {said}") from error
    return content


def _bytes_of(content: Mapping[str, Any]) -> int:
    storages: dict[int, int] = {}

    def count(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout == torch.strided:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    map_tensors(dict(content), count)
    return sum(storages.values())


class _Sink(RawIOBase):
    """The file that torch writes to, on a descriptor of ours; it remembers why a write failed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.failure: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        try:
            write_all(self._descriptor, view)
        except OSError as error:
            self.failure = self.failure or error
            raise
        return len(view)
