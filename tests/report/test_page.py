"""The passing progress line: seldom painted, erased afterwards, and on a real terminal only."""

from __future__ import annotations

import io

import pyte
import pytest
from rich.console import Console

from amptui.protocol import events as told
from amptui.report.account import Account
from amptui.session.state import SessionState, reduce
from tests.report import stages
from tests.report.sessions import terminal


class TestProgress:
    def session(self, console: Console, steps: int, seconds: float) -> str:
        """A stretch of which each step takes `seconds`."""
        now = 0.0
        account = Account(console, spec="s", session="x", clock=lambda: now)
        state = SessionState()
        for event in (*stages.trial_started(), *(e for n in range(steps) for e in self.step(n))):
            state = reduce(state, event)
            account.on_event(event, state)
            now += seconds / 2
        account.on_event(stages.ended("trial"), reduce(state, stages.ended("trial")))
        written = console.file
        assert isinstance(written, io.StringIO)
        return written.getvalue()

    @staticmethod
    def step(number: int) -> tuple[told.Event, told.Event]:
        return stages.iteration(number), stages.progress(number + 1)

    def test_a_terminal_sees_how_far_it_is(self) -> None:
        text = self.session(terminal(), steps=3, seconds=1.0)

        assert "2 of 40 · 2 applied · scale 2^16" in text

    def test_at_most_four_a_second(self) -> None:
        painted = self.session(terminal(), steps=40, seconds=0.01).count(" of 40")

        assert 1 <= painted <= 2

    def test_it_is_erased_afterwards(self) -> None:
        screen = pyte.Screen(80, 24)
        text = self.session(terminal(), steps=40, seconds=1.0)
        pyte.Stream(screen).feed(text.replace("\n", "\r\n"))

        assert text.count(" of 40") == 40
        assert [line for line in screen.display if " of 40" in line] == []

    def test_it_never_takes_more_than_one_line(self) -> None:
        screen = pyte.Screen(30, 24)
        text = self.session(terminal(30), steps=2, seconds=1.0)
        pyte.Stream(screen).feed(text.replace("\n", "\r\n"))

        assert [line for line in screen.display if "stretch" in line] == []

    @pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "unknown"}])
    def test_a_terminal_that_cannot_erase_gets_none(self, environment: dict[str, str]) -> None:
        text = self.session(terminal(**environment), steps=40, seconds=1.0)

        assert " of 40" not in text
        assert "\r" not in text
        assert "\x1b" not in text

    def test_a_log_gets_none_even_where_colour_is_forced(self) -> None:
        console = Console(file=io.StringIO(), width=80, _environ={"FORCE_COLOR": "1", "TERM": "xterm"})
        text = self.session(console, steps=40, seconds=1.0)

        assert " of 40" not in text
        assert "\r" not in text
