"""The account of `amptui check` on a pane: the same words, caught as lines instead of printed."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console
from rich.text import Text

from amptui.report.page import Page
from amptui.ui.raster.line import Line, Role, Span, clipped

_ROLES: dict[str, Role] = {
    "dim": "dim",
    "bold": "strong",
    "green": "good",
    "bold green": "good",
    "yellow": "warn",
    "bold yellow": "warn",
    "cyan": "warn",
    "red": "bad",
    "bold red": "bad",
}

#: Writes something to a page.
Tell = Callable[[Page], None]


class _LinesPage(Page):
    """Keeps what it is told as lines of a pane."""

    def __init__(self, width: int) -> None:
        super().__init__(Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False))
        self.lines: list[Line] = []

    def _print(self, text: Text) -> None:
        self.lines.append(_line(text))


def told_lines(tell: Tell, width: int) -> tuple[Line, ...]:
    """What `tell` writes, as lines of exactly `width` cells."""
    page = _LinesPage(width)
    tell(page)
    return tuple(clipped(line, width) for line in page.lines)


def _line(text: Text) -> Line:
    """A rich line with the roles that its styles stand for."""
    roles: list[Role] = ["text"] * len(text.plain)
    for span in text.spans:
        role = _ROLES.get(str(span.style))
        if role is not None:
            roles[span.start : span.end] = [role] * (min(span.end, len(roles)) - span.start)
    spans: list[Span] = []
    for character, role in zip(text.plain, roles, strict=True):
        if spans and spans[-1].role == role:
            spans[-1] = Span(spans[-1].text + character, role)
        else:
            spans.append(Span(character, role))
    return tuple(spans)
