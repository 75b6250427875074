"""What stands around the page, of the session as it is now."""

from __future__ import annotations

from dataclasses import replace

from amptui.ui import bars
from amptui.ui.explain import explanation
from amptui.ui.frame import Frame
from amptui.ui.guidance import guidance
from amptui.ui.moves import LABELS, Situation, active, next_move
from amptui.ui.notices import Notice
from amptui.ui.raster.glyphs import Glyphs


def around(
    now: Situation, glyphs: Glyphs, *, explain: bool, zoomed: bool = False, notice: Notice | None = None
) -> Frame:
    """`zoomed`: whether one pane has the page to itself. `notice`: what was just done."""
    lines, move = guidance(now), next_move(now)
    state = replace(now.state, engine="starting") if now.starting else now.state
    labels = {"proceed": LABELS[move]} if move is not None else {}
    return Frame(
        title=bars.title(state, now.mode, glyphs),
        stages=bars.stages(now, glyphs),
        now=lines.now,
        role=lines.role,
        press=lines.press,
        keys=active(now),
        labels={**labels, "zoom": "all panes"} if zoomed else labels,
        notice=notice,
        explained=explanation(now) if explain else None,
    )
