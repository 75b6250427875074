"""How soon `amptui --version` and `amptui --help` answer: at most 0.15 s, the interpreter's own start included.

Each command and a bare `python -c pass` take turns; the least of the times is what the machine allows, the median what
it gave. The exit code is 1 if the least is beyond the budget.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

BUDGET_S = 0.15
ROUNDS = 15
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "amptui --version": ["-m", "amptui", "--version"],
    "amptui --help": ["-m", "amptui", "--help"],
}


def seconds(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Print the least and the median of each, and the ratio to the bare interpreter; 1 where one is beyond."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            times[name].append(seconds(arguments))
    bare = times["python -c pass"]
    for name, taken in times.items():
        ratio = statistics.median(ours / its for ours, its in zip(taken, bare, strict=True))
        said = f"{min(taken):6.3f} s of {BUDGET_S} s   median {statistics.median(taken):6.3f} s"
        print(f"{name:18} {said}   {ratio:5.2f} × the bare interpreter")
    return int(max(min(taken) for taken in times.values()) > BUDGET_S)


if __name__ == "__main__":
    sys.exit(main())
