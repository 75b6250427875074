"""`python -m tests.bench [NAME …]`: runs the benchmarks (all, or those whose name contains a NAME), each by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def main(wanted: list[str]) -> int:
    failed = 0
    # An installed program is compiled: what is measured must not be compiled anew at every start.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        name = path.stem.removeprefix("bench_")
        if wanted and not any(word in name for word in wanted):
            continue
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", f"tests.bench.{path.stem}"]
        failed |= subprocess.run(command, check=False, env=environ).returncode
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
