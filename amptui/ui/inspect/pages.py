"""The pages: one checkpoint, two beside each other, the help."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from amptui.inspection.compare import Change
from amptui.inspection.result import Inspection
from amptui.text import display_width, safe_text
from amptui.ui.inspect.compared import changes_told, side_by_side
from amptui.ui.inspect.contents import Entry
from amptui.ui.inspect.findings_pane import FindingsPane
from amptui.ui.inspect.reading import Reading
from amptui.ui.inspect.tree_pane import TreePane
from amptui.ui.inspect.words import card, entry_facts
from amptui.ui.keys import Key, shown
from amptui.ui.raster.glyphs import Glyphs
from amptui.ui.raster.heading import heading
from amptui.ui.raster.line import Line, Role, blank, clipped, fit, joined, width_of
from amptui.ui.raster.prose import Paragraph, paragraph, prose
from amptui.ui.theme import Look
from amptui.ui.widgets.lines import LineWidget
from amptui.ui.widgets.table import TablePane
from amptui.ui.widgets.text import TextPane, TextValue

#: Lines of the contents at least, with their heading.
_LEAST_CONTENTS = 6
#: Lines of what is told of one entry, where there is room.
_ENTRY = 6


class DrawnPane(LineWidget, can_focus=False):
    """Shows what a function of width and height returns."""

    def __init__(self, look: Look, *, id: str) -> None:  # noqa: A002
        super().__init__(look, id=id)
        self._drawn: Callable[[int, int], Sequence[Line]] = lambda _width, _height: ()

    def show(self, drawn: Callable[[int, int], Sequence[Line]]) -> None:
        self._drawn = drawn
        self.redraw()

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        lines = tuple(self._drawn(width, height))[:height]
        return (*lines, *(blank(width) for _ in range(height - len(lines))))


class CheckpointPage(Container):
    """Findings, card, contents, and what is under the cursor."""

    def __init__(self, look: Look, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.look = look
        self._shown: tuple[Reading, int, int, LineWidget | None] | None = None

    def compose(self) -> ComposeResult:
        with Container(classes="told"):
            yield FindingsPane(self.look, id=f"{self.id}-findings")
            yield TextPane(self.look, id=f"{self.id}-card")
        with Container(classes="held"):
            yield TreePane(self.look, id=f"{self.id}-contents")
            yield DrawnPane(self.look, id=f"{self.id}-entry")

    @property
    def findings_pane(self) -> FindingsPane:
        return self.query_one(FindingsPane)

    @property
    def contents_pane(self) -> TreePane:
        return self.query_one(TreePane)

    def show(self, reading: Reading, width: int, height: int, *, wide: bool, zoomed: LineWidget | None = None) -> None:
        """Everything known by now, on `width` × `height` cells; side by side where that is `wide`."""
        before, self._shown = self._shown, (reading, width, height, zoomed)
        if before is not None and before[1:] == self._shown[1:] and _same(before[0], reading):
            return
        glyphs = self.look.glyphs
        found = reading.inspection
        if found is None:
            self.findings_pane.show((), "reading the structure")
        else:
            self.findings_pane.show(found.findings, "nothing is wrong with what was read")
        paragraphs = card(found, glyphs, roomy=wide, screen_reads=not reading.busy) if found is not None else []
        value = TextValue(title=_card_title(found), notes=_card_notes(found), paragraphs=paragraphs)
        self.query_one(TextPane).show(value)
        empty = "reading" if found is None else "nothing that could be listed"
        self.contents_pane.show(
            reading.contents,
            values_read=found is None or found.values_read,
            empty=empty,
            room=height - _ENTRY - 1 if wide else 0,
        )
        self._divide(paragraphs, width, height, wide=wide, zoomed=zoomed)
        self.show_entry(wide=wide)

    def show_entry(self, *, wide: bool) -> None:
        """What the cursor of the contents is on."""
        entry = self.contents_pane.entry
        found = self._shown[0].inspection if self._shown is not None else None
        told = found is None or found.values_read
        glyphs = self.look.glyphs
        drawn: Callable[[int, int], Sequence[Line]]
        if entry is None:
            drawn = lambda width, height: [blank(width)] * height  # noqa: E731
        elif wide:
            drawn = lambda width, _height: _entry_lines(entry, width, glyphs, told=told)  # noqa: E731
        else:
            drawn = lambda width, _height: [_entry_line(entry, width, glyphs, told=told)]  # noqa: E731
        self.query_one(DrawnPane).show(drawn)

    def _divide(
        self,
        paragraphs: Sequence[Paragraph | None],
        width: int,
        height: int,
        *,
        wide: bool,
        zoomed: LineWidget | None,
    ) -> None:
        """Room for what is told, at most so much that the contents keep theirs; all of it for the `zoomed` pane."""
        told = self.query_one(".told")
        if zoomed is not None:
            if zoomed is not self.contents_pane:  # which takes what is left anyway
                _set_size(zoomed, height)
            _set_size(told, height, width)
            return
        column = width * 27 // 50 if wide else width
        wanted_findings = self.findings_pane.lines_wanted(column)
        wanted_card = 1 + len(prose(paragraphs, column))
        room = height if wide else height - 1 - max(_LEAST_CONTENTS, height // 4)
        findings = max(min(wanted_findings, room - wanted_card), min(wanted_findings, room // 2))
        of_card = room - findings if wide else min(wanted_card, room - findings)
        _set_size(self.findings_pane, findings)
        _set_size(self.query_one(TextPane), of_card)
        _set_size(told, height if wide else findings + of_card, column)
        _set_size(self.query_one(DrawnPane), _ENTRY if wide else 1)


def _same(one: Reading, other: Reading) -> bool:
    """Whether two readings differ in their progress at most."""
    return one.inspection is other.inspection and one.busy == other.busy


def _set_size(pane: Widget, height: int, width: int | None = None) -> None:
    """Sizes in cells; setting what is already so would lay everything out again."""
    if pane.styles.height is None or pane.styles.height.cells != height:
        pane.styles.height = height
    if width is not None and (pane.styles.width is None or pane.styles.width.cells != width):
        pane.styles.width = width


def _card_title(found: Inspection | None) -> str:
    return "loss scaler" if found is None or len(found.scalers) < 2 else f"{len(found.scalers)} loss scalers"


def _card_notes(found: Inspection | None) -> list[tuple[str, Role]]:
    if found is None or len(found.scalers) != 1:
        return []
    scaler = found.scalers[0]
    place = f" in {fit(scaler.path, min(40, len(scaler.path)), cut='start')}" if scaler.path else ""
    return [(f"{scaler.kind}{place}", "dim")]


def _entry_line(entry: Entry, width: int, glyphs: Glyphs, *, told: bool) -> Line:
    """Path and facts in one line; the path gives way, from its beginning."""
    facts = joined([("  ", "text"), *entry_facts(entry, values_read=told)])
    if width_of(facts) > width * 2 // 3:
        facts = clipped(facts, width * 2 // 3, glyphs)
    room = min(width - width_of(facts) - 1, display_width(safe_text(entry.path)))
    path = fit(entry.path, room, cut="start", glyphs=glyphs)
    return clipped([(" ", "text"), (path, "accent"), *facts], width, glyphs)


def _entry_lines(entry: Entry, width: int, glyphs: Glyphs, *, told: bool) -> list[Line]:
    """Path and facts in full."""
    lines = [heading("entry", width, glyphs=glyphs)]
    lines += prose([Paragraph([(entry.path, "accent")], " ", literal=True)], width, glyphs=glyphs)
    lines += prose([Paragraph(entry_facts(entry, values_read=told), " ")], width, glyphs=glyphs)
    return lines


class ComparePage(Container):
    """What happened between two checkpoints, and both beside each other."""

    def __init__(self, look: Look, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.look = look
        self._shown: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        yield TextPane(self.look, id="changes")
        yield TablePane(self.look, id="both")

    def show(
        self,
        readings: Sequence[Reading],
        changes: Sequence[Change],
        names: Sequence[str],
        width: int,
        height: int,
        *,
        zoomed: LineWidget | None = None,
    ) -> None:
        """Both, on `width` × `height` cells."""
        key = (*(reading.inspection for reading in readings), width, height, zoomed)
        same = (a is b or (isinstance(a, int) and a == b) for a, b in zip(key, self._shown, strict=False))
        if self._shown and all(same):
            return
        self._shown = key
        before, after = (reading.inspection for reading in readings)
        changes_pane, table = self.query_one(TextPane), self.query_one(TablePane)
        title = "what happened between"
        if before is None or after is None:
            changes_pane.show(TextValue(title=title, paragraphs=[paragraph("reading", "dim", lead="   ")]))
            return
        if not (before.readable and after.readable):
            told = [paragraph("cannot be compared: one of them could not be read", "bad", lead="   ")]
        else:
            told = changes_told(changes, self.look.glyphs)
        changes_pane.show(TextValue(title=title, paragraphs=told))
        table.show(side_by_side(before, after, names, width))
        wanted = max(3, min(1 + len(prose(told, width)), height // 2))
        _set_size(changes_pane, height if zoomed is changes_pane else wanted)


class HelpPage(Container):
    """The keys that do something on the page one comes from, then all others, and what the marks mean."""

    def __init__(self, look: Look, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.look = look

    def compose(self) -> ComposeResult:
        yield TextPane(self.look, id="help-text")

    def show(self, keys: Sequence[Key], active: Collection[str]) -> None:
        value = TextValue(title="help", paragraphs=help_paragraphs(keys, active, self.look.glyphs))
        self.query_one(TextPane).show(value)


def help_paragraphs(keys: Sequence[Key], active: Collection[str], glyphs: Glyphs) -> list[Paragraph | None]:
    """Keys, marks, and what is never done."""
    lines: list[Paragraph | None] = []
    for title, wanted in (("These do something now", True), ("At other times, or in another pane", False)):
        chosen = [key for key in keys if (key.id in active) == wanted]
        if not chosen:
            continue
        lines.append(paragraph(title, "strong"))
        for key in chosen:
            names = ", ".join(shown(name, glyphs) for name in key.keys)
            lines.append(Paragraph([(key.help, "text")], f"  {names:<14} ", "key"))
        lines.append(None)
    lines.append(paragraph("Marks", "strong"))
    marks: tuple[tuple[str, Role, str], ...] = (
        (glyphs.fail, "bad", "a fault: this must change before the checkpoint is resumed from, or loaded"),
        (glyphs.warn, "warn", "a notice: worth knowing"),
        (glyphs.ok, "good", "there"),
        ("+", "dim", "a branch that is closed"),
        ("-", "dim", "a branch that is open"),
    )
    lines += [Paragraph([(words, "text")], f"  {mark:<14} ", role) for mark, role, words in marks]
    lines += [None, paragraph("Nothing in the file is run or imported, torch is not loaded, nothing is written to it.")]
    return lines
