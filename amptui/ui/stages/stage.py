"""What every stage is: a container of panes that shows one value, the session as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.containers import Container

from amptui.ui.theme import Look

if TYPE_CHECKING:
    from amptui.ui.moves import Situation
    from amptui.ui.session_view import SessionView


@dataclass(frozen=True)
class Shown:
    """What is painted: the session, where it stands, and the update that plots and layers are about."""

    view: SessionView
    situation: Situation
    update: str = ""


class Stage(Container):
    """One page of the screen. `show` hands each pane its value; a pane repaints only what differs."""

    def __init__(self, look: Look, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.look = look

    def show(self, shown: Shown) -> None:
        raise NotImplementedError
