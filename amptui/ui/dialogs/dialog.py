"""The widget that asks: opaque, at the bottom, so that the panes above go on being seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.widgets import Input

from amptui.ui.dialogs.question import Option, Question
from amptui.ui.keys import shown
from amptui.ui.raster.heading import heading
from amptui.ui.raster.line import Line, Span, clipped
from amptui.ui.raster.prose import Paragraph, prose
from amptui.ui.theme import Look
from amptui.ui.widgets.lines import LineWidget

#: Keys that the framework's text entry binds.
_EDITING = {key for binding in Input.BINDINGS if isinstance(binding, Binding) for key in binding.key.split(",")}
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
        options = [_option(option, width, self.look) for option in question.options]
        problem = [Paragraph([(self.problem, "bad")], lead=f"{glyphs.fail} ", lead_role="bad")] if self.problem else []
        return (top, *prose([*words, *problem], width, glyphs=glyphs), *options)

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key in ("escape", "q"):
            self._answered(None)
            return
        chosen = next((option for option in self.question.options if event.key in (option.key, option.value)), None)
        chosen = chosen or next((o for o in self.question.options if event.character == o.key), None)
        if chosen is not None:
            self._answered(chosen.value)


def _option(option: Option, width: int, look: Look) -> Line:
    key = shown(option.key, look.glyphs)
    return clipped([Span(f"  {key:<5} ", "key"), Span(option.label, "text")], width, look.glyphs)


class Dialog(Vertical):
    """One question, asked until it is answered or left."""

    DEFAULT_CSS: ClassVar[str] = """
    Dialog { layer: over; dock: bottom; height: auto; background: $background; }
    Dialog Input { height: 1; border: none; padding: 0 1; background: $panel; }
    Dialog Input:focus { border: none; }
    """

    def __init__(self, look: Look, question: Question, answered: Answered) -> None:
        super().__init__()
        self._question = question
        self._answered = answered
        self._asked = _Asked(look, question, answered)

    def compose(self) -> ComposeResult:
        yield self._asked
        if self._question.entry is not None:
            entry = Input(self._question.entry, select_on_focus=True)
            entry.cursor_blink = False
            yield entry

    def on_mount(self) -> None:
        if self._question.entry is None:
            self._asked.focus()
        else:
            self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            if self._question.check is not None:
                self._question.check(event.value)
        except ValueError as error:
            self._asked.problem = str(error)
            self._asked.refresh(layout=True)
            self._asked.redraw()
            return
        self._answered(event.value)

    def on_key(self, event: events.Key) -> None:
        """What the text entry leaves over: esc leaves, its own keys go on to it, all others end here."""
        if event.key == "escape":
            self._answered(None)
        if event.key not in _EDITING:
            event.stop()
            event.prevent_default()
