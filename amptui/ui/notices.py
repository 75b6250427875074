"""What was just done, told for a moment where it covers nothing that leads on; never in a box over the page."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import App

from amptui.ui.key_names import AS_DECLARED, KeyNames
from amptui.ui.raster.glyphs import Glyphs
from amptui.ui.raster.line import Role
from amptui.ui.raster.prose import Paragraph, paragraph

#: Seconds that a notice stays; what went wrong stays longer.
_STAYS_S, _BAD_STAYS_S = 6.0, 12.0
_ROLES: dict[str, Role] = {"information": "good", "warning": "warn", "error": "bad"}


@dataclass(frozen=True)
class Notice:
    """A sentence, and whether it is good news."""

    words: str
    role: Role = "good"

    def told(self, glyphs: Glyphs) -> Paragraph:
        """With its mark, as a colour alone says nothing."""
        mark = {"good": glyphs.ok, "warn": glyphs.warn}.get(self.role, glyphs.fail)
        return paragraph(self.words, self.role, lead=f"{mark} ", lead_role=self.role)


class Noticing(App[int]):
    """Keeps the newest notice for its time; `noticed_changed` paints it."""

    noticed: Notice | None = None
    #: How sentences call the keys.
    key_names: KeyNames = AS_DECLARED

    def noticed_changed(self) -> None:
        raise NotImplementedError

    def notify(
        self,
        message: str,
        *,
        title: str = "",  # noqa: ARG002 - as the framework calls it
        severity: str = "information",
        timeout: float | None = None,
        markup: bool = True,  # noqa: ARG002
    ) -> None:
        notice = Notice(message, _ROLES.get(severity, "good"))
        self.noticed = notice

        def over() -> None:
            if self.noticed is notice:
                self.noticed = None
                self.noticed_changed()

        self.set_timer(timeout or (_BAD_STAYS_S if notice.role == "bad" else _STAYS_S), over)
        self.noticed_changed()

    def action_help_quit(self) -> None:
        """ctrl+c, which ends other programs."""
        self.notify(self.key_names.say("ctrl+c ends nothing here: {back} leads out."), severity="warning")
