"""The lines around every page, as values, and what they say before anything is known of the session.

The first paint comes from here alone: all that knows what a session is, is imported after it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from amptui.ui.notices import Notice
from amptui.ui.pages import STAGES
from amptui.ui.raster.line import Role

Pieces = list[tuple[str, Role]]

STARTING = "The engine is starting: it imports torch and then your project, in a process of its own."
#: The keys of every page.
ALWAYS = frozenset(
    {"help", "back", "copy", "explain", "zoom", "next_pane", "previous_pane", "command_palette", "suspend"}
) | frozenset({*(f"stage_{number}" for number in range(1, len(STAGES) + 1)), "output", "events"})


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What stands around a page. `explained` is None where the explanation is not asked for."""

    #: What is judged, at the left; what the engine does, at the right.
    title: tuple[Pieces, Pieces]
    stages: Pieces
    #: What is true now, how it is coloured, and what to press next.
    now: str
    role: Role = "text"
    press: str = ""
    #: Ids of the keys that do something.
    keys: Collection[str] = ALWAYS
    #: What the footer calls some of them here, by id.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: What was just done, for a moment in the place of what is true now.
    notice: Notice | None = None
    explained: tuple[str, Sequence[str]] | None = None


def first_frame(how: Literal["run", "attach", "open"]) -> Frame:
    """While nothing is known."""
    doing = {"run": "engine starting", "attach": "attaching", "open": "recorded"}[how]
    stages: Pieces = []
    for number, stage in enumerate(STAGES, start=1):
        stages += [(f" {number} {stage.capitalize()}", "dim"), (" ", "dim")]
    stages[0] = (f" 1 {STAGES[0].upper()}", "accent")
    return Frame(
        title=([(" amptui ", "accent")], [(doing, "dim"), (" ", "text")]),
        stages=stages,
        now=STARTING if how == "run" else "The session is being read.",
    )
