"""What the way back costs: snapshots against memcpy, files against `torch.save`, verified restore in seconds.

    python tests/bench/bench_checkpoint.py [MB ...]

Each ratio is measured in one run, the two sides taking turns, and is the median of the paired ratios; absolute times
are the machine's. Budgets: in-memory restore 1.18 × memcpy, atomic save 1.2 × torch.save, verified restore 0.8 s/GB.
"""

from __future__ import annotations

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


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def paired(one: Callable[[], object], other: Callable[[], object], rounds: int = ROUNDS) -> tuple[float, float, float]:
    """Median of the paired ratios one / other, and the least seconds of each; the two take turns."""
    one(), other()
    times = [(seconds(one), seconds(other)) for _ in range(rounds)]
    return statistics.median(a / b for a, b in times), min(a for a, _ in times), min(b for _, b in times)


def in_memory(megabytes: int, tensor_bytes: int) -> None:
    state = state_of(megabytes, tensor_bytes)
    snapshot = Snapshot.take(state)
    source, target = bytearray(snapshot.bytes), bytearray(snapshot.bytes)

    def memcpy() -> None:
        target[:] = source

    shown = f"{snapshot.bytes / 2**20:,.0f} MiB in tensors of {tensor_bytes / 2**10:,.0f} KiB"
    ratio, ours, bare = paired(snapshot.restore, memcpy, 3 * ROUNDS)
    print(f"in-memory restore / memcpy      {ratio:5.2f}   {ours * 1e3:8.1f} ms   {bare * 1e3:8.1f} ms   {shown}")
    ratio, ours, bare = paired(lambda: Snapshot.take(state, reuse=snapshot), memcpy)
    print(f"snapshot again / memcpy         {ratio:5.2f}   {ours * 1e3:8.1f} ms   {bare * 1e3:8.1f} ms   {shown}")


def on_disk(megabytes: int, base: Path) -> None:
    state = state_of(megabytes, 4 * 2**20)
    folder = SessionFolder.create(base / f"session-{megabytes}")
    plain = base / "plain.pt"
    records = []

    def atomic() -> None:
        for path in folder.checkpoints.iterdir():
            path.unlink()
        records.append(checkpoint.write(folder, "fp32", state))

    def bare() -> None:
        plain.unlink(missing_ok=True)
        torch.save({"model": state.modules[""].state_dict(), "optimizer": state.optimizers["main"].state_dict()}, plain)

    def bare_durable() -> None:
        bare()
        descriptor = os.open(plain, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    ratio, ours, its = paired(atomic, bare)
    print(f"atomic save / torch.save        {ratio:5.2f}   {ours:8.3f} s    {its:8.3f} s    {megabytes:,} MiB")
    ratio, ours, its = paired(atomic, bare_durable)
    print(f"atomic save / torch.save, fsync {ratio:5.2f}   {ours:8.3f} s    {its:8.3f} s    {megabytes:,} MiB")
    record = records[-1]
    times = [seconds(lambda: checkpoint.restore(record, state, folder=folder)) for _ in range(ROUNDS)]
    per_gigabyte = statistics.median(times) * 1e9 / record.bytes
    print(f"verified restore                        {min(times):8.3f} s    {per_gigabyte:8.3f} s/GB {megabytes:,} MiB")
    with SessionLock.acquire(folder) as lock, Store.open(folder, lock) as store:
        store.add_checkpoint(record)
    output = base / "out.pt"
    print(f"verify without torch                    {seconds(lambda: verify(folder)):8.3f} s")
    print(f"export                                  {seconds(lambda: export(folder, output, overwrite=True)):8.3f} s")


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
    for megabytes in map(int, sys.argv[1:] or ["100", "400"]):
        in_memory(megabytes, 4 * 2**20)
        with tempfile.TemporaryDirectory() as base:
            on_disk(megabytes, Path(base))
    in_memory(16, 20 * 2**10)


if __name__ == "__main__":
    main()
