"""When to paint: at most so many times a second, only if something changed, never while nothing does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

#: Seconds to a paint that is due now: the framework divides by the delay of a timer that is late.
SOON = 0.001
#: Seconds between paints that keys ask for: a key that is held down comes 30 times a second.
QUICK = 0.03
#: Painting has at most one part in so many of the time; what the framework then writes takes about half as long again.
SHARE = 24
#: The longest pause between two paints, in seconds.
LONGEST = 1.0


class Later(Protocol):
    """Runs a callback after a number of seconds: `App.set_timer`, `loop.call_later`."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> object: ...


class PaintClock:
    """Turns any number of `request` calls into at most `rate` calls of `paint` a second.

    There is no periodic timer: an idle screen has none at all, and writes nothing. The first request after a quiet time
    paints at once. Painting leaves the processor to the engine: where it takes long (a slow machine, a large terminal)
    there are fewer paints, and fewer still where the clock itself comes late, as a slow link blocks the writer. What a
    key asks for does not wait for that.
    """

    def __init__(
        self, paint: Callable[[], None], later: Later, rate: float = 8.0, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._paint = paint
        self._later = later
        self._now = now
        self._shortest = 1.0 / rate
        self.interval = self._shortest
        #: When the next paint is due; None while nothing has changed.
        self._due: float | None = None
        self._last = -1e9
        self._took = 0.0

    def request(self) -> None:
        """Something that is shown has changed."""
        if self._due is None:
            self._plan(self.interval)

    def hurry(self) -> None:
        """A key has changed something: its answer comes at once."""
        if self._due is None or self._due > max(self._now(), self._last + QUICK):
            self._plan(QUICK)

    def _plan(self, interval: float) -> None:
        now = self._now()
        self._due = max(now, self._last + interval)
        self._later(max(SOON, self._due - now), self._run)

    def _run(self) -> None:
        started = self._now()
        if self._due is None or started < self._due - SOON:
            return  # a key was quicker than the paint that this was planned for
        late = started - self._due - SOON
        # Cleared first: what changes while painting asks for another one.
        self._due = None
        self._last = started
        self._paint()
        self._adapt(self._now() - started, late)

    def _adapt(self, took: float, late: float) -> None:
        self._took = (self._took + took) / 2  # one slow paint, such as a page's first, is not the rule
        wanted = self._took * SHARE
        if late > self.interval / 2:
            wanted = max(wanted, self.interval * 2)
        self.interval = min(LONGEST, max(self._shortest, wanted, self.interval / 2))
