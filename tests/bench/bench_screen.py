"""What the screen costs: first paint, key to byte while idle and while an engine runs flat out, bytes, memory.

The real program runs on a terminal of its own with a real engine. Each figure stands beside its budget and, where a
machine's speed is in it, beside the framework's own floor measured in the same run.
"""

from __future__ import annotations

import os
import pty
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.ui.on_terminal import OnTerminal

PROJECT = """
import time, torch
from torch import nn
from amptui import Case, Policy, Project, Scaler, Update
torch.set_num_threads(1)

def project(pause=0.0):
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(20)])
    def loss(model, batch):
        if pause and torch.is_autocast_enabled("cpu"):
            time.sleep(pause)
        return model(batch).square().mean()
    return Project(model=model, updates=[Update(optimizer=torch.optim.SGD(model.parameters(), lr=1e-3), loss=loss)],
                   batches=[torch.randn(4, 8)] * 4000, cases=[Case(id="one", inputs=torch.randn(2, 8))],
                   policy=Policy(dtype="float16", scaler=Scaler(init_scale=64.0)))

def steady():
    return project(0.0125)
"""
FLOOR = """
from textual.app import App
from textual.widgets import Static
class Floor(App):
    def compose(self):
        yield Static("1 PROJECT")
Floor().run()
"""
KEYS = 60


def first_paint(arguments: Sequence[str], home: Path) -> float:
    """Seconds from the start of the process to the first characters of its screen."""
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", "AMPTUI_HOME": str(home), "LANG": "C.UTF-8"}
    began = time.perf_counter()
    process = subprocess.Popen(arguments, stdin=slave, stdout=slave, stderr=slave, env=environ, start_new_session=True)
    os.close(slave)
    written = b""
    while b"PROJECT" not in written and time.perf_counter() - began < 30:
        if select.select([master], [], [], 0.05)[0]:
            written += os.read(master, 1 << 16)
    took = time.perf_counter() - began
    process.kill()
    process.wait()
    os.close(master)
    return took


def key_latencies(program: OnTerminal, keys: Sequence[str]) -> tuple[list[float], list[int]]:
    """Milliseconds from each key to the first byte that follows it, and the bytes that it caused."""
    latencies, sizes = [], []
    program.child.delaybeforesend = None  # no pause of pexpect's own before a key
    for key in keys:
        program.read(0.15)
        began = time.perf_counter()
        program.press(key)
        while not select.select([program.child.child_fd], [], [], 1.0)[0]:
            if time.perf_counter() - began > 5:
                break
        latencies.append((time.perf_counter() - began) * 1e3)
        sizes.append(len(program.read(0.1)))
    return latencies, sizes


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def to_the_trial(program: OnTerminal) -> None:
    for text in ("c runs the FP32", "c shows the criteria", "c locks them"):
        program.wait(text, timeout=120)
        program.press("c")
    program.wait("s goes phase by phase", timeout=120)


def leave_running(program: OnTerminal) -> None:
    """Ends the trial and the engine with it, so that it does not run on beside what is measured next."""
    program.press("C")
    program.wait("INCONCLUSIVE", timeout=60)
    leave(program)


def leave(program: OnTerminal) -> None:
    program.press("q")
    program.wait("end the engine")
    program.press("e")
    program.end()


def paints(spec: str, home: Path) -> None:
    programs = ([sys.executable, "-c", FLOOR], [sys.executable, "-m", "amptui", "run", spec])
    for program in programs:  # compiled, and in the disk's cache
        first_paint(program, home)
    floor, ours = zip(*([first_paint(program, home) for program in programs] for _ in range(7)), strict=True)
    print(
        f"first paint: {min(ours):.2f} s of 0.5 (median {statistics.median(ours):.2f}); ratio to the framework's own "
        f"{min(ours) / min(floor):.2f} ({min(floor):.2f} s)"
    )


def idle_and_keys(spec: str, home: Path) -> None:
    with OnTerminal("run", f"{spec}", "--iterations", "20", home=home, width=120, height=40) as program:
        to_the_trial(program)
        program.press("a")
        program.wait("ACCEPT", timeout=60)
        program.read(1.0)
        still = len(program.read(3.0))
        latencies, _ = key_latencies(program, ["\t"] * KEYS)
        stages, sizes = key_latencies(program, ["4", "5", "2", "3"] * 6)
        print(
            f"idle: {still} bytes in 3 s of 0; key to byte {statistics.median(latencies):.1f} ms, 99th percentile "
            f"{percentile(latencies, 0.99):.1f} of 15; stage change {statistics.median(stages[8:]):.0f} ms of 60, "
            f"{max(sizes[8:]) / 1000:.1f} kB of 20"
        )
        leave(program)


def flat_out(spec: str, home: Path) -> None:
    with OnTerminal("run", spec, "--iterations", "4000", home=home, width=120, height=40) as program:
        to_the_trial(program)
        program.press("a")
        program.wait("running", "stretch", timeout=60)
        latencies, _ = key_latencies(program, ["\t"] * KEYS)
        running = "running" in program.text
        leave_running(program)
        print(
            f"flat out{'' if running else ' (ended early)'}: key to first byte "
            f"{statistics.median(latencies):.1f} ms, 99th percentile {percentile(latencies, 0.99):.1f} of 50 "
            "(a paint may be the first byte)"
        )


def steady(spec: str, home: Path) -> None:
    seconds = 8.0
    with OnTerminal("run", spec, "--iterations", "1500", home=home, width=120, height=40) as program:
        to_the_trial(program)
        program.press("a")
        program.wait("running", "stretch", timeout=60)
        program.read(1.0)
        pid = program.child.pid
        before, first = processor_seconds(pid), step_of(program.text)
        size = len(program.read(seconds))
        used, steps = processor_seconds(pid) - before, step_of(program.text) - first
        memory = resident_mb(pid)
        leave_running(program)
        print(
            f"running at {steps / seconds:.0f} steps a second, 120×40: {size / seconds / 1000:.1f} kB a second of 12; "
            f"{used / seconds:.1%} of a processor of 10 % at 50 steps a second; {memory:.0f} MB"
        )


def step_of(text: str) -> int:
    part = next((line for line in text.split("\n") if "stretch" in line), "stretch 0/")
    return int(part.rpartition("stretch")[2].split("/")[0].replace(",", "").strip() or 0)


def million() -> None:
    """Memory and time of the screen's own state after a million iterations of one update with 20 layers."""
    from amptui.protocol.codec import Floats
    from amptui.ui.app import AmptuiApp  # noqa: F401 - the memory that the program has without any event
    from amptui.ui.session_view import SessionView
    from tests.report.stages import iteration, locked, opened, trial_started

    view = SessionView()
    for event in (*opened(), *locked(), *trial_started()):
        view.take(event)
    one = iteration(0)
    update = replace(one.record.updates[0], norms=Floats.of([0.1] * 20))
    before, began = resident_mb(os.getpid()), time.perf_counter()
    for step in range(1_000_000):
        record = replace(one.record, step=step, updates=(replace(update, step=step),))
        view.take(replace(one, record=record))
    took = time.perf_counter() - began
    print(
        f"a million iterations: {resident_mb(os.getpid()):.0f} MB of 90, {before:.0f} MB before; "
        f"{took:.0f} µs an event taken in"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tiny.py").write_text(PROJECT)
        spec = f"{folder / 'tiny.py'}:project"
        paints(spec, folder / "home")
        idle_and_keys(spec, folder / "home")
        flat_out(spec, folder / "home")
        steady(f"{folder / 'tiny.py'}:steady", folder / "home")
    million()


if __name__ == "__main__":
    main()
