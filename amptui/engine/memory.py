"""How much memory a run holds, cheaply enough to be read every iteration."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_in_use(device: torch.device) -> int:
    """Bytes allocated on a CUDA (or ROCm) device; elsewhere the resident bytes of this process; 0 where unknown."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
