"""One thread for torch everywhere: two threads on a busy two-core machine made tiny models 20 times slower."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
