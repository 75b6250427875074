"""The terminal shows exactly what the screen holds, although only changed cells were sent."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import unicodedata
from pathlib import Path
from typing import Any

import pyte
import pytest
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from amptui.ui.frugal import frugal, written

PROGRAM = """
import json, math, random, sys
from textual.app import App
from textual.containers import Horizontal
from textual.widgets import Input
from amptui.ui.frugal import FrugalScreen
from amptui.ui.raster.log import Entry
from amptui.ui.raster.plot import Trace
from amptui.ui.raster.table import Table, TableColumn, TableRow
from amptui.ui.series import Series
from amptui.ui.theme import Look, textual_theme
from amptui.ui.widgets.log import LogPane, LogValue
from amptui.ui.widgets.plot import PlotPane, PlotValue
from amptui.ui.widgets.table import TablePane

look = Look()
draw = random.Random(int(sys.argv[2]))
COLUMNS = (TableColumn(title="layer"), TableColumn(title="norm", width=8, align="right"))

class Screen(App):
    CSS = "#row { height: 8; } Input { height: 3; }"

    def get_default_screen(self):
        return FrugalScreen(id="_default")

    def compose(self):
        with Horizontal(id="row"):
            yield PlotPane(look)
            yield TablePane(look)
        yield Input("filter", select_on_focus=False)
        yield LogPane(look)

    def on_mount(self):
        self.register_theme(textual_theme("dark"))
        self.theme = "amptui-dark"
        self.series, self.entries, self.count = Series(), [], 0
        self.set_interval(0.02, self.change)

    def change(self):
        self.count += 1
        if self.count == 60:
            return self.report()
        if self.count > 60:
            return
        self.series.append(self.count, draw.choice([draw.random(), draw.random() * 9, math.inf]))
        words = draw.choice(["plain", "漢字 wide", "e\\u0301 accent", "long " * 40])
        self.entries.append(Entry(words, draw.choice(["text", "warn"])))
        names = [draw.choice(["conv", "漢字", "norm"]) + str(n) for n in range(5)]
        rows = [TableRow(id=str(n), values=(name, draw.random())) for n, name in enumerate(names)]
        self.query_one(PlotPane).show(PlotValue(title="loss", traces=[Trace(source=self.series)], last=60))
        self.query_one(TablePane).show(Table(columns=COLUMNS, rows=rows))
        self.query_one(LogPane).show(LogValue(title="log", entries=self.entries, total=self.count))
        self.query_one(Input).value = str(draw.random())
        if self.count % 7 == 0:
            self.screen.focus_next()

    def report(self):
        lines = []
        for strip in self.screen._compositor.render_strips():
            cells = []
            for text, style, _ in strip:
                colour = style.color.get_truecolor().hex if style and style.color else None
                cells.extend([character, colour] for character in text)
            lines.append(cells)
        with open(sys.argv[1], "w") as file:
            json.dump(lines, file)
        self.set_timer(0.3, self.exit)

Screen().run()
"""

#: Sequences that the terminal in the tests does not know: kitty keys and mode questions.
UNKNOWN = re.compile(rb"\x1b\[[<>=?][0-9;]*[u$p]*[up]")


def played(folder: Path, seed: int) -> tuple[bytes, list[list[list[str | None]]]]:
    """What the program wrote up to its report, and what it says its screen holds."""
    program, report = folder / "program.py", folder / "report"
    program.write_text(PROGRAM)
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environ = {**os.environ, "TERM": "xterm-256color", "TEXTUAL_COLOR_SYSTEM": "truecolor"}
    process = subprocess.Popen(
        [sys.executable, str(program), str(report), str(seed)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environ,
    )
    output = b""
    while process.poll() is None:
        if select.select([master], [], [], 0.1)[0]:
            output += os.read(master, 1 << 16)
    os.close(master)
    os.close(slave)
    end = output.rfind(b"\x1b[?1049l")
    return output[: end if end >= 0 else None], json.loads(report.read_text())


def shown(output: bytes) -> pyte.Screen:
    screen = pyte.Screen(80, 24)
    stream = pyte.ByteStream(screen)
    stream.feed(UNKNOWN.sub(b"", output))
    return screen


@pytest.mark.parametrize("seed", range(3))
def test_the_terminal_shows_what_the_screen_holds(tmp_path: Path, seed: int) -> None:
    output, lines = played(tmp_path, seed)
    screen = shown(output)
    for y, line in enumerate(lines):
        expected = unicodedata.normalize("NFC", "".join(character or "" for character, _ in line))
        assert screen.display[y].rstrip() == expected.rstrip(), y
    colours: list[tuple[Any, Any]] = []
    for y, line in enumerate(lines):
        if not all(cell_len(character or "") == 1 for character, _ in line):
            continue  # a wide character takes two of the terminal's cells
        colours.extend(
            (screen.buffer[y][x].fg, (colour or "#default")[1:]) for x, (text, colour) in enumerate(line) if text != " "
        )
    assert len(colours) > 100
    assert all(found == wanted for found, wanted in colours)


@pytest.mark.skipif(not frugal, reason="this version of the framework is drawn by itself")
def test_one_changed_number_at_the_right_of_a_row_costs_its_own_cells_alone() -> None:
    from textual._compositor import ChopsUpdate

    from amptui.ui.frugal import _FrugalUpdate

    grey = Style(color="color(252)", bgcolor="color(233)")
    row = Strip([Segment("encoder.layers.11.attention.weight".ljust(70), grey), Segment("      1.26", grey)])
    changed = ([{0: row}], [(0, 76, 80)], [[80]])
    console = Console(color_system="256")
    assert _FrugalUpdate(*changed).render_segments(console) == "\x1b[1;77H\x1b[0;38;5;252;48;5;233m1.26\x1b[0m"
    assert len(ChopsUpdate(*changed).render_segments(console)) > 100


def test_a_colour_is_sent_only_where_it_changes() -> None:
    red, blue = Style(color="color(9)"), Style(color="color(12)")
    strip = Strip([Segment("ab", red), Segment("cd", red), Segment("ef", blue), Segment("gh", None)])
    assert (
        written([(0, 0, 8, strip), (3, 5, 2, Strip([Segment("xy", None)]))], ColorSystem.EIGHT_BIT)
        == "\x1b[1;1H\x1b[0;91mabcd\x1b[0;94mef\x1b[0mgh\x1b[4;6Hxy"
    )
