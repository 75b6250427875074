"""A terminal page that only grows: aligned lines, wrapped to the console's width, and one passing progress line.

Everything written passes `safe_text`. Where the console is no terminal, nothing but text and newlines is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from amptui.report.figures import as_ascii
from amptui.text import safe_text

#: A text, or a text with a rich style.
Piece = str | tuple[str, str]
Mark = Literal["ok", "warn", "fail", "skipped", "withheld", "told", "none"]

#: In Unicode, in ASCII, and their style; marks never differ by colour alone.
_MARKS: dict[Mark, tuple[str, str, str]] = {
    "ok": ("✓", "+", "green"),
    "warn": ("!", "!", "yellow"),
    "fail": ("✗", "x", "bold red"),
    "skipped": ("↷", ">", "cyan"),
    "withheld": ("×", "x", "yellow"),
    "told": ("·", ".", ""),
    "none": (" ", " ", ""),
}
#: The mark's column, and after it the label's and the value's.
MARGIN = 2
LABEL = MARGIN + 2
VALUE = LABEL + 13
#: Seconds between two paints of the progress line.
PROGRESS_S = 0.25
_BAR = 16
_LONGEST = 20_000
_NARROWEST = 8
_ERASE = "\r\x1b[2K"


class Paper(Console):
    """A console that raises BrokenPipeError where its reader is gone; rich would exit with 1, which means rejected."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("nobody reads the output any more")


class Page:
    """Writes to `console`; `ascii` replaces every sign that is not ASCII, as does a console that cannot encode them."""

    def __init__(self, console: Console, *, ascii: bool = False, clock: Callable[[], float] = time.monotonic) -> None:  # noqa: A002
        self.console = console
        self.ascii = ascii or not console.encoding.lower().startswith("utf")
        self._clock = clock
        # FORCE_COLOR makes rich take a log file for a terminal; lines are painted over on a real one only.
        self._paints = console.is_interactive and not console.is_dumb_terminal and console.file.isatty()
        self._painted = False
        self._painted_at = -PROGRESS_S

    @property
    def width(self) -> int:
        return max(self.console.width, VALUE + _NARROWEST)

    # Lines.

    def blank(self) -> None:
        self._print(Text())

    def line(self, *pieces: Piece, indent: int = MARGIN, hang: int = 0) -> None:
        """One paragraph; its further lines are indented by `hang` more."""
        self._hanging(Text(" " * indent), self._text(pieces), indent + hang)

    def marked(self, mark: Mark, *pieces: Piece) -> None:
        """A paragraph behind a mark."""
        self._hanging(self._marked(mark), self._text(pieces), LABEL)

    def field(self, label: str, *pieces: Piece, mark: Mark = "none") -> None:
        """`label` and its value in two columns, with a mark before them."""
        head = self._marked(mark)
        head.append_text(self._text([(label, "dim")]))
        head.pad_right(max(1, VALUE - head.cell_len))
        self._hanging(head, self._text(pieces), VALUE)

    def columns(self, cells: Sequence[tuple[Piece, int]], *, indent: int = MARGIN) -> None:
        """Cells side by side, each wrapped to its own width in terminal cells; the last one takes what is left."""
        *fixed, (last, _) = cells
        left = self.width - indent - sum(width + 2 for _, width in fixed)
        wrapped = [self._wrapped(self._text([piece]), width) for piece, width in (*fixed, (last, left))]
        widths = [width for _, width in fixed]
        for number in range(max(len(lines) for lines in wrapped)):
            row = Text(" " * indent)
            for lines, width in zip(wrapped, (*widths, None), strict=True):
                cell = lines[number].copy() if number < len(lines) else Text()
                if width is not None:
                    cell.pad_right(width + 2 - cell.cell_len)
                row.append_text(cell)
            self._print(row)

    def command(self, *words: str) -> None:
        """A command line to copy: on one line, set in as far as it fits; a longer one goes on after a backslash.

        `words` are quoted for the shell already; none of them is ever cut.
        """
        cut = [safe_text(word, _LONGEST) for word in words]
        whole = " ".join(cut)
        indent = next((indent for indent in (VALUE, LABEL, 0) if indent + cell_len(whole) <= self.width), 0)
        lines = [cut[0]]
        for word in cut[1:]:
            if indent + cell_len(f"{lines[-1]} {word} \\") > self.width and cell_len(whole) > self.width:
                lines[-1] += " \\"
                lines.append(f"  {word}")
            else:
                lines[-1] += f" {word}"
        for line in lines:
            self._print(self._text([" " * indent, (line, "bold")]))

    def heading(self, title: str, purpose: str) -> None:
        """The start of a stage: its title on a rule, and one sentence on what it is for."""
        self.blank()
        self.rule(title)
        self.line(purpose)
        self.blank()

    def rule(self, title: str = "", *, style: str = "dim", heavy: bool = False) -> None:
        """A line across the page, behind a bold title if there is one."""
        head = self._text([(f"{title} ", "bold")]) if title else Text()
        head.append_text(self._text([(("━" if heavy else "─") * (self.width - head.cell_len), style)]))
        self._print(head)

    # Progress.

    def progress(self, label: str, done: int, total: int, more: str = "") -> None:
        """Paints over the last line of a terminal, a few times a second at most; nothing elsewhere."""
        now = self._clock()
        if not self._paints or now - self._painted_at < PROGRESS_S:
            return
        filled = max(0, min(_BAR, _BAR * done // max(total, 1)))
        count = f"{done:,} of {total:,}{f' · {more}' if more else ''}"
        text = self._text([f"  {label} ", ("━" * filled, "green"), ("─" * (_BAR - filled), "dim"), f" {count}"])
        text.truncate(self.width - 1)
        self._erase()
        self.console.print(text, end="", no_wrap=True, crop=False, overflow="ignore", highlight=False)
        self._painted, self._painted_at = True, now

    def clear_progress(self) -> None:
        if self._painted:
            self._erase()
            self._painted = False

    def _erase(self) -> None:
        self.console.file.write(_ERASE)
        self.console.file.flush()

    # Parts.

    def _print(self, text: Text) -> None:
        self.clear_progress()
        text.rstrip()
        self.console.print(text, no_wrap=True, crop=False, overflow="ignore", highlight=False)

    def _hanging(self, head: Text, body: Text, hang: int) -> None:
        """`body` behind `head`, or below it where the head is longer than the hang."""
        if head.cell_len > hang:
            self._print(head)
            head = Text(" " * hang)
        for line in self._wrapped(body, self.width - hang):
            self._print(Text.assemble(head, line))
            head = Text(" " * hang)

    def _wrapped(self, text: Text, width: int) -> list[Text]:
        lines = list(text.wrap(self.console, max(width, _NARROWEST), overflow="fold"))
        for line in lines:
            line.rstrip()
        return lines or [Text()]

    def _marked(self, mark: Mark) -> Text:
        unicode, plain, style = _MARKS[mark]
        return Text.assemble(" " * MARGIN, (plain if self.ascii else unicode, style), " ")

    def _text(self, pieces: Sequence[Piece]) -> Text:
        text = Text()
        for piece in pieces:
            said, style = (piece, "") if isinstance(piece, str) else piece
            safe = safe_text(said, _LONGEST, lines=True)
            text.append(as_ascii(safe) if self.ascii else safe, style or None)
        return text


def cells(text: str) -> int:
    """How many terminal cells `text` takes, as rich counts them."""
    return cell_len(safe_text(text, _LONGEST))
