"""What stands around the page, of the session as it is now."""

from __future__ import annotations

from amptui.ui import bars
from amptui.ui.explain import explanation
from amptui.ui.frame import Frame
from amptui.ui.guidance import guidance
from amptui.ui.moves import LABELS, Situation, active, next_move
from amptui.ui.raster.glyphs import Glyphs


def around(now: Situation, glyphs: Glyphs, *, explain: bool) -> Frame:
    lines, move = guidance(now), next_move(now)
    return Frame(
        title=bars.title(now.state, now.mode, glyphs),
        stages=bars.stages(now, glyphs),
        now=lines.now,
        role=lines.role,
        press=lines.press,
        keys=active(now),
        labels={"proceed": LABELS[move]} if move is not None else {},
        explained=explanation(now) if explain else None,
    )
