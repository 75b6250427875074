"""The pages of the screen and their order; nothing here knows what a session is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from amptui.protocol.events import StageName

Page = Literal[
    "project",
    "baseline",
    "criteria",
    "trial",
    "verdict",
    "measure",
    "report",
    "output",
    "events",
    "help",
    "diagnosis",
    "cases",
]
#: As the protocol names them, in their order.
STAGES: tuple[StageName, ...] = ("project", "baseline", "criteria", "trial", "verdict", "measure", "report")
