"""Painting: at once after a quiet time, then at the rate, slower on a slow link, never when idle."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amptui.ui.paint import PaintClock


class Loop:
    """Time that passes only when told to."""

    def __init__(self, cost: float = 0.0) -> None:
        self.now = 100.0
        self.cost = cost
        self.painted: list[float] = []
        self.due: list[tuple[float, Callable[[], None]]] = []

    def later(self, delay: float, callback: Callable[[], None]) -> None:
        self.due.append((self.now + delay, callback))

    def paint(self) -> None:
        self.painted.append(self.now)
        self.now += self.cost

    def run_until(self, end: float) -> None:
        while self.due and self.due[0][0] <= end:
            at, callback = self.due.pop(0)
            self.now = max(self.now, at)
            callback()
        self.now = max(self.now, end)


def test_the_first_change_after_a_quiet_time_is_painted_at_once() -> None:
    loop = Loop()
    clock = PaintClock(loop.paint, loop.later, rate=8, now=lambda: loop.now)
    clock.request()
    loop.run_until(100.01)
    assert loop.painted == pytest.approx([100.0], abs=0.002)


def test_a_flood_of_changes_is_painted_at_the_rate_and_the_last_one_too() -> None:
    loop = Loop()
    clock = PaintClock(loop.paint, loop.later, rate=8, now=lambda: loop.now)
    for tick in range(1000):
        clock.request()
        loop.run_until(100 + tick / 1000)
    loop.run_until(102)
    assert 8 <= len(loop.painted) <= 9
    assert loop.painted[-1] >= 100.999


def test_nothing_is_scheduled_while_nothing_changes() -> None:
    loop = Loop()
    clock = PaintClock(loop.paint, loop.later, rate=8, now=lambda: loop.now)
    clock.request()
    loop.run_until(200)
    assert loop.due == []
    assert len(loop.painted) == 1


def test_a_change_made_while_painting_is_painted_next() -> None:
    loop = Loop()
    clock: PaintClock

    def paint() -> None:
        loop.paint()
        if len(loop.painted) == 1:
            clock.request()

    clock = PaintClock(paint, loop.later, rate=8, now=lambda: loop.now)
    clock.request()
    loop.run_until(101)
    assert loop.painted == pytest.approx([100.0, 100.125], abs=0.002)


def test_slow_painting_halves_the_rate_and_quick_painting_restores_it() -> None:
    loop = Loop(cost=0.4)
    clock = PaintClock(loop.paint, loop.later, rate=8, now=lambda: loop.now)
    for _ in range(4):
        clock.request()
        loop.run_until(loop.now + 2)
    assert clock.interval == pytest.approx(0.5)
    loop.cost = 0.001
    for _ in range(4):
        clock.request()
        loop.run_until(loop.now + 2)
    assert clock.interval == pytest.approx(0.125)
