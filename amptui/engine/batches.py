"""The stretch: training batches drawn once, frozen, and handed out fresh for every run.

A list of batches is taken whole; of anything else at most `iterations` windows are drawn. The tensors stay in memory up
to a quarter of free RAM, else they are mapped from the session folder. Every batch that is handed out is a copy on the
run's device, so that a project that edits its batches in place cannot change what the next run sees.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from amptui.engine.nested import copied, hashed, map_tensors, tensors_in
from amptui.session.errors import SessionError

DEFAULT_ITERATIONS = 50

Source = Iterable[Any] | Callable[[], Iterable[Any]]


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
            batch = self.batches[index]
            if isinstance(batch, MappedBatch):
                yield copied(batch.value, self.device or batch.device)
            else:
                yield copied(batch, self.device)


@dataclass(frozen=True, eq=False)
class MappedBatch:
    """A batch whose tensors are read from a file by memory map; `device` is where they lay."""

    value: Any
    device: torch.device


def draw(
    source: Source,
    *,
    accumulate: int,
    iterations: int | None,
    on_progress: Callable[[int, int], object] | None = None,
) -> Iterator[Any]:
    """The batches of the stretch, in order, as they are drawn. A list is taken whole unless `iterations` says less.

    A generator may fill the same tensor again for each batch: keep nothing of one batch when asking for the next.
    """
    # a dataset may be both iterable and callable
    made = source() if callable(source) and not isinstance(source, Iterable) else source
    whole = isinstance(made, list | tuple)
    limit = min((iterations or DEFAULT_ITERATIONS) * accumulate, sys.maxsize)
    wanted = None if whole and iterations is None else limit
    total = wanted if not isinstance(made, list | tuple) else min(len(made), wanted or len(made))
    for done, batch in enumerate(itertools.islice(iter(made), wanted), start=1):
        yield batch
        if on_progress is not None:
            on_progress(done, total or done)


def freeze(
    drawn: Iterable[Any],
    *,
    accumulate: int,
    device: torch.device | None,
    folder: Path,
    memory_limit: int | None = None,
) -> FrozenBatches:
    """Frozen copies of `drawn`, in memory up to `memory_limit` bytes (default: a quarter of free RAM), else mapped.

    Each batch is copied before the next one is asked for. Past the limit all batches are mapped.
    """
    limit = free_memory() // 4 if memory_limit is None else memory_limit
    kept: list[Any] = []
    size, mapped = 0, False
    for batch in drawn:
        kept.append(copied(batch, None))
        size += sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(batch))
        if size > limit:
            # the first time those before it too
            start = len(kept) - 1 if mapped else 0
            kept[start:] = [_mapped(b, folder / f"{i:06d}.pt") for i, b in enumerate(kept[start:], start)]
            mapped = True
    remainder = len(kept) % accumulate
    whole = kept[: len(kept) - remainder]
    digest = hashlib.sha256()
    for batch in whole:
        hashed(batch.value if isinstance(batch, MappedBatch) else batch, digest)
    return FrozenBatches(whole, accumulate, remainder, digest.hexdigest(), device, mapped)


def _mapped(batch: Any, path: Path) -> Any:
    """The batch with its tensors in the file `path`; as it is where they are not all plain and on one device."""
    tensors = list({id(tensor): tensor for tensor in tensors_in(batch)}.values())
    devices = {tensor.device for tensor in tensors}
    plain = all(type(t) is Tensor and t.layout is torch.strided and not t.is_quantized for t in tensors)
    if len(devices) != 1 or not plain:
        return batch
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # a clone: a view would be stored with all that it is a view of
    try:
        torch.save([tensor.detach().cpu().clone() for tensor in tensors], path)
    except (OSError, RuntimeError) as error:
        raise SessionError(f"{path}: the batches cannot be kept there: {error}") from error
    stored = torch.load(path, mmap=True, weights_only=True)
    by_original = {
        id(tensor): twin.requires_grad_(tensor.requires_grad) for tensor, twin in zip(tensors, stored, strict=True)
    }
    return MappedBatch(map_tensors(batch, lambda tensor: by_original[id(tensor)]), devices.pop())


def free_memory() -> int:
    """Bytes that can be had without swapping: what the kernel estimates, and what the control group leaves.

    1 GiB where neither says.
    """
    told = [free for free in (_free_in_machine(), _free_in_group()) if free is not None]
    return min(told, default=1 << 30)


def _free_in_machine() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def _free_in_group(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int | None:
    """What a container or a batch job may still take (control groups version 2, else 1); None without a limit.

    File pages count as used there although the kernel would give them up, so this is a low estimate.
    """
    groups = [root]
    try:
        path = next(line[3:] for line in own.read_text(encoding="utf-8").splitlines() if line.startswith("0::"))
        inside = root / path.lstrip("/")
        groups = [inside, *(parent for parent in inside.parents if parent.is_relative_to(root))]
    except (OSError, ValueError, StopIteration):
        pass
    free = [_left(group / "memory.max", group / "memory.current") for group in groups]
    free.append(_left(root / "memory/memory.limit_in_bytes", root / "memory/memory.usage_in_bytes"))
    return min((left for left in free if left is not None), default=None)


def _left(limit: Path, used: Path) -> int | None:
    try:
        return max(0, int(limit.read_text(encoding="ascii")) - int(used.read_text(encoding="ascii")))
    except (OSError, ValueError):  # "max", or no such group
        return None
