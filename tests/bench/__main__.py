"""`python -m tests.bench [NAME …]`: runs the benchmarks (all, or those whose name contains a NAME), each by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(wanted: list[str]) -> int:
    failed = 0
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        name = path.stem.removeprefix("bench_")
        if wanted and not any(word in name for word in wanted):
            continue
        print(f"== {name}", flush=True)
        failed |= subprocess.run([sys.executable, "-m", f"tests.bench.{path.stem}"], check=False).returncode
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
