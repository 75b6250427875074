"""Help: the keys that do something on the page one comes from, then all others, and what the marks mean."""

from __future__ import annotations

from textual.app import ComposeResult

from amptui.report.page import Page
from amptui.ui.keys import KEYS, Key, shown
from amptui.ui.moves import Situation, active
from amptui.ui.raster.glyphs import Glyphs
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.widgets.told import ToldPane

_COLUMN = 16


def tell_help(page: Page, now: Situation, keys: tuple[Key, ...], glyphs: Glyphs) -> None:
    """Keys by group, marks, and how to leave."""
    ids = active(now)
    for title, wanted in (("These do something now", True), ("At other times, or in the focused pane", False)):
        page.line((title, "bold"))
        group = ""
        for key in keys:
            if (key.id in ids) != wanted:
                continue
            label = key.group if key.group != group else ""
            group = key.group
            names = ", ".join(shown(name, glyphs) for name in key.keys)
            page.columns([((label, "dim"), 6), ((names, "bold"), _COLUMN), (key.help, 0)])
        page.blank()
    page.line(("Marks", "bold"))
    for mark, meaning in (
        (glyphs.ok, "passed, applied"),
        (glyphs.skipped, "an update skipped by the loss scaler's rule: its gradient was not finite"),
        (glyphs.withheld, "an update that the guard held back, where a plain loop would have applied it"),
        (glyphs.lost, "in a plot: a value that is not finite"),
        (glyphs.warn, "look at this"),
        (glyphs.fail, "failed"),
    ):
        page.columns([((mark, "bold"), 4), (meaning, 0)])


class HelpPage(Stage):
    #: What help is about: the page that it was called from.
    about: Situation | None = None
    keys: tuple[Key, ...] = KEYS

    def compose(self) -> ComposeResult:
        yield ToldPane(self.look, id="help-told")

    def show(self, shown: Shown) -> None:
        about = self.about or shown.situation
        tell_title = f"help   {about.page}"
        ids = "".join(sorted(active(about)))
        self.query_one(ToldPane).show(
            tell_title, (ids,), lambda page: tell_help(page, about, self.keys, self.look.glyphs)
        )
