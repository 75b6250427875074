"""The two lines at the top of the screen: which checkpoints, which page, how far the reading is, and the format."""

from __future__ import annotations

from collections.abc import Sequence

from amptui.report.inspect_text import format_words
from amptui.ui.inspect.keys import Page
from amptui.ui.inspect.reading import Reading
from amptui.ui.inspect.words import judged, progress
from amptui.ui.notices import Notice
from amptui.ui.raster.glyphs import UNICODE, Glyphs
from amptui.ui.raster.line import Role

#: The pages of the first and the second checkpoint, and of both.
PLACES: tuple[Page, ...] = ("first", "second", "compare")

Spans = list[tuple[str, Role]]


def title(names: Sequence[str], readings: Sequence[Reading], page: Page, glyphs: Glyphs) -> Spans:
    """The one checkpoint, or both with their keys and what was found in them."""
    spans: Spans = [(" amptui ", "accent"), (" inspect ", "dim")]
    if len(readings) == 1:
        return [*spans, (f" {names[0]}", "strong")]
    for number, (name, reading) in enumerate(zip(names, readings, strict=True)):
        spans.append((f"  {number + 1} {name}", "accent" if page == PLACES[number] else "text"))
        found = reading.inspection
        if found is not None:
            bad = found.has_fault or not found.readable
            spans.append((f" {glyphs.fail if bad else glyphs.ok}", "bad" if bad else "good"))
    here = page == "compare"
    return [*spans, ("  3 COMPARE" if here else "  3 compare", "accent" if here else "text")]


def standing(here: Reading | None, readings: Sequence[Reading], glyphs: Glyphs) -> Spans:
    """How far a reading is, else what was found; of the checkpoint `here`, None where the page shows none alone."""
    shown = [here] if here is not None else readings
    busy = next((reading for reading in shown if reading.busy), None)
    spans = list(progress(busy, glyphs)) if busy is not None else []
    if not spans and len(shown) == 1 and shown[0].inspection is not None:
        spans = list(judged(shown[0].inspection, glyphs))
    return [*spans, (" ", "text")]


def format_line(
    here: Reading | None, names: Sequence[str], page: Page, notice: Notice | None = None, glyphs: Glyphs = UNICODE
) -> Spans:
    """What was just done, for a moment; the format of the checkpoint `here`; else what the page is about."""
    if notice is not None:
        told = notice.told(glyphs)
        return [(f" {told.lead}", told.lead_role), *told.spans]
    if here is None:
        words = " to ".join(names) if page == "compare" else "nothing in the file is run or imported"
        return [(f" {words}", "dim")]
    return [(f" {format_words(here.inspection)}" if here.inspection is not None else " reading", "dim")]
