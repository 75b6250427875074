"""What the way back costs: snapshots against memcpy, files against `torch.save`, verified restore in seconds.

    python tests/bench/bench_checkpoint.py [MB ...]

Each ratio is measured in one run, the two sides taking turns, and is the median of the paired ratios; absolute times
are the machine's. Budgets: in-memory restore 1.18 × memcpy, atomic save 1.2 × torch.save, verified restore of 1 GB
0.8 s.

What can and what cannot be met:

- The restore from memory pays about 2 µs a tensor besides the copy: is it still of its shape, dtype, device and
  strides, in its place, without graph and gradient? So the budget is met from 200 KiB a tensor on; at 20 KiB, which
  take 2 µs to copy, it cannot be. Past some hundred MiB one memcpy of the whole goes around the processor's cache, at
  1.5 times the speed of one for each tensor; both are shown.
- The save is held against `torch.save` with a flush, which promises as much against a power cut; `torch.save` alone has
  returned before anything is on the disk. Beyond both, a save here hashes (SHA-256, 0.64 s/GB of a processor), reads
  back and compares (0.17 s/GB), in threads beside the writing and flushing. On two idle cores that is free; on busy
  ones it costs up to the ratio of the processor seconds.
- The verified restore takes one second of a processor for 1 GB, 0.7 of it for SHA-256 in two threads: 0.65 s on two
  idle cores, more than the budget where they are busy with other work.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from amptui.engine import checkpoint, rng
from amptui.engine.snapshot import BufferSnapshot, Snapshot, TrainingState
from amptui.session.folder import SessionFolder
from amptui.session.lock import SessionLock
from amptui.session.manifest import CheckpointRecord
from amptui.session.restore import export, verify
from amptui.session.store import Store

ROUNDS = 7


def state_of(megabytes: int, tensor_bytes: int) -> TrainingState:
    """A model with SGD momentum, `megabytes` in all, half of it parameters."""
    count = max(1, megabytes * 2**20 // 2 // tensor_bytes)
    net = nn.ParameterList(nn.Parameter(torch.randn(tensor_bytes // 4)) for _ in range(count))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)
    for parameter in net:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    return TrainingState({"": net}, {"main": optimizer})


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    work()
    return clock() - start


def in_turns(*sides: Callable[[], object], rounds: int) -> list[list[float]]:
    """Processor seconds of each side in each round, after one that does not count; all of one thread."""
    for side in sides:
        side()
    taken = [[seconds(side, time.thread_time) for side in sides] for _ in range(rounds)]
    return [list(of_one) for of_one in zip(*taken, strict=True)]


def ratio_of(one: list[float], other: list[float]) -> float:
    """Median of the paired ratios."""
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def in_memory(megabytes: int, tensor_bytes: int) -> None:
    state = state_of(megabytes, tensor_bytes)
    snapshot = Snapshot.take(state)
    source, target = bytearray(snapshot.bytes), bytearray(snapshot.bytes)
    places = [(t.data_ptr(), t.nbytes) for t in snapshot._copies.live]
    pieces = [(to, torch.empty(count, dtype=torch.uint8), count) for to, count in places]
    for to, piece, count in pieces:
        ctypes.memmove(piece.data_ptr(), to, count)
    addresses = [(to, piece.data_ptr(), count) for to, piece, count in pieces]

    def memcpy() -> None:
        target[:] = source

    def memcpy_by_tensor() -> None:
        for to, of, count in addresses:
            ctypes.memmove(to, of, count)

    restored, whole, by_tensor = in_turns(snapshot.restore, memcpy, memcpy_by_tensor, rounds=3 * ROUNDS)
    print(
        f"in-memory restore / memcpy      {ratio_of(restored, whole):5.2f}   {min(restored) * 1e3:8.1f} ms   "
        f"{min(whole) * 1e3:8.1f} ms   {snapshot.bytes / 2**20:,.0f} MiB in tensors of "
        f"{tensor_bytes / 2**10:,.0f} KiB; / memcpy tensor by tensor {ratio_of(restored, by_tensor):.2f}"
    )


def on_disk(megabytes: int, base: Path) -> None:
    state = state_of(megabytes, 4 * 2**20)
    folder = SessionFolder.create(base / f"session-{megabytes}")
    record = saved(megabytes, state, folder, base / "plain.pt")
    worked = time.process_time()
    times = [seconds(lambda: checkpoint.restore(record, state, folder=folder)) for _ in range(ROUNDS)]
    per_gigabyte = 1e9 / record.bytes
    processor = (time.process_time() - worked) / ROUNDS * per_gigabyte
    print(
        f"verified restore                        {min(times):8.3f} s    "
        f"{statistics.median(times) * per_gigabyte:8.3f} s/GB {megabytes:,} MiB; of processors {processor:.3f} s/GB"
    )
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        store.add_checkpoint(record)
    output = base / "out.pt"
    print(f"verify without torch                    {seconds(lambda: verify(folder)):8.3f} s")
    print(f"export                                  {seconds(lambda: export(folder, output, overwrite=True)):8.3f} s")


def saved(megabytes: int, state: TrainingState, folder: SessionFolder, plain: Path) -> CheckpointRecord:
    """Saves and prints against both bases. Processor seconds too: on a busy machine threads do not run side by side."""
    ours, flushed, alone, processor = [], [], [], []
    for number in range(ROUNDS + 1):
        for path in (*folder.checkpoints.iterdir(), *([plain] if plain.exists() else [])):
            path.unlink()
        started, worked = time.perf_counter(), time.process_time()
        record = checkpoint.write(folder, "fp32", state)
        mine, my_work = time.perf_counter() - started, time.process_time() - worked
        started, worked = time.perf_counter(), time.process_time()
        content = {"model": state.modules[""].state_dict(), "optimizer": state.optimizers["main"].state_dict()}
        torch.save(content, plain)
        cached = time.perf_counter() - started
        with plain.open("rb") as file:
            os.fsync(file.fileno())
        durable, its_work = time.perf_counter() - started, time.process_time() - worked
        if number:  # the first round meets memory that nothing has touched yet
            ours.append(mine)
            flushed.append(durable)
            alone.append(cached)
            processor.append(my_work / its_work)
    for name, theirs in (("torch.save, fsync", flushed), ("torch.save alone", alone)):
        figures = f"{ratio_of(ours, theirs):5.2f}   {min(ours):8.3f} s    {min(theirs):8.3f} s "
        print(f"atomic save / {name:17} {figures}   {megabytes:,} MiB")
    print(f"  processor seconds of the first {statistics.median(processor):5.2f}")
    return record


def hot_path() -> None:
    net = nn.Sequential(*(nn.BatchNorm2d(64) for _ in range(4)))
    state = TrainingState({"": net})
    buffers = BufferSnapshot(state)
    count = sum(1 for _ in net.buffers())
    for name, work in (
        (f"take {count} buffers", buffers.take),
        (f"restore {count} buffers", buffers.restore),
        ("capture the generators", rng.capture),
    ):
        best = min(seconds(lambda work=work: [work() for _ in range(200)]) for _ in range(10)) / 200
        print(f"{name:39} {best * 1e6:8.1f} µs")


def main() -> None:
    torch.set_num_threads(1)
    hot_path()
    for megabytes in map(int, sys.argv[1:] or ["100", "960"]):
        in_memory(megabytes, 4 * 2**20)
        with tempfile.TemporaryDirectory() as base:
            on_disk(megabytes, Path(base))
    for kibibytes in (200, 64, 20):
        in_memory(16, kibibytes * 2**10)


if __name__ == "__main__":
    main()
