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
        while any(at <= end for at, _ in self.due):
            self.due.sort(key=lambda planned: planned[0])
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


def flooded(clock: PaintClock, loop: Loop, seconds: float) -> None:
    end = loop.now + seconds
    while loop.now < end:
        clock.request()
        loop.run_until(loop.now + 0.001)


def test_painting_has_a_small_part_of_the_time_and_quick_painting_has_the_whole_rate_again() -> None:
    loop = Loop(cost=0.02)
    clock = PaintClock(loop.paint, loop.later, rate=8, now=lambda: loop.now)
    flooded(clock, loop, 5)
    loop.painted.clear()
    flooded(clock, loop, 8)
    assert len(loop.painted) * loop.cost <= 8 / 20
    assert len(loop.painted) >= 14
    loop.cost = 0.001
    flooded(clock, loop, 5)
    assert clock.interval == pytest.approx(0.125)


def test_one_slow_paint_is_not_the_rule() -> None:
    loop = Loop(cost=0.001)
    clock = PaintClock(loop.paint, loop.later, rate=8, now=lambda: loop.now)
    flooded(clock, loop, 1)
    loop.cost = 0.05
    flooded(clock, loop, 0.13)
    loop.cost = 0.001
    assert clock.interval < 0.05 * 24 * 0.6
    flooded(clock, loop, 2)
    assert clock.interval == pytest.approx(0.125)


def test_a_clock_that_comes_late_paints_less_often_and_recovers() -> None:
    loop = Loop(cost=0.001)
    clock = PaintClock(loop.paint, loop.later, rate=8, now=lambda: loop.now)
    for _ in range(4):
        clock.request()
        loop.now += 0.5  # the writer blocks
        loop.run_until(loop.now)
    assert clock.interval >= 0.25
    flooded(clock, loop, 5)
    assert clock.interval == pytest.approx(0.125)


def test_a_key_is_answered_at_once_while_a_flood_is_painted_at_the_rate() -> None:
    loop = Loop()
    clock = PaintClock(loop.paint, loop.later, rate=8, now=lambda: loop.now)
    flooded(clock, loop, 0.3)
    pressed = loop.now + 0.02
    loop.run_until(pressed)
    clock.request()
    clock.hurry()
    loop.run_until(pressed + 0.002)
    assert loop.painted[-1] == pytest.approx(pressed, abs=0.002)
    loop.run_until(pressed + 2)
    assert loop.painted[-1] == pytest.approx(pressed, abs=0.002), "what was planned before is not painted twice"


def test_a_key_held_down_does_not_paint_without_end() -> None:
    loop = Loop()
    clock = PaintClock(loop.paint, loop.later, rate=8, now=lambda: loop.now)
    for tick in range(1000):
        clock.hurry()
        loop.run_until(100 + tick / 1000)
    assert len(loop.painted) <= 35
