"""The passing progress line, seldom painted and on a real terminal only; commands that can be copied."""

from __future__ import annotations

import io
import shlex

import pyte
import pytest
from rich.console import Console

from amptui.protocol import events as told
from amptui.report.account import Account
from amptui.report.page import Page
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


class TestCommand:
    WORDS = ("amptui restore", "20261129-193255-examples-transformer-0d54", "-o fp32.pt")

    def written(self, width: int, *words: str) -> str:
        paper = io.StringIO()
        Page(Console(file=paper, width=width, color_system=None)).command(*words)
        return paper.getvalue()

    @pytest.mark.parametrize("width", [120, 90, 80, 72, 70])
    def test_it_stays_on_one_line_where_it_fits(self, width: int) -> None:
        assert self.written(width, *self.WORDS).strip().splitlines() == [" ".join(self.WORDS)]

    @pytest.mark.parametrize("width", [66, 60, 40, 25])
    def test_a_narrow_terminal_shows_what_a_shell_takes_as_one_command(self, width: int) -> None:
        text = self.written(width, *self.WORDS)

        assert len(text.splitlines()) > 1
        assert shlex.split(text.replace("\\\n", "")) == " ".join(self.WORDS).split()
        assert all(len(line) <= width or self.WORDS[1] in line for line in text.splitlines())

    def test_a_path_is_never_cut(self) -> None:
        path = "'/a long/path with blanks/" + "x" * 90 + "'"

        assert path in self.written(60, "amptui restore", path, "--verify")
