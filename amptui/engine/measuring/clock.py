"""Time and peak memory of a piece of work, on the device where it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

ClockName = Literal["CUDA events", "synchronised clock"]
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
#: What `/proc/self/clear_refs` takes to reset the peak of resident memory (Linux, proc(5)).
_RESET_PEAK = "5"


def clock_name(device: torch.device) -> ClockName:
    return "CUDA events" if device.type == "cuda" else "synchronised clock"


def seconds_of(work: Callable[[], None], device: torch.device) -> float:
    """Seconds from the first to the last kernel of `work` on CUDA; elsewhere between two synchronised readings.

    Nothing is read from the device before `work` has been handed over whole.
    """
    if device.type == "cuda":
        start: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(device)
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000.0
    synchronise(device)
    started = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - started


def synchronise(device: torch.device) -> None:
    """Waits until an accelerator has done all that it was given; a CPU is never behind."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


class PeakMemory:
    """Peak bytes between `begin` and `end`: allocated on a CUDA device, else resident in this process (Linux).

    Resident memory holds all of the process, also what an allocator keeps for later.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def kind(self) -> Literal["device", "resident"]:
        return "device" if self._device.type == "cuda" else "resident"

    def begin(self) -> bool:
        """Forgets earlier peaks; False where the system offers no way."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return True
        try:
            _CLEAR.write_text(_RESET_PEAK, encoding="ascii")
        except OSError:
            return False
        return self.end() > 0

    def end(self) -> int:
        """The peak since `begin`; 0 where it is unknown."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self._device))
        try:
            for line in _STATUS.read_text(encoding="ascii").splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        except (OSError, ValueError):
            pass
        return 0
