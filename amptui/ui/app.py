"""The program on the screen, as far as the first paint needs it; what knows the session is at its desk.

The first paint shows the frame. Only then is the desk imported: a session's events are more than a hundred classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.app import SystemCommand
from textual.binding import BindingType
from textual.screen import Screen as TextualScreen

from amptui.ui.frame import first_frame
from amptui.ui.in_order import InOrder
from amptui.ui.key_names import KeyNames
from amptui.ui.keys import KEYS, Key, keymap, shown, textual_bindings
from amptui.ui.main_screen import LAYOUT, MainScreen
from amptui.ui.notices import Noticing
from amptui.ui.start import Start
from amptui.ui.terminal import TerminalGuard
from amptui.ui.theme import textual_theme

if TYPE_CHECKING:
    from amptui.protocol.events import Event
    from amptui.session.death import EngineDeath
    from amptui.ui.desk import Desk
    from amptui.ui.dialogs.dialog import Dialog
    from amptui.ui.engine_room import EngineRoom

    #: Makes the place where the engine is, given what takes what it tells.
    MakeRoom = Callable[[Callable[[Event | EngineDeath], None]], EngineRoom]

#: Keys of panes are declared by the panes.
OF_PANES = ("Move", "Table", "Plot")


class AmptuiApp(Noticing, InOrder):
    """One session on the screen: run, attached to, or recorded."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *textual_bindings([key for key in KEYS if key.group not in OF_PANES], action="press('{}')")
    ]
    CSS = LAYOUT

    def __init__(self, start: Start, guard: TerminalGuard | None = None, room: MakeRoom | None = None) -> None:
        super().__init__()
        self.start = start
        self.guard = guard
        self.register_theme(textual_theme(start.look.theme))
        self.theme = f"amptui-{start.look.theme}"
        self.set_keymap(keymap(start.keys))
        self.key_names = KeyNames(start.keys, start.look.glyphs)
        self.main = MainScreen(start.look, start.keys, first_frame(start.how))
        #: None until the first paint is done.
        self.desk: Desk | None = None
        #: What to print once the terminal is back.
        self.last_words = ""
        self._room = room

    def get_default_screen(self) -> MainScreen:
        return self.main

    @property
    def dialog(self) -> Dialog | None:
        return self.main.dialog

    def on_mount(self) -> None:
        if self.guard is not None:
            self.guard.listen(self.end_at_once)
        self.call_after_refresh(self._begin)

    async def _begin(self) -> None:
        from amptui.ui.desk import Desk  # noqa: PLC0415 - see above

        self.desk = Desk(self, self._room)
        await self.desk.begin()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what does something now; the framework's own actions always."""
        if action != "press":
            return super().check_action(action, parameters)
        return self.desk is not None and parameters[0] in self.desk.active

    async def action_press(self, key: str) -> None:
        """What the key with the id `key` does."""
        if self.desk is not None:
            await self.desk.press(key)

    async def action_quit(self) -> None:
        """`ctrl+q`, which the framework binds, asks as every way out does."""
        if self.desk is None:
            self.exit(0)
        else:
            self.desk.leave()

    def on_table_pane_moved(self) -> None:
        """What is told about a row follows the cursor."""
        self._repaint()

    def on_main_screen_rearranged(self) -> None:
        self._repaint()

    def noticed_changed(self) -> None:
        self._repaint()

    def _repaint(self) -> None:
        if self.desk is not None:
            self.desk.repaint()

    def end_at_once(self) -> None:
        """The terminal goes away; the engine stays."""
        if self.desk is not None:
            self.desk.leave_engine()
        self.exit(0)

    def get_system_commands(self, screen: TextualScreen[object]) -> Iterable[SystemCommand]:  # noqa: ARG002
        """Every key that does something now, by its help."""
        ids = self.desk.active if self.desk is not None else ()
        commands: list[Key] = [key for key in self.start.keys if key.id in ids and key.id != "command_palette"]
        for key in commands:
            action = f"press('{key.id}')"
            yield SystemCommand(key.help, f"key {shown(key.keys[0])}", lambda action=action: self.run_action(action))
