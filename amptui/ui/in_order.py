"""Keys in the order in which they were typed, however fast they come: over a slow line they arrive in bursts.

Left to itself the framework hands a key to the focused widget, where a letter is written at once, while a key that is
bound comes back through every container first: `ctrl+u 0 . 1` then ends as an empty entry. And what is typed right
behind a key that opens a question, or another page, would go to the page that is still there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from textual import events
from textual.app import App, ScreenStackError

if TYPE_CHECKING:
    from amptui.ui.dialogs.dialog import Dialog

#: Seconds that a key waits for what the key before it began.
_PATIENCE_S = 2.0


class Arrival:
    """Whether the page that was asked for last is there."""

    def __init__(self) -> None:
        self._there = asyncio.Event()
        self._there.set()
        self._asked = 0

    def begin(self) -> int:
        """Another page is asked for; the number is handed to `end`."""
        self._there.clear()
        self._asked += 1
        return self._asked

    def end(self, number: int) -> None:
        """The page with this number is there, or will not come."""
        if number == self._asked:
            self._there.set()

    async def wait(self) -> None:
        """Until it is there; not for ever, as keys must go on working."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._there.wait(), _PATIENCE_S)


class InOrder(App[int]):
    """Carries out each key before it looks at the next. A question takes all keys from the moment it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.arrival = Arrival()

    @property
    def dialog(self) -> Dialog | None:
        """The question that is asked now."""
        raise NotImplementedError

    def arrive(self, going: Callable[[], Awaitable[None]]) -> None:
        """Begins `going`, which the keys that come after it wait for; what was begun before is given up."""
        number = self.arrival.begin()

        async def change() -> None:
            try:
                await going()
            finally:
                self.arrival.end(number)

        self.run_worker(change(), exclusive=True)

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded or not self._on_own_screen:
            await super().on_event(event)
            return
        self.app_focus = True
        await self.arrival.wait()
        if self.dialog is not None:
            await self.dialog.take(event)
        elif isinstance(event, events.Key) and not await self._check_bindings(event.key, priority=True):
            await self._check_bindings(event.key)

    @property
    def _on_own_screen(self) -> bool:
        """Not where the framework's list of commands stands over it."""
        try:
            return self.screen.id == "_default"
        except ScreenStackError:
            return False
