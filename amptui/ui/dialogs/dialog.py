"""The widget that asks: opaque, at the bottom, so that the panes above go on being seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input
from textual.widgets.input import Selection

from amptui.ui.dialogs.question import Option, Question
from amptui.ui.keys import shown
from amptui.ui.raster.heading import heading
from amptui.ui.raster.line import Line
from amptui.ui.raster.prose import Paragraph, prose
from amptui.ui.theme import Look
from amptui.ui.widgets.lines import LineWidget

#: What is answered: an option's value, or the text that was written; None where the question was left.
Answered = Callable[[str | None], None]


class _Asked(LineWidget):
    """The question's words and its options; keys that are none of them do nothing."""

    DEFAULT_CSS: ClassVar[str] = "_Asked { height: auto; max-height: 14; }"

    def __init__(self, look: Look, question: Question, answered: Answered) -> None:
        super().__init__(look)
        self.question = question
        self.problem = ""
        self._answered = answered

    def get_content_height(self, container: object, viewport: object, width: int) -> int:  # noqa: ARG002
        return len(self._all_lines(width))

    def draw(self, width: int, height: int) -> tuple[Line, ...]:
        return self._all_lines(width)[:height]

    def _all_lines(self, width: int) -> tuple[Line, ...]:
        question, glyphs = self.question, self.look.glyphs
        top = heading(question.title, width, right="esc leaves this", focused=True, glyphs=glyphs)
        words: list[Paragraph | None] = list(question.paragraphs)
        options = [
            _option(option, self.look, enter=question.enter and option is question.options[0])
            for option in question.options
        ]
        problem = [Paragraph([(self.problem, "bad")], lead=f"{glyphs.fail} ", lead_role="bad")] if self.problem else []
        return (top, *prose([*words, *problem, *options], width, glyphs=glyphs))

    def take(self, event: events.Key) -> None:
        chosen = next((option for option in self.question.options if event.key in (option.key, option.value)), None)
        if event.key == "enter" and self.question.enter:
            chosen = self.question.options[0]
        chosen = chosen or next((o for o in self.question.options if event.character == o.key), None)
        if chosen is not None:
            self._answered(chosen.value)
        elif event.key in ("escape", "q"):
            self._answered(None)


class _Entry(Input):
    """A text on one line. Its keys act at once, so that they and letters come in the order of typing."""

    def __init__(self, text: str, submit: Callable[[str], None]) -> None:
        super().__init__(text, select_on_focus=False)
        self.cursor_blink = False
        self._submit = submit

    async def take(self, event: events.Key | events.Paste) -> None:
        if isinstance(event, events.Paste):
            self._write(event.text.partition("\n")[0].rstrip("\r"))
        elif event.key == "enter":
            self._submit(self.value)
        elif event.is_printable and event.character is not None:
            self._write(event.character)
        else:
            for binding in self._bindings.key_to_bindings.get(event.key, ()):
                await self.run_action(binding.action)

    def _write(self, text: str) -> None:
        if self.selection.is_empty:
            self.insert_text_at_cursor(text)
        else:
            self.replace(text, *self.selection)


def _option(option: Option, look: Look, *, enter: bool) -> Paragraph:
    key = shown(option.key, look.glyphs)
    return Paragraph([(option.label, "text")], f"  {f'{key}, enter' if enter else f'{key:<5}'} ", "key")


class Dialog(Vertical):
    """One question, asked until it is answered or left. The app hands it every key, in order, by `take`."""

    DEFAULT_CSS: ClassVar[str] = """
    Dialog { layer: over; dock: bottom; height: auto; background: $background; }
    Dialog Input { height: 1; border: none; padding: 0 1; background: $panel; }
    Dialog Input:focus { border: none; }
    """

    def __init__(self, look: Look, question: Question, answered: Answered) -> None:
        super().__init__()
        self.question = question
        self._answered = answered
        self._asked = _Asked(look, question, answered)
        self._entry = _Entry(question.entry, self._submitted) if question.entry is not None else None
        self._there = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield self._asked
        if self._entry is not None:
            yield self._entry

    def on_mount(self) -> None:
        if self._entry is not None:
            self._entry.selection = Selection(0, len(self._entry.value))
        self.screen.set_focus(self._entry or self._asked, scroll_visible=False)
        self._there.set()

    async def take(self, event: events.Key | events.Paste) -> None:
        """One key, once the question is on the screen: esc leaves, keys that mean nothing here end here."""
        await self._there.wait()
        if self._entry is None:
            if isinstance(event, events.Key):
                self._asked.take(event)
        elif isinstance(event, events.Key) and event.key == "escape":
            self._answered(None)
        else:
            await self._entry.take(event)

    def leave(self) -> None:
        """As esc does."""
        self._answered(None)

    def _submitted(self, text: str) -> None:
        try:
            if self.question.check is not None:
                self.question.check(text)
        except ValueError as error:
            self._asked.problem = str(error)
            self._asked.refresh(layout=True)
            self._asked.redraw()
            return
        self._answered(text)
