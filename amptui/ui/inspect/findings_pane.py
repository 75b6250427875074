"""The findings: what is wrong or worth knowing, on what evidence, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message

from amptui.findings.finding import Finding
from amptui.ui.inspect.keys import INSPECT_KEYS
from amptui.ui.keys import textual_bindings
from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.heading import heading
from amptui.ui.raster.line import Line, Role, blank
from amptui.ui.raster.prose import Paragraph, prose
from amptui.ui.theme import Look
from amptui.ui.widgets.scrolling import Scrolling


def finding_paragraphs(finding: Finding, *, cursor: bool = False, glyphs: Glyphs = UNICODE) -> list[Paragraph]:
    """Mark and first evidence, further evidence, advice."""
    fault = finding.severity == "fault"
    role: Role = "bad" if fault else "warn"
    first, *rest = finding.evidence or ("",)
    here = glyphs.cursor if cursor else " "
    mark = glyphs.fail if fault else glyphs.warn
    lines = [Paragraph([(first, "bad" if fault else "strong" if cursor else "text")], f"{here}{mark} ", role)]
    lines += [Paragraph([(text, "dim")], "   ") for text in rest]
    if finding.advice:
        lines.append(Paragraph([(finding.advice, "text")], "   → ", "key"))
    return lines


class FindingsPane(Scrolling):
    """Findings one below the other; the cursor stands on one of them. Pages and wheel scroll without moving it."""

    BINDINGS: ClassVar[list[BindingType]] = [*textual_bindings([key for key in INSPECT_KEYS if key.id == "turn"])]

    class Chosen(Message):
        """The place of a finding is asked for."""

        def __init__(self, path: str) -> None:
            super().__init__()
            self.path = path

    def __init__(self, look: Look, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(look, id=id)
        self._findings: Sequence[Finding] = ()
        self._empty = ""
        self._cursor = 0
        self._top = 0
        self._follow = True
        self._starts: list[int] = []

    @property
    def selected(self) -> Finding | None:
        return self._findings[self._cursor] if self._cursor < len(self._findings) else None

    def show(self, findings: Sequence[Finding], empty: str) -> None:
        """Show `findings`; `empty` is said where there are none."""
        if (findings, empty) == (self._findings, self._empty):
            return
        self._findings, self._empty = findings, empty
        self._cursor = max(0, min(self._cursor, len(findings) - 1))
        self.redraw()

    def lines_wanted(self, width: int) -> int:
        """How many lines all of it takes, with the heading."""
        return 1 + len(self._all_lines(width)[0])

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        lines, self._starts = self._all_lines(width)
        body = height - 1
        if self._follow and self._starts:
            start = self._starts[self._cursor]
            end = [*self._starts, len(lines)][self._cursor + 1]
            # All of the finding if it fits, its beginning in any case.
            self._top = min(max(self._top, end - body), start)
        self._top = max(0, min(self._top, len(lines) - body))
        seen = lines[self._top : self._top + max(0, body)]
        below = len(lines) - self._top - len(seen)
        top = heading(
            "findings",
            width,
            right=f"{below} more below" if below > 0 else "",
            focused=self.has_focus,
            glyphs=self.look.glyphs,
        )
        return (top, *seen, *(blank(width) for _ in range(body - len(seen))))[:height]

    def highlighted_row(self) -> int | None:
        if not self.has_focus or not self._starts:
            return None
        row = self._starts[self._cursor] - self._top + 1
        return row if 1 <= row < self.size.height else None

    def copy_text(self) -> str:
        """The finding under the cursor."""
        finding = self.selected
        if finding is None:
            return self._empty
        return "\n".join([*finding.evidence, *([finding.advice] if finding.advice else [])])

    def _all_lines(self, width: int) -> tuple[list[Line], list[int]]:
        """All lines, and at which each finding begins."""
        lines: list[Line] = []
        starts: list[int] = []
        glyphs = self.look.glyphs
        for number, finding in enumerate(self._findings):
            starts.append(len(lines))
            cursor = self.has_focus and number == self._cursor
            lines.extend(prose(finding_paragraphs(finding, cursor=cursor, glyphs=glyphs), width, glyphs=glyphs))
        if not self._findings:
            lines.extend(prose([Paragraph([(self._empty, "dim")], "   ")], width, glyphs=glyphs))
        return lines, starts

    def _select(self, steps: int) -> None:
        self._follow = True
        self._cursor = max(0, min(self._cursor + steps, len(self._findings) - 1))
        self.redraw()

    def _move(self, lines: int) -> None:
        self._follow = False
        self._top = max(0, self._top + lines)
        self.redraw()

    def action_down(self) -> None:
        self._select(1)

    def action_up(self) -> None:
        self._select(-1)

    def action_top(self) -> None:
        self._select(-len(self._findings))

    def action_bottom(self) -> None:
        self._select(len(self._findings))

    def action_turn(self) -> None:
        finding = self.selected
        if finding is not None:
            self.post_message(self.Chosen(str(finding.facts.get("path", ""))))

    def on_click(self, event: events.Click) -> None:
        line = event.y - 1 + self._top
        chosen = [number for number, start in enumerate(self._starts) if start <= line]
        if event.y >= 1 and chosen:
            self._select(chosen[-1] - self._cursor)
