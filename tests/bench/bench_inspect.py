"""What `amptui inspect` costs: a small checkpoint, and one of 1 GB with 10,000 tensors (sparse on disk).

Budgets: 0.3 s of wall time for the small one; 2 s and 150 MB for the large one's structure, parent and child together.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.inspection.writer import Pickle, T, adam, save, scaler, schedule, step, strides, weights

SMALL_SECONDS, LARGE_SECONDS, LARGE_MEGABYTES = 0.3, 2.0, 150
PARAMETERS, SIDE = 2500, 182  # 3 × 2,500 matrices of 182 × 182 float32 and 2,500 counters: 10,000 tensors, 1.0 GB
_PROGRAM = """import sys; from amptui.inspection.command import run
sys.exit(run([sys.argv[1]], None, False, lambda answer: None))"""


class _Hollow(T):
    """A tensor whose bytes are a hole in the file."""

    def data(self) -> bytes:
        return b""


def write_large(path: Path) -> int:
    """A checkpoint as torch writes it, its large tensors left as holes; the number of tensors."""
    shape = (SIDE, SIDE)
    state = {
        index: {"step": step(1000), "exp_avg": _Hollow(0, shape), "exp_avg_sq": _Hollow(0, shape)}
        for index in range(PARAMETERS)
    }
    groups = [{"lr": 1e-3, "params": list(range(PARAMETERS))}]
    model = {f"layers.{index}.attention.projection.weight": _Hollow(0, shape) for index in range(PARAMETERS)}
    root = {
        "model": model,
        "optimizer": {"state": state, "param_groups": groups},
        "scaler": scaler(),
        "global_step": 1004,
    }
    assert strides(shape) == (SIDE, 1)
    pickle = Pickle()
    described = pickle.dumps(root)
    members: list[tuple[str, bytes, int]] = [("large/data.pkl", described, len(described))]
    members += [(f"large/data/{key}", item.data(), item.numel * 4) for key, item in enumerate(pickle.storages)]
    _write_sparse_zip(path, members)
    return len(pickle.storages)


def _write_sparse_zip(path: Path, members: list[tuple[str, bytes, int]]) -> None:
    import struct
    import zlib

    central = bytearray()
    with path.open("wb") as file:
        for name, data, size in members:
            offset, encoded = file.tell(), name.encode()
            crc = zlib.crc32(data) if data else 1
            file.write(struct.pack("<4s5H3L2H", b"PK\3\4", 0, 8, 0, 0, 0, 0, 0, 0, len(encoded), 0) + encoded + data)
            file.seek(offset + 30 + len(encoded) + size)
            file.write(struct.pack("<4s3L", b"PK\7\x08", crc, size, size))
            head = (b"PK\1\2", 0, 0, 8, 0, 0, 0, crc, size, size, len(encoded), 0, 0, 0, 0, 0, offset)
            central += struct.pack("<4s6H3L5H2L", *head) + encoded
        start, count = file.tell(), len(members)
        file.write(central + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(central), start, 0))


def measured(path: Path) -> tuple[float, float]:
    """Best wall seconds of three runs of the whole command, and the sum of its two processes' peak megabytes."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(path)], check=False, env={**os.environ, "PYTHONPATH": "."}
        )
        seconds.append(time.perf_counter() - start)
        assert done.returncode in (0, 1), done.returncode
    # The peak of the largest descendant; parent and child hold about the same at the end, so twice that bounds both.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
    return min(seconds), 2 * peak


def main() -> int:
    """Print seconds, megabytes and their share of the budgets; 1 where one is exceeded."""
    with tempfile.TemporaryDirectory() as folder:
        small = save(
            Path(folder) / "small.pt", {"model": weights(), "optimizer": adam(), "scaler": scaler(), "lr": schedule()}
        )
        small_seconds, small_megabytes = measured(small)
        large = Path(folder) / "large.pt"
        tensors = write_large(large)
        large_seconds, large_megabytes = measured(large)
        size = large.stat().st_size / 1e9
    print(f"small checkpoint: {small_seconds:.2f} s of {SMALL_SECONDS} s, at most {small_megabytes:.0f} MB")
    print(
        f"{size:.2f} GB, {tensors:,} tensors: {large_seconds:.2f} s of {LARGE_SECONDS} s, "
        f"at most {large_megabytes:.0f} MB of {LARGE_MEGABYTES} MB"
    )
    kept = small_seconds <= SMALL_SECONDS and large_seconds <= LARGE_SECONDS and large_megabytes <= LARGE_MEGABYTES
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
