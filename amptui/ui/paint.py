"""When to paint: at most so many times a second, only if something changed, never while nothing does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

#: Seconds to a paint that is due now: the framework divides by the delay of a timer that is late.
SOON = 0.001


class Later(Protocol):
    """Runs a callback after a number of seconds: `App.set_timer`, `loop.call_later`."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> object: ...


class PaintClock:
    """Turns any number of `request` calls into at most `rate` calls of `paint` a second.

    There is no periodic timer: an idle screen has none at all, and writes nothing. The first request after a quiet time
    paints at once, so that a key is answered without waiting. Where painting itself takes longer than its share (a slow
    link blocks the writer), the rate halves down to one a second, and recovers as painting gets quick again.
    """

    def __init__(
        self, paint: Callable[[], None], later: Later, rate: float = 8.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._paint = paint
        self._later = later
        self._now = now
        self._shortest = 1.0 / rate
        self.interval = self._shortest
        self._waiting = False
        self._last = -1e9

    def request(self) -> None:
        """Something that is shown has changed."""
        if self._waiting:
            return
        self._waiting = True
        self._later(max(SOON, self._last + self.interval - self._now()), self._run)

    def _run(self) -> None:
        started = self._now()
        # Cleared first: what changes while painting asks for another one.
        self._waiting = False
        self._last = started
        self._paint()
        self._adapt(self._now() - started)

    def _adapt(self, took: float) -> None:
        if took > self.interval:
            self.interval = min(1.0, self.interval * 2)
        elif took < self._shortest / 4 and self.interval > self._shortest:
            self.interval = max(self._shortest, self.interval / 2)
