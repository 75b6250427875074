"""A screen that sends only the cells that changed, and a colour only where it changes.

The framework writes each changed line from the left edge of its widget on, with a colour sequence and a reset around
every run of text: for one new number at the right of a table row that is 200 bytes instead of 20. Over SSH these bytes
are what makes a screen slow. This takes the framework's own update (which cells, which strips) and writes it frugally.

It touches the framework's compositor, which is no public interface. Should that change, `FrugalScreen` is an ordinary
screen again: more bytes, the same picture.
"""

from __future__ import annotations

from typing import Any

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from textual.reactive import Reactive
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

try:
    from textual._compositor import ChopsUpdate, Compositor
except ImportError:  # another version: see above
    frugal = False
else:
    frugal = all(hasattr(Compositor, name) for name in ("render_partial_update", "cuts"))


def written(spans: list[tuple[int, int, int, Strip]], colours: ColorSystem) -> str:
    """The sequence that writes each (y, x, width, strip): the strip's first `width` cells at column x of row y."""
    parts: list[str] = []
    current = ""
    for y, x, width, strip in spans:
        parts.append(f"\x1b[{y + 1};{x + 1}H")
        for text, style, control in strip.crop(0, width):
            if control:
                continue
            codes = _codes(style, colours) if style else ""
            if codes != current:
                parts.append(f"\x1b[0;{codes}m" if codes else "\x1b[0m")
                current = codes
            parts.append(text)
    if current:
        parts.append("\x1b[0m")
    return "".join(parts)


def _codes(style: Style, colours: ColorSystem) -> str:
    return Strip.render_ansi(style, colours) if style._ansi is None else style._ansi


if frugal:

    class _FrugalUpdate(ChopsUpdate):
        def render_segments(self, console: Console) -> str:
            colours = console._color_system or ColorSystem.TRUECOLOR
            pieces: list[tuple[int, int, int, Strip]] = []
            for y, x1, x2 in self.spans:
                for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                    start, stop = max(x, x1), min(end, x2)
                    if strip is None or start >= stop:
                        continue
                    if any(style and style._link for _, style, _ in strip):
                        # Hyperlinks carry more than colours: leave them to the framework.
                        return super().render_segments(console)
                    pieces.append((y, start, stop - start, strip.crop(start - x, stop - x)))
            return written(pieces, colours)

    class _FrugalCompositor(Compositor):
        def render_partial_update(self) -> ChopsUpdate | None:
            update = super().render_partial_update()
            return None if update is None else _FrugalUpdate(update.chops, update.spans, update.chop_ends)


class FrugalScreen(Screen[None], inherit_bindings=False):
    """The app's main screen. The framework's own keys (tab) are the app's to bind."""

    #: The framework repaints everything when the focus moves; panes repaint themselves.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def __init__(self, name: str | None = None, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(name, id, classes)
        compositor: Any = getattr(self, "_compositor", None)
        if frugal and type(compositor) is Compositor:
            self._compositor = _FrugalCompositor()

    def on_mount(self) -> None:
        # Back from the shell (ctrl+z, fg) the terminal shows nothing of what had been sent.
        self.app.app_resume_signal.subscribe(self, lambda _: self.refresh())
