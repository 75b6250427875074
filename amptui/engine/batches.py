"""The stretch: training batches drawn once, frozen, and handed out fresh for every run.

A list of batches is taken whole; of anything else at most `iterations` windows are drawn. The tensors stay in memory up
to a quarter of free RAM, else they are mapped from the session folder. Every batch that is handed out is a copy on the
run's device, so that a project that edits its batches in place cannot change what the next run sees.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from amptui.engine.nested import copied, hashed, map_tensors, tensors_in

DEFAULT_ITERATIONS = 50


class BatchesRefused(ValueError):
    """The batches cannot be drawn or frozen."""


@dataclass(frozen=True, eq=False)
class FrozenBatches:
    """Whole windows of `accumulate` batches; `remainder` batches at the end fill none and are not run."""

    batches: Sequence[Any]
    accumulate: int
    remainder: int
    digest: str
    device: torch.device | None
    mapped: bool = False

    @property
    def iterations(self) -> int:
        return len(self.batches) // self.accumulate

    def window(self, step: int) -> Iterator[Any]:
        """Fresh copies of the batches of iteration `step`, on the run's device; the stretch repeats after its end."""
        first = (step % self.iterations) * self.accumulate
        for index in range(first, first + self.accumulate):
            yield copied(self.batches[index], self.device)


def draw(
    source: Iterable[Any] | Callable[[], Iterable[Any]],
    *,
    accumulate: int,
    iterations: int | None,
    on_progress: Callable[[int, int], object] | None = None,
) -> list[Any]:
    """The batches of the stretch, in order. A list is taken whole unless `iterations` says less."""
    made = source() if callable(source) else source
    whole = isinstance(made, list | tuple)
    wanted = None if whole and iterations is None else (iterations or DEFAULT_ITERATIONS) * accumulate
    drawn: list[Any] = []
    for batch in itertools.islice(iter(made), wanted):
        drawn.append(batch)
        if on_progress is not None:
            on_progress(len(drawn), wanted or len(drawn))
    return drawn


def freeze(
    drawn: Sequence[Any],
    *,
    accumulate: int,
    device: torch.device | None,
    folder: Path,
    memory_limit: int | None = None,
) -> FrozenBatches:
    """Frozen copies of `drawn`, in memory up to `memory_limit` bytes (default: a quarter of free RAM), else mapped."""
    whole = len(drawn) // accumulate * accumulate
    kept = drawn[:whole]
    limit = free_memory() // 4 if memory_limit is None else memory_limit
    size = sum(tensor.nbytes for batch in kept for tensor in tensors_in(batch))
    digest = hashlib.sha256()
    for batch in kept:
        hashed(batch, digest)
    mapped = size > limit
    frozen = _mapped(kept, folder) if mapped else [copied(batch, None) for batch in kept]
    return FrozenBatches(frozen, accumulate, len(drawn) - whole, digest.hexdigest(), device, mapped)


def _mapped(batches: Sequence[Any], folder: Path) -> list[Any]:
    """The batches with their tensors read from files in `folder` by memory map, a file a batch."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    frozen = []
    for index, batch in enumerate(batches):
        tensors = [tensor.detach().cpu().contiguous() for tensor in tensors_in(batch)]
        path = folder / f"{index:06d}.pt"
        torch.save(tensors, path)
        stored = iter(torch.load(path, mmap=True, weights_only=True))
        frozen.append(map_tensors(batch, lambda _tensor, stored=stored: next(stored)))
    return frozen


def free_memory() -> int:
    """Bytes that can be had without swapping, as the kernel estimates it; 1 GiB where it does not say."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 1 << 30
