"""What live panes cost: bytes and processor time a paint, idle bytes, and memory after a million steps.

A screen of 120×40 cells with four plots, a timeline, a table of 20 layers and a log runs on a terminal of its own.
Budgets: 12 kB a second at 100 steps a second, 0 bytes while nothing changes, 10 % of a processor at 50 steps a second,
90 MB.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import pty
import random
import resource
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from tempfile import TemporaryDirectory

SECONDS = 5.0
WIDTH, HEIGHT = 120, 40


def screen_app(result: Path, steps_per_second: float, rate: float) -> None:
    """The measured program: `steps_per_second` for a while, then still."""
    from textual.app import App, ComposeResult
    from textual.containers import Horizontal

    from amptui.ui.frugal import FrugalScreen
    from amptui.ui.paint import PaintClock
    from amptui.ui.raster.log import Entry
    from amptui.ui.raster.plot import Trace
    from amptui.ui.raster.table import Table, TableColumn, TableRow, TableView
    from amptui.ui.series import Outcomes, Series
    from amptui.ui.theme import Look, textual_theme
    from amptui.ui.widgets.bar import Bar
    from amptui.ui.widgets.log import LogPane, LogValue
    from amptui.ui.widgets.plot import PlotPane, PlotValue
    from amptui.ui.widgets.table import TablePane
    from amptui.ui.widgets.timeline import TimelinePane, TimelineValue

    look = Look()
    columns = (
        TableColumn(title="layer", cut="start"),
        TableColumn(title="norm", width=8, align="right"),
        TableColumn(title="max", width=8, align="right"),
    )

    class Screen(App[None]):
        CSS = "#top, #middle { height: 10; } LogPane { height: 4; }"

        def __init__(self) -> None:
            super().__init__()
            self.register_theme(textual_theme("dark"))
            self.theme = "amptui-dark"
            self.histories = {name: Series() for name in ("loss", "baseline", "norm", "scale", "memory")}
            self.outcomes = Outcomes()
            self.layers = {f"encoder.layers.{n}.weight": 1.0 for n in range(20)}
            self.step = 0
            self.paints = 0
            self.planned = max(1, int(SECONDS * steps_per_second))
            self.entries: list[Entry] = []
            for step in range(self.planned):
                self.histories["baseline"].append(step, 2 * math.exp(-step / 100) + 0.4)

        def get_default_screen(self) -> FrugalScreen:
            return FrugalScreen(id="_default")

        def compose(self) -> ComposeResult:
            yield Bar(look, id="title")
            with Horizontal(id="top"):
                yield PlotPane(look, id="loss")
                yield PlotPane(look, id="norm")
            with Horizontal(id="middle"):
                yield PlotPane(look, id="scale")
                yield PlotPane(look, id="memory")
            yield TimelinePane(look)
            yield TablePane(look, view=TableView(sort=None))
            yield LogPane(look)

        def on_mount(self) -> None:
            self.clock = PaintClock(self.paint, self.set_timer, rate)
            self.random = random.Random(0)
            self.paint()
            self.set_timer(1.0, self.begin)

        def begin(self) -> None:
            self.started = time.monotonic()
            self.cpu = time.process_time()
            self.paints = 0
            (result / "begin").touch()
            self.timer = self.set_interval(1 / min(steps_per_second, 100), self.tick) if steps_per_second else None
            self.set_timer(SECONDS, self.end)

        def tick(self) -> None:
            wanted = min(self.planned, int((time.monotonic() - self.started) * steps_per_second))
            while self.step < wanted:
                self.feed()
            self.clock.request()

        def feed(self) -> None:
            step = self.step
            bad = step % 97 == 50
            self.histories["loss"].append(step, 2 * math.exp(-step / 100) + 0.4 + self.random.random() / 10)
            self.histories["norm"].append(step, math.inf if bad else 1 + self.random.random())
            self.histories["scale"].append(step, 65536.0 / 2 ** (step // 97))
            self.histories["memory"].append(step, 4e8 + 1e7 * self.random.random())
            self.outcomes.append(step, "skipped" if bad else "applied")
            for name in self.layers:
                self.layers[name] = 1 + self.random.random()
            if bad:
                self.entries.append(Entry(f"update main skipped at {step}", "warn", str(step)))
            self.step += 1

        def paint(self) -> None:
            self.paints += 1
            last = self.planned - 1
            history = self.histories
            both = [Trace(source=history["loss"]), Trace(source=history["baseline"], role="baseline", dashed=True)]
            self.query_one("#title", Bar).show([("digits · fp16", "strong")], [(f"step {self.step}", "text")])
            self.query_one("#loss", PlotPane).show(PlotValue(title="loss", traces=both, last=last))
            for name in ("norm", "scale", "memory"):
                trace = Trace(source=history[name], held=name == "scale")
                scale = "log2" if name == "scale" else "linear"
                self.query_one(f"#{name}", PlotPane).show(PlotValue(title=name, traces=[trace], last=last, scale=scale))
            self.query_one(TimelinePane).show(TimelineValue(outcomes={"main": self.outcomes}))
            rows = [TableRow(id=name, values=(name, norm, norm / 3)) for name, norm in self.layers.items()]
            self.query_one(TablePane).show(Table(columns=columns, rows=rows))
            self.query_one(LogPane).show(LogValue(title="events", entries=self.entries, total=len(self.entries)))

        def end(self) -> None:
            if self.timer:
                self.timer.stop()
            figures = {"paints": self.paints, "cpu": time.process_time() - self.cpu, "steps": self.step}
            (result / "figures").write_text(json.dumps(figures))
            self.set_timer(0.5, (result / "still").touch)
            self.set_timer(2.5, self.leave)

        def leave(self) -> None:
            (result / "leave").touch()
            self.exit()

    Screen().run()


def million(result: Path) -> None:
    """Resident memory with the framework loaded, before and after ten series have seen a million steps."""
    import textual.app  # noqa: F401

    from amptui.ui.raster.columns import columns
    from amptui.ui.series import Series

    series = [Series() for _ in range(10)]
    before = resident()
    for step in range(1_000_000):
        series[0].append(step, 1.0 / (step + 1))
    # One is fed, nine are counted: they hold the same arrays, and a million appends take seconds.
    grown = resident() - before
    start = time.perf_counter()
    for _ in range(20):
        columns(series[0], 0, 999_999, 160)
    drawing = (time.perf_counter() - start) / 20
    short = Series()
    for step in range(1000):
        short.append(step, 1.0)
    start = time.perf_counter()
    for _ in range(20):
        columns(short, 0, 999, 160)
    (result / "figures").write_text(
        json.dumps({"before": before, "grown": grown, "ratio": drawing / ((time.perf_counter() - start) / 20)})
    )


def resident() -> float:
    """Megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def on_a_terminal(mode: str, *arguments: float) -> dict[str, float]:
    """Run this file's `mode` on a terminal; its figures, with the bytes it wrote while active and while still."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        environ = {**os.environ, "TERM": "xterm-256color", "TEXTUAL_COLOR_SYSTEM": "256"}
        process = subprocess.Popen(
            [sys.executable, __file__, mode, name, *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environ,
        )
        counts = {"start": 0.0, "active": 0.0, "between": 0.0, "still": 0.0, "end": 0.0}
        while process.poll() is None:
            if not select.select([master], [], [], 0.1)[0]:
                continue
            data = os.read(master, 1 << 16)
            phase = "start"
            for file, following in zip(("begin", "figures", "still", "leave"), list(counts)[1:], strict=True):
                phase = following if (folder / file).exists() else phase
            counts[phase] += len(data)
        os.close(master)
        os.close(slave)
        return {**counts, **json.loads((folder / "figures").read_text())}


def main() -> None:
    for steps, rate in ((100, 8), (100, 4), (50, 8)):
        figures = on_a_terminal("screen", steps, rate)
        per_second, per_paint = figures["active"] / SECONDS, figures["active"] / figures["paints"]
        print(
            f"{steps} steps/s, at most {rate} paints/s: {per_second / 1000:.1f} kB/s of 12, {per_paint:.0f} bytes a "
            f"paint, {figures['cpu'] / figures['paints'] * 1e3:.1f} ms a paint, {figures['cpu'] / SECONDS:.1%} of a "
            f"processor, {figures['still']:.0f} bytes still; ratio of a paint to the whole screen "
            f"{per_paint / figures['start']:.2f}"
        )
    figures = on_a_terminal("million")
    print(
        f"memory: {figures['before']:.0f} MB with the framework, {figures['grown']:.2f} MB more for each series of a "
        f"million steps; ratio of drawing it to drawing a thousand {figures['ratio']:.1f}"
    )


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    elif sys.argv[1] == "screen":
        screen_app(Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
    else:
        million(Path(sys.argv[2]))
