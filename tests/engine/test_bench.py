"""Progress is told ten times a second, and always at the beginning and at the end."""

from __future__ import annotations

from amptui.engine.bench import PROGRESS_S, Pace


def test_quick_steps_are_told_now_and_then_with_the_first_and_the_last() -> None:
    moment = 0.0
    pace = Pace(lambda: moment)
    told = []
    for done in range(1, 1001):
        moment = done * 0.001
        if pace.due(done, 1000):
            told.append(done)
    assert (told[0], told[-1]) == (1, 1000)
    assert len(told) <= 1.0 / PROGRESS_S + 2


def test_slow_steps_are_all_told_and_another_count_begins_at_once() -> None:
    moment = 0.0
    pace = Pace(lambda: moment)
    for done in range(1, 4):
        moment += 1.0
        assert pace.due(done, 3)
    assert pace.due(1, 50)
