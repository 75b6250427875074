"""How much memory a run holds, cheaply enough to be read every iteration."""

from __future__ import annotations

import os
import time

import torch

_PAGE = os.sysconf("SC_PAGE_SIZE")


class MemoryGauge:
    """Bytes allocated on a CUDA (or ROCm) device; elsewhere the resident bytes of this process; 0 where unknown.

    Resident memory is asked of the kernel at most every `interval` seconds.
    """

    def __init__(self, device: torch.device, interval: float = 0.1) -> None:
        self._device, self._interval = device, interval
        self._asked, self._resident = -interval, 0

    def read(self) -> int:
        if self._device.type == "cuda":
            return int(torch.cuda.memory_allocated(self._device))
        now = time.monotonic()
        if now - self._asked >= self._interval:
            self._asked, self._resident = now, _resident()
        return self._resident


def _resident() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - a third of pathlib's time
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
