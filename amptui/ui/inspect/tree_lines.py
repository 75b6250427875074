"""The tree of contents as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from amptui.text import display_width, safe_text
from amptui.ui.inspect.contents import Contents, Shown, TreeView
from amptui.ui.inspect.words import counted, tensor_words
from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.heading import heading
from amptui.ui.raster.line import Line, Role, Span, blank, clipped, fit, joined, width_of

#: Cells for the names at most; beyond, the eye would lose the row.
_WIDEST_NAME = 64
_DEEPEST = 12


def tree_lines(
    contents: Contents,
    view: TreeView,
    shown: Shown,
    width: int,
    height: int,
    *,
    values_read: bool = True,
    focused: bool = False,
    empty: str = "nothing",
    glyphs: Glyphs = UNICODE,
) -> tuple[Line, ...]:
    """A heading and the rows from `view.offset` on, in exactly `height` lines of `width` cells."""
    if width <= 0 or height <= 0:
        return ()
    seen = shown.rows[view.offset : view.offset + height - 1]
    below = len(shown.rows) - view.offset - len(seen)
    lines = [
        heading(
            "contents",
            width,
            notes=_notes(contents, view, shown),
            right=f"{below:,} more below" if below > 0 else "",
            focused=focused,
            glyphs=glyphs,
        )
    ]
    for index in seen:
        cursor = index == view.cursor
        lines.append(
            _row(contents, index, view, width, cursor=cursor, focused=focused, told=values_read, glyphs=glyphs)
        )
    if not shown.rows and height > 1:
        words = f"no path has “{view.search}”" if view.search and contents.entries else empty
        lines.append(clipped([(f"  {words}", "dim")], width, glyphs))
    lines.extend(blank(width) for _ in range(height - len(lines)))
    return tuple(lines[:height])


def _notes(contents: Contents, view: TreeView, shown: Shown) -> Sequence[tuple[str, Role]]:
    if view.search:
        return [(f"/{view.search}", "key"), (f"   {shown.found:,} found", "dim")]
    if not contents.entries:
        return ()
    total = len(contents.entries)
    notes: list[tuple[str, Role]] = [(f"{total:,} {'entry' if total == 1 else 'entries'}", "dim")]
    if contents.bad:
        notes.append((f"   {counted(len(contents.bad), 'tensor')} not finite", "bad"))
    return notes


def _row(
    contents: Contents,
    index: int,
    view: TreeView,
    width: int,
    *,
    cursor: bool,
    focused: bool,
    told: bool,
    glyphs: Glyphs,
) -> Line:
    entry = contents.entries[index]
    margin, margin_role = (glyphs.cursor, "accent") if cursor and focused else (" ", "text")
    role: Role = "bad" if entry.bad else "accent" if entry.scaler is not None else "text"
    mark = glyphs.fail if entry.bad else " "
    sign = "  "
    if contents.is_branch(index):
        sign = "- " if index in view.opened or view.search else "+ "
    indent = "  " * min(entry.depth, _DEEPEST)
    facts = joined(_facts(contents, index, told=told))
    taken = 3 + len(indent) + len(sign)
    column = min(_WIDEST_NAME, width * 9 // 20) - taken
    # A long name takes what its facts leave.
    room = max(4, column, min(display_width(safe_text(entry.name)), width - taken - 1 - width_of(facts)))
    name = fit(entry.name, room, glyphs=glyphs)
    spans = [
        Span(margin, margin_role),  # type: ignore[arg-type]
        Span(f"{mark} ", "bad"),
        Span(f"{indent}{sign}", "dim"),
        Span(f"{name} ", "strong" if cursor and focused and role == "text" else role),
        *facts,
    ]
    return clipped(spans, width, glyphs)


def _facts(contents: Contents, index: int, *, told: bool) -> Sequence[Span]:
    """What is told of an entry; what is wrong with a tensor first, as the end is cut where room is short."""
    entry = contents.entries[index]
    text = Span(entry.text, "dim" if contents.is_branch(index) else "text")
    if entry.tensor is not None and entry.tensor.nonfinite:
        words, role = tensor_words(entry.tensor, entry.bad, values_read=told)
        return (Span(words, role), Span(f" · {entry.text}", "dim"))
    if entry.tensor is not None and entry.tensor.zero:
        return (text, Span(" · all zero", "dim"))
    if entry.bad:
        return (text, Span(f" · {entry.bad:,} not finite", "bad"))
    return (text, Span(" · loss scaler", "accent")) if entry.scaler is not None else (text,)
