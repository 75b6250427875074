"""The whole screen on real inspections: what it shows, what the keys do, how values arrive."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from amptui.inspection.reading import inspect_path
from amptui.inspection.result import Inspection
from amptui.ui.inspect.app import InspectApp, InspectStart
from amptui.ui.inspect.contents import Contents
from amptui.ui.inspect.findings_pane import FindingsPane
from amptui.ui.inspect.keys import INSPECT_KEYS, OF_PANES, Now, Page, active
from amptui.ui.inspect.reading import CheckpointReader
from amptui.ui.inspect.tree_pane import TreePane
from amptui.ui.keys import keymap, rebind_own, shown
from amptui.ui.theme import Look
from amptui.ui.widgets.lines import LineWidget
from tests.inspection.writer import T, adam, save, scaler, weights

PAYLOADS = ["\x1b[2J", "\x1b]0;owned\x07", "\x1b]52;c;Zm9v\x07", "\x9b31m", "\u202egnp", "a\rb", "[red]x[/red]"]
Script = Callable[[InspectApp, "Pilot[int]"], Awaitable[None]]


class Known(CheckpointReader):
    """A reader that has read already; `tell` says what else it has found since. No process."""

    def __init__(self, inspection: Inspection | None, path: str = "x.pt") -> None:
        super().__init__(inspection.path if inspection is not None else path)
        self.asked = 0
        if inspection is not None:
            self.tell(inspection=inspection)

    def start(self, *, values: bool = False) -> None:
        self.asked += values

    def tell(self, **known: object) -> None:
        if isinstance(inspection := known.get("inspection"), Inspection):
            known["contents"] = Contents.of(inspection)
        self.reading = replace(self.reading, **known)  # type: ignore[arg-type]
        self._changed()


def on_screen(
    *readers: CheckpointReader,
    script: Script,
    size: tuple[int, int] = (80, 24),
    copies: Path | None = None,
    **look: object,
) -> None:
    async def run() -> None:
        start = InspectStart(readers=readers, copies=copies, look=Look(**look))  # type: ignore[arg-type]
        app = InspectApp(start)
        async with app.run_test(size=size, notifications=True) as pilot:
            await seen(app, pilot, "quit")
            await script(app, pilot)

    asyncio.run(run())


def text_of(app: InspectApp) -> str:
    lines = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines).replace("\u00a0", " ")


async def seen(app: InspectApp, pilot: Pilot[int], *texts: str, without: str | None = None) -> str:
    for _ in range(200):
        now = text_of(app)
        if all(text in now for text in texts) and (without is None or without not in now):
            return now
        await pilot.pause(0.02)
    raise AssertionError(f"waited for {texts}, without {without!r}; the screen:\n{text_of(app)}")


@pytest.fixture
def poisoned(tmp_path: Path) -> Inspection:
    model = {"conv.weight": T(), "bn.running_mean": T([math.nan, 1.0]), "bn.running_var": T([1.0, math.inf])}
    root = {"model": model, "optimizer": adam(1000), "scaler": scaler(512.0, tracker=37), "step": 1003}
    return inspect_path(str(save(tmp_path / "poisoned.pt", root)))


@pytest.fixture
def clean(tmp_path: Path) -> Inspection:
    root = {"model": weights(), "optimizer": adam(500), "scaler": scaler(65536.0, tracker=37), "step": 500}
    return inspect_path(str(save(tmp_path / "clean.pt", root)))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 16)])
def test_findings_stand_first_then_the_card_then_the_contents(poisoned: Inspection, size: tuple[int, int]) -> None:
    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        text = await seen(app, pilot, "poisoned.pt", "✗ 1 fault", "512 = 2^9", "contents")
        assert text.index("findings") < text.index("loss scaler")
        assert text.index("the model's weights or buffers") < text.index("512 = 2^9")
        assert isinstance(app.screen.focused, FindingsPane)
        assert size < (80, 24) or "✗ rng" in text

    on_screen(Known(poisoned), script=script, size=size)


def test_on_a_large_screen_more_is_told(poisoned: Inspection) -> None:
    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        await seen(app, pilot, "×2 / ×0.5", "✓ scaler scaler", "param_groups", "─ entry", "exp_avg_sq")

    on_screen(Known(poisoned), script=script, size=(120, 40))


def test_enter_on_a_finding_goes_to_its_place(poisoned: Inspection) -> None:
    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        await pilot.press("enter")
        await seen(app, pilot, "model.bn.running_mean  float32 [2] · parameters · 1 of 2 not finite")
        assert isinstance(app.screen.focused, TreePane)

    on_screen(Known(poisoned), script=script)


def test_n_goes_from_one_tensor_that_is_not_finite_to_the_next(poisoned: Inspection) -> None:
    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        for path in ("model.bn.running_mean", "model.bn.running_var", "model.bn.running_mean"):
            await pilot.press("n")
            await seen(app, pilot, f" {path}  float32")

    on_screen(Known(poisoned), script=script)


def test_branches_open_and_close_by_the_keys(poisoned: Inspection) -> None:
    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        pane = app.screen.query_one(TreePane)
        pane.focus()
        await pilot.press("minus", "g")
        await seen(app, pilot, "+ model", "+ scaler", without="- model")
        await pilot.press("l", "l")
        assert pane.entry is not None
        assert pane.entry.path == "model.conv.weight"
        await pilot.press("h")
        assert pane.entry.path == "model"
        await pilot.press("space")
        await seen(app, pilot, "+ model")
        await pilot.press("plus")
        await seen(app, pilot, "- model")
        await pilot.press("G")
        await seen(app, pilot, " step  1003")

    on_screen(Known(poisoned), script=script)


def test_a_search_shows_what_it_finds_while_one_types_and_esc_ends_it(poisoned: Inspection) -> None:
    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        await pilot.press("slash", *"avg_sq")
        await seen(app, pilot, "/avg_sq", "2 found", without="running_mean  ")
        await pilot.press("enter")
        await seen(app, pilot, "esc back")
        assert isinstance(app.screen.focused, TreePane)
        await pilot.press("escape")
        await seen(app, pilot, "running_mean", without="/avg_sq")
        await pilot.press("slash", "x", "y", "z")
        await seen(app, pilot, "no path has “xyz”")
        await pilot.press("escape")
        await seen(app, pilot, "running_mean", without="xyz")

    on_screen(Known(poisoned), script=script)


def test_a_pane_can_have_the_page_to_itself_and_gives_it_back(poisoned: Inspection) -> None:
    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        before = await seen(app, pilot, "contents", "5 more below")  # laid out to the end
        await pilot.press("z")
        await seen(app, pilot, "findings", "✗ 1 fault", "esc back", without="loss scaler")
        await pilot.press("n")
        await seen(app, pilot, "loss scaler", "running_mean")
        await pilot.press("z")
        await seen(app, pilot, "contents", without="findings")
        await pilot.press("escape")
        after = await seen(app, pilot, "contents", "5 more below")
        assert after.splitlines()[3:10] == [line.replace("▸", " ") for line in before.splitlines()[3:10]]

    on_screen(Known(poisoned), script=script)


def test_values_arrive_with_progress_and_the_place_is_kept(poisoned: Inspection) -> None:
    unread = replace(
        poisoned,
        values_read=False,
        nonfinite=(),
        findings=(),
        tensors=tuple(replace(tensor, nonfinite=None, zero=None) for tensor in poisoned.tensors),
    )
    reader = Known(None, path=poisoned.path)
    reader.tell(busy=True)

    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        await seen(app, pilot, "reading the structure")
        reader.tell(inspection=unread)
        await seen(app, pilot, "nothing is wrong with what was read", "being read", "512 = 2^9")
        reader.tell(done=250, total=1000)
        await seen(app, pilot, "values 250 B of 1.0 kB ━━━┄┄┄┄┄┄┄┄┄  25 %")
        await pilot.press("slash", *"running_var", "enter", "escape")
        await seen(app, pilot, "model.bn.running_var  float32 [2] · parameters · values not read")
        reader.tell(inspection=poisoned, busy=False)
        await seen(
            app, pilot, "✗ 1 fault", "model.bn.running_var  float32 [2] · parameters · 1 of 2 not finite", without="%"
        )

    on_screen(reader, script=script)


def test_v_reads_values_where_they_were_not_and_only_there(poisoned: Inspection, clean: Inspection) -> None:
    unread, read = Known(replace(poisoned, values_read=False)), Known(clean)

    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        await seen(app, pilot, "v read values")
        await pilot.press("2")
        await seen(app, pilot, "500", without="v read values")
        await pilot.press("v", "3", "v")
        assert (unread.asked, read.asked) == (1, 0)

    on_screen(unread, read, script=script)


def test_of_two_it_tells_first_what_happened_between_them(clean: Inspection, poisoned: Inspection) -> None:
    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        text = await seen(app, pilot, "3 COMPARE", "1 clean.pt ✓", "2 poisoned.pt ✗", "what happened between")
        assert "✗ 2 tensors are no longer finite: model.bn.running_mean" in text
        assert "· scale 65536 → 512: at least 7 more overflows than growths" in text
        row = next(line for line in text.splitlines() if "≠ loss scale" in line)
        assert row.split() == ["≠", "loss", "scale", "65536", "=", "2^16", "512", "=", "2^9"]
        await pilot.press("2")
        await seen(app, pilot, "2 values in 2 tensors are not finite")
        await pilot.press("1")
        await seen(app, pilot, "65536 = 2^16")

    on_screen(Known(clean), Known(poisoned), script=script)


def test_two_of_which_one_cannot_be_read(clean: Inspection, tmp_path: Path) -> None:
    (tmp_path / "empty.pt").write_bytes(b"")
    empty = inspect_path(str(tmp_path / "empty.pt"))

    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        await seen(app, pilot, "cannot be compared: one of them could not be read")
        await pilot.press("2")
        await seen(app, pilot, "✗ not readable", "the file is empty")
        assert app.answer is not None
        assert app.answer.exit_code == 1

    on_screen(Known(clean), Known(empty), script=script)
    assert empty.has_fault


def test_copies_are_the_finding_the_entry_the_page(poisoned: Inspection, tmp_path: Path) -> None:
    copied = tmp_path / "copies" / "copied.txt"

    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        await pilot.press("y")
        await seen(app, pilot, "✓ copied to")
        assert copied.read_text().startswith("the model's weights or buffers: 2 values in 2 tensors are not finite\n")
        await pilot.press("tab", "y")
        await pilot.pause(0.1)
        assert "✓ scaler" in copied.read_text()
        await pilot.press("n", "y")
        await pilot.pause(0.1)
        assert copied.read_text() == "model.bn.running_mean  float32 [2]\n"
        await pilot.press("Y")
        await pilot.pause(0.1)
        assert "exact resume     ✓ model" in copied.read_text()

    on_screen(Known(poisoned), script=script, copies=tmp_path / "copies")


def test_help_lists_every_key_and_q_leaves_it_first(poisoned: Inspection) -> None:
    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        await pilot.press("question_mark")
        text = await seen(app, pilot, "These do something now", "esc back")
        for key in INSPECT_KEYS:
            assert key.help in text
        await pilot.press("q")
        await seen(app, pilot, "loss scaler", without="These do something now")
        await pilot.press("q")
        await pilot.pause(0.1)
        assert app.return_value == 0

    on_screen(Known(poisoned), script=script, size=(130, 60))


def test_esc_never_leaves_the_program(poisoned: Inspection) -> None:
    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        await pilot.press("escape", "escape", "escape")
        await pilot.pause(0.1)
        assert app.return_value is None
        await seen(app, pilot, "loss scaler")

    on_screen(Known(poisoned), script=script)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_string_of_a_file_is_shown_raw(payload: str, tmp_path: Path) -> None:
    root = {
        f"model{payload}": {f"layer{payload}.weight": T([math.nan, 1.0])},
        f"scaler{payload}": scaler(0.0),
        "pytorch-lightning_version": f"2{payload}",
        "state_dict": weights(),
        f"note{payload}": payload,
    }
    one = inspect_path(str(save(tmp_path / "x.pt", root)))
    other = inspect_path(str(save(tmp_path / "y.pt", {**root, f"more{payload}": T()})))

    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        for keys in ((), ("1",), ("n",), ("z",), ("z", "2", "tab", "tab", "plus", "G"), ("slash", "n", "o")):
            await pilot.press(*keys)
            await pilot.pause(0.05)
            text = text_of(app)
            assert not [character for character in text if character != "\n" and not character.isprintable()]
            assert "\u202e" not in text

    on_screen(Known(one), Known(other), script=script)


def test_in_ascii_nothing_else_is_drawn(clean: Inspection, poisoned: Inspection) -> None:
    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        for key in ("1", "2", "3", "question_mark"):
            await pilot.press(key)
            await pilot.pause(0.1)
            assert text_of(app).isascii()

    on_screen(Known(clean), Known(poisoned), script=script, theme="plain", ascii=True)


def test_below_the_least_size_one_line_says_so(clean: Inspection) -> None:
    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        await pilot.resize_terminal(50, 12)
        await seen(app, pilot, "needs 60×16, have 50×12")
        await pilot.resize_terminal(120, 40)
        await seen(app, pilot, "─ entry", without="needs 60×16")

    on_screen(Known(clean), script=script)


def test_no_lines_are_lost_or_doubled_at_any_size(poisoned: Inspection) -> None:
    async def script(app: InspectApp, pilot: Pilot[int]) -> None:
        for size in ((60, 16), (80, 24), (109, 30), (110, 30), (120, 40), (200, 60), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.1)
            panes = [pane for pane in app.screen.query(LineWidget) if pane.display and pane.size.area]
            cells = [cell for pane in panes for cell in _cells(pane)]
            assert len(cells) == len(set(cells)), size
            # The column between the two halves is nobody's.
            assert len(cells) == size[0] * size[1] - (size[1] - 3 if size[0] >= 110 else 0), size

    on_screen(Known(poisoned), script=script)


def _cells(pane: LineWidget) -> list[tuple[int, int]]:
    region = pane.region
    return [(x, y) for y in range(region.y, region.bottom) for x in range(region.x, region.right)]


# Keys.


def test_ids_are_unique_no_key_is_bound_twice_and_each_has_an_action() -> None:
    assert len({key.id for key in INSPECT_KEYS}) == len(INSPECT_KEYS)
    names = [name for key in INSPECT_KEYS for name in key.keys]
    assert len(set(names)) == len(names)
    for key in INSPECT_KEYS:
        owner = TreePane if key.group in OF_PANES else InspectApp
        assert callable(getattr(owner, f"action_{key.id}")), key.id


def test_the_promised_keys_do_what_is_promised() -> None:
    owners = {shown(name): key.id for key in INSPECT_KEYS for name in key.keys}
    promised = {"/": "filter", "y": "copy", "?": "help", "q": "quit", "esc": "back", "z": "zoom", "tab": "next_pane"}
    assert {name: owners[name] for name in promised} == promised


@pytest.mark.parametrize("page", ["first", "second", "compare", "help"])
def test_the_footer_never_offers_an_unknown_key(page: Page) -> None:
    known = {key.id for key in INSPECT_KEYS}
    now = Now(page=page, two=True, unread=True, bad=True, focus="contents", inside=True)
    assert active(now) <= known
    assert "quit" in active(now)


def test_keys_of_the_configuration_count_here_too_and_those_of_the_other_screen_do_not() -> None:
    keys = rebind_own(INSPECT_KEYS, {"copy": "c", "phase": "P"})
    assert keymap(keys, INSPECT_KEYS) == {"copy": "c"}
    with pytest.raises(ValueError, match="bound to both"):
        rebind_own(INSPECT_KEYS, {"copy": "n"})
