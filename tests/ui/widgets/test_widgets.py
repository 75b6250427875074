"""Panes repaint the cells that changed and no others, survive any size, and keep the user's place."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

import pytest
from textual.app import App, ComposeResult
from textual.events import MouseScrollDown, MouseScrollUp
from textual.geometry import Region
from textual.pilot import Pilot

from amptui.text import safe_text
from amptui.ui.keys import KEYS, keymap, rebind
from amptui.ui.raster.columns import Values
from amptui.ui.raster.log import Entry
from amptui.ui.raster.plot import Trace
from amptui.ui.raster.prose import paragraph
from amptui.ui.raster.table import Table, TableColumn, TableRow, TableView
from amptui.ui.series import Outcomes, Series
from amptui.ui.theme import Look, textual_theme
from amptui.ui.widgets.bar import Bar
from amptui.ui.widgets.lines import LineWidget
from amptui.ui.widgets.log import LogPane, LogValue
from amptui.ui.widgets.plot import PlotPane, PlotValue
from amptui.ui.widgets.table import TablePane
from amptui.ui.widgets.text import TextPane, TextValue
from amptui.ui.widgets.timeline import TimelinePane, TimelineValue
from amptui.ui.widgets.told import ToldPane

PAYLOADS = ["\x1b[2J", "\x1b]0;owned\x07", "\x1b]52;c;Zm9v\x07", "\x9b31m", "\u202egnp", "a\rb", "[red]x[/red]"]
COLUMNS = (TableColumn(title="layer", cut="start"), TableColumn(title="norm", width=8, align="right"))


class Host(App[None]):
    """One pane on the whole screen."""

    def __init__(self, pane: LineWidget, look: Look) -> None:
        super().__init__()
        self.pane = pane
        self.register_theme(textual_theme(look.theme))
        self.theme = textual_theme(look.theme).name

    def compose(self) -> ComposeResult:
        yield self.pane


def run(pane: LineWidget, script: Callable[[Pilot[None]], Awaitable[None]], size: tuple[int, int] = (60, 12)) -> None:
    async def session() -> None:
        async with Host(pane, pane.look).run_test(size=size) as pilot:
            await pilot.pause()
            await script(pilot)

    asyncio.run(session())


def screen(pane: LineWidget) -> list[str]:
    return [pane.render_line(row).text for row in range(pane.size.height)]


class Repaints:
    """The regions that a pane asks to have repainted while it is watched; None stands for the whole pane."""

    def __init__(self, pane: LineWidget, monkeypatch: pytest.MonkeyPatch) -> None:
        self.regions: list[Region | None] = []
        original = pane.refresh

        def refresh(*regions: Region, **options: bool) -> LineWidget:
            self.regions.extend(regions or [None])
            return original(*regions, **options)

        monkeypatch.setattr(pane, "refresh", refresh)

    @property
    def cells(self) -> int:
        assert None not in self.regions
        return sum(region.area for region in self.regions if region)


def growing(count: int) -> Series:
    series = Series()
    for step in range(count):
        series.append(step, math.exp(-step / 20))
    return series


def test_an_unchanged_value_repaints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pane = PlotPane(Look())
    value = PlotValue(title="loss", traces=[Trace(source=growing(50))], last=99)

    async def script(pilot: Pilot[None]) -> None:
        pane.show(value)
        await pilot.pause()
        repaints = Repaints(pane, monkeypatch)
        pane.show(value)
        assert repaints.regions == []

    run(pane, script)


def test_only_rows_that_changed_are_made_again() -> None:
    pane = TextPane(Look())

    async def script(pilot: Pilot[None]) -> None:
        pane.show(TextValue(paragraphs=[paragraph("one"), paragraph("two")]))
        await pilot.pause()
        before = pane.render_lines(Region(0, 0, *pane.size))
        pane.show(TextValue(paragraphs=[paragraph("one"), paragraph("other")]))
        after = pane.render_lines(Region(0, 0, *pane.size))
        assert [row for row in range(pane.size.height) if before[row] is not after[row]] == [1]
        assert after[1].text.rstrip() == "other"
        assert [strip.text for strip in pane.render_lines(Region(1, 1, 3, 1))] == ["the"]
        assert screen(pane)[pane.size.height - 1 :] == [" " * pane.size.width]

    run(pane, script)


def test_the_focus_shows_in_the_row_that_tells_it() -> None:
    pane = TextPane(Look())

    async def script(pilot: Pilot[None]) -> None:
        pane.show(TextValue(title="why", paragraphs=[paragraph("one")]))
        pane.screen.set_focus(None)
        await pilot.pause()
        assert screen(pane)[0].startswith("─ why")
        pane.screen.set_focus(pane)
        await pilot.pause()
        assert screen(pane)[0].startswith("━ why")

    run(pane, script)


def test_one_more_step_repaints_a_few_cells_of_a_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    pane = PlotPane(Look())
    series = growing(50)
    value = PlotValue(title="loss", traces=[Trace(source=series)], last=99)

    async def script(pilot: Pilot[None]) -> None:
        pane.show(value)
        await pilot.pause()
        repaints = Repaints(pane, monkeypatch)
        series.append(50, math.exp(-50 / 20))
        pane.show(value)
        assert 1 <= repaints.cells <= 4

    run(pane, script)


def test_one_changed_number_repaints_its_cells_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pane = TablePane(Look())

    def table(norm: float) -> Table:
        rows = [TableRow(id=name, values=(name, norm if name == "b" else 1.5)) for name in "abc"]
        return Table(columns=COLUMNS, rows=rows)

    async def script(pilot: Pilot[None]) -> None:
        pane.show(table(1.25))
        await pilot.pause()
        repaints = Repaints(pane, monkeypatch)
        pane.show(table(1.26))
        assert [region and (region.y, region.width) for region in repaints.regions] == [(2, 1)]

    run(pane, script)


def test_out_of_sight_nothing_is_drawn_and_the_newest_value_appears_when_seen_again() -> None:
    class Counting(Bar):
        drawn = 0

        def draw(self, width: int, height: int):  # type: ignore[no-untyped-def]
            self.drawn += 1
            return super().draw(width, height)

    pane = Counting(Look())

    async def script(pilot: Pilot[None]) -> None:
        pane.show([("old", "text")])
        await pilot.pause()
        pane.display = False
        await pilot.pause()
        before = pane.drawn
        for number in range(20):
            pane.show([(f"new {number}", "text")])
        await pilot.pause()
        assert pane.drawn == before
        pane.display = True
        await pilot.pause()
        assert screen(pane)[0].startswith("new 19")

    run(pane, script)


def full_panes(look: Look, words: str) -> list[LineWidget]:
    plot, table, log, text = PlotPane(look), TablePane(look, title=words), LogPane(look), TextPane(look)
    timeline, bar = TimelinePane(look), Bar(look)
    outcomes = Outcomes()
    outcomes.append(0, "skipped")
    plot.show(
        PlotValue(
            title=words, traces=[Trace(source=Values([1.0, math.nan]))], notes=[(words, "dim")], right=words, last=1
        )
    )
    table.show(Table(columns=COLUMNS, rows=[TableRow(id=words, values=(words, math.inf), role="bad")]))
    log.show(LogValue(title=words, entries=[Entry(words, "bad", words)], total=1))
    text.show(TextValue(title=words, paragraphs=[paragraph(words, lead=words), None]))
    timeline.show(TimelineValue(title=words, outcomes={words: outcomes}, below=[paragraph(words)]))
    bar.show([(words, "text")], [(words, "dim")])
    return [plot, table, log, text, timeline, bar]


@pytest.mark.parametrize("index", range(6))
def test_no_payload_reaches_the_screen_raw_and_no_markup_is_read(index: int) -> None:
    words = " ".join(PAYLOADS)
    pane = full_panes(Look(), words)[index]

    async def script(pilot: Pilot[None]) -> None:
        rows = screen(pane)
        assert all(safe_text(row, limit=9999) == row for row in rows)
        assert any("\\x1b[2J" in row for row in rows)

    run(pane, script, size=(200, 12))


@pytest.mark.parametrize("index", range(6))
def test_every_size_is_survived(index: int) -> None:
    pane = full_panes(Look(), "漢字 words and words")[index]

    async def script(pilot: Pilot[None]) -> None:
        for width, height in ((1, 1), (10, 3), (1, 30), (200, 1), (3, 2), (60, 16), (80, 24)):
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            rows = screen(pane)
            assert len(rows) == pane.size.height

    run(pane, script)


@pytest.mark.parametrize("index", range(6))
def test_in_ascii_every_character_is(index: int) -> None:
    pane = full_panes(Look(ascii=True), "2 × 3 … naïve 漢")[index]

    async def script(pilot: Pilot[None]) -> None:
        assert all(row.isascii() for row in screen(pane))

    run(pane, script)


def layers(count: int = 30) -> Table:
    return Table(
        columns=COLUMNS, rows=[TableRow(id=f"layer.{n}", values=(f"layer.{n}", float(n))) for n in range(count)]
    )


def test_the_cursor_stays_on_its_row_while_the_order_changes_under_it() -> None:
    pane = TablePane(Look(), view=TableView(sort=1))

    async def script(pilot: Pilot[None]) -> None:
        pane.show(layers())
        await pilot.press("j", "j", "down")
        assert pane.selected is not None
        assert pane.selected.id == "layer.27"
        rows = [TableRow(id=row.id, values=(row.id, -float(row.values[1] or 0))) for row in layers().rows]
        pane.show(Table(columns=COLUMNS, rows=rows))
        await pilot.pause()
        assert pane.selected.id == "layer.27"
        assert any(line.startswith("▸ layer.27") for line in screen(pane))

    run(pane, script)


def test_moving_sorting_and_filtering_by_keys_and_mouse() -> None:
    pane = TablePane(Look())

    async def script(pilot: Pilot[None]) -> None:
        pane.show(layers())
        await pilot.press("G")
        assert pane.selected == layers().rows[-1]
        await pilot.press("g")
        assert pane.selected == layers().rows[0]
        await pilot.press("S", "S")
        assert pane.view.sort == 1
        await pilot.press("I")
        assert not pane.view.descending
        pane.filter_by("layer.2")
        await pilot.pause()
        assert pane.copy_text().split("\n")[:2] == ["layer\tnorm", "layer.2\t2"]
        await pilot.click(pane, offset=(5, 3))
        assert pane.selected is not None
        assert pane.selected.id == "layer.21"

    run(pane, script)


def test_widgets_follow_rebound_keys() -> None:
    pane = TablePane(Look())

    async def script(pilot: Pilot[None]) -> None:
        pilot.app.set_keymap(keymap(rebind(KEYS, {"down": "f9"})))
        pane.show(layers())
        await pilot.press("f9", "f9", "j")
        assert pane.selected is not None
        assert pane.selected.id == "layer.1"

    run(pane, script)


def test_a_log_that_is_scrolled_back_stays_where_it_is_until_it_follows_again() -> None:
    pane = LogPane(Look())
    entries = [Entry(f"event {number}") for number in range(40)]

    async def script(pilot: Pilot[None]) -> None:
        pane.show(LogValue(title="events", entries=entries, total=40))
        await pilot.press("k", "k")
        before = screen(pane)[1:]
        pane.show(LogValue(title="events", entries=[*entries, Entry("new")], total=41))
        await pilot.pause()
        assert screen(pane)[1:] == before
        assert "3 newer" in screen(pane)[0]
        await pilot.press("G")
        assert screen(pane)[-1].startswith("new")

    run(pane, script)


def test_text_scrolls_says_how_much_is_left_and_starts_over_with_another_title() -> None:
    pane = TextPane(Look())

    async def script(pilot: Pilot[None]) -> None:
        pane.show(TextValue(title="help", paragraphs=[paragraph(f"line {number}") for number in range(30)]))
        await pilot.pause()
        assert "19 more below ↓" in screen(pane)[0]
        await pilot.press("j", "pagedown")
        assert screen(pane)[1].startswith("line 11")
        pane.show(TextValue(title="other", paragraphs=[paragraph("short")]))
        await pilot.pause()
        assert screen(pane)[1].startswith("short")

    run(pane, script)


def text_of(lines: int) -> LineWidget:
    pane = TextPane(Look())
    pane.show(TextValue(title="t", paragraphs=[paragraph(f"line {number}.") for number in range(lines)]))
    return pane


def told_of(lines: int) -> LineWidget:
    pane = ToldPane(Look())
    pane.show("t", [], lambda page: [page.line(f"line {number}.", indent=0) for number in range(lines)])  # type: ignore[arg-type, return-value]
    return pane


def log_of(lines: int) -> LineWidget:
    pane = LogPane(Look())
    pane.show(LogValue(title="t", entries=[Entry(f"line {number}.") for number in range(lines)], total=lines))
    return pane


@pytest.mark.parametrize("made", [text_of, told_of, log_of])
def test_all_that_scrolls_scrolls_alike_by_keys_and_wheel(made: Callable[[int], LineWidget]) -> None:
    pane = made(50)

    def first() -> int:
        return int(screen(pane)[1].split()[1].rstrip("."))

    async def script(pilot: Pilot[None]) -> None:
        pane.focus()
        await pilot.press("g")
        assert first() == 0
        await pilot.press("j", "pagedown", "k")
        assert first() == 10
        await pilot.press("G")
        assert first() == 39
        await pilot.press("pageup")
        assert first() == 29
        for event, expected in ((MouseScrollDown, 32), (MouseScrollUp, 29)):
            pane.post_message(event(pane, 1, 1, 0, 0, 0, False, False, False))
            await pilot.pause()
            assert first() == expected

    run(pane, script)


def test_a_plot_zooms_pans_and_changes_its_axis() -> None:
    pane = PlotPane(Look())

    async def script(pilot: Pilot[None]) -> None:
        pane.show(PlotValue(title="norm", traces=[Trace(source=growing(100))], last=99))
        await pilot.press("plus", "plus")
        assert "steps 75 to 99" in screen(pane)[0]
        await pilot.press("left")
        assert "steps 63 to 87" in screen(pane)[0]
        await pilot.press("l")
        assert "log, steps 63 to 87" in screen(pane)[0]
        assert any("0.01" in row for row in screen(pane))
        await pilot.press("0", "l", "minus")
        assert "steps" not in screen(pane)[0]
        assert "log" not in screen(pane)[0]

    run(pane, script)


def test_the_focus_is_seen_by_shape() -> None:
    pane = PlotPane(Look())

    async def script(pilot: Pilot[None]) -> None:
        pane.show(PlotValue(title="loss"))
        pane.focus()
        await pilot.pause()
        assert screen(pane)[0].startswith("━ loss ━")
        pilot.app.set_focus(None)
        await pilot.pause()
        assert screen(pane)[0].startswith("─ loss ─")

    run(pane, script)
