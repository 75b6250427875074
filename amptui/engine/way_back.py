"""The FP32 checkpoint of a session: written when its project is opened first, and the way back to it from then on."""

from __future__ import annotations

from collections.abc import Callable

from amptui.engine import checkpoint
from amptui.engine.bench import Bench
from amptui.engine.live import LiveProject
from amptui.engine.refusals import Refusal
from amptui.engine.snapshot import Snapshot
from amptui.protocol.events import CheckpointWritten, Event, FellBack
from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from amptui.session.manifest import FP32, CheckpointRecord
from amptui.session.store import Store


def taken_up(
    live: LiveProject, folder: SessionFolder, store: Store | None, emit: Callable[[Event], object]
) -> CheckpointRecord | None:
    """In a session that is opened again: its checkpoint, verified and loaded into the live objects."""
    record = store.checkpoint(FP32) if store is not None else None
    if record is not None:
        checkpoint.restore(record, live.state, folder=folder)
        emit(FellBack(checkpoint=record.name, verified=record.tensors, proven=True))
    return record


def written(
    live: LiveProject, folder: SessionFolder, store: Store | None, emit: Callable[[Event], object]
) -> CheckpointRecord:
    """The checkpoint of the live objects as they are: on disk, verified, recorded."""
    record = checkpoint.write(folder, FP32, live.state, position={"iteration": 0})
    if store is not None:
        store.add_checkpoint(record)
    emit(
        CheckpointWritten(
            name=record.name,
            path=str(folder.path / record.path),
            sha256=record.sha256,
            tensors=sum(len(entry.tensors) for entry in record.entries),
            bytes=record.bytes,
        )
    )
    return record


def fall_back(bench: Bench, record: CheckpointRecord, *, repeatable: bool) -> None:
    """Back to the checkpoint on disk: verified before anything live is touched, compared afterwards.

    Without a `repeatable` baseline nothing is said to be proven: what trains may keep a state that nobody saves.
    """
    try:
        checkpoint.restore(record, bench.live.state, folder=bench.folder)
    except SessionError as error:
        raise Refusal("checkpoint", str(error), hint="nothing was changed") from error
    different = bench.start.differences(Snapshot.take(bench.live.state))
    bench.emit(FellBack(checkpoint=record.name, verified=record.tensors, proven=different is None and repeatable))
