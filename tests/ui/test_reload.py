"""`R`: a new engine, the project as its source is now, the kept case first; whatever stands in its way ends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amptui.protocol import events as told
from amptui.protocol.commands import Command, ReplayCase
from amptui.session.death import EngineDeath
from amptui.session.state import SessionState, reduce
from amptui.ui.guidance import guidance
from amptui.ui.moves import Situation, active, next_stage
from amptui.ui.reload import Reload, case_to_replay
from tests.report.stages import Told, ended, locked, opened, started, trial_started, trip

KEPT = told.CaseRetained(id="kept-1", step=1, update="main", case=None, outcome="bad_loss", path="kept-1.pt", bytes=1)
TRIPPED: Told = (
    *opened(),
    ended("project"),
    *locked(),
    *trial_started(),
    KEPT,
    trip(1),
    told.Paused(step=1, why="the guard held an update back"),
)
REPLAYED = told.CaseReplayed(id="kept-1", step=1, update="main", outcome="fixed", replayed="traced", findings=())
AGAIN: Told = opened()  # to the end of the stage


class Around:
    """A screen that only remembers what it was asked for."""

    def __init__(self, *events: object) -> None:
        self.state = SessionState()
        self.sent: list[Command] = []
        self.restarts = 0
        self.shown: list[str] = []
        self.reload = Reload(self)
        self.tell(*events)

    def tell(self, *events: object) -> None:
        for event in events:
            if not isinstance(event, EngineDeath):
                self.state = reduce(self.state, event)  # type: ignore[arg-type]
            self.reload.notice(event)  # type: ignore[arg-type]

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def restart_engine(self) -> None:
        self.restarts += 1

    def show_failure(self, retained: str) -> None:
        self.shown.append(retained)


def begun() -> Around:
    around = Around(*TRIPPED)
    around.reload.begin(case_to_replay(around.state, None))
    return around


def test_a_new_engine_opens_the_project_and_the_kept_case_runs_first() -> None:
    around = begun()
    assert (around.restarts, around.sent) == (1, [])
    around.tell(*AGAIN)
    assert around.sent == [ReplayCase(id="kept-1")]
    around.tell(told.StageStarted(stage="trial"), REPLAYED, ended("trial"))
    assert around.shown == ["kept-1"]
    assert not around.reload.underway
    assert next_stage(around.state) == "baseline"
    said = guidance(Situation(around.state, "diagnosis"))
    assert said.now.startswith("Fixed")
    assert "proceed" in active(Situation(around.state, "diagnosis"))


def test_the_case_that_is_looked_at_is_replayed_else_the_newest_else_none() -> None:
    state = Around(*TRIPPED).state
    assert case_to_replay(state, "kept-0") == "kept-0"
    assert case_to_replay(state, None) == "kept-1"
    assert case_to_replay(SessionState(), None) is None


@pytest.mark.parametrize(
    "trouble",
    [
        EngineDeath(how="SIGKILL", words="killed", last_output=()),
        told.Refused(code="import", message="a syntax error"),
        told.EngineFailed(message="m", where=None),
    ],
    ids=["death", "refused", "failed"],
)
def test_what_keeps_the_project_from_opening_ends_it(trouble: object) -> None:
    around = begun()
    around.tell(trouble)
    assert not around.reload.underway
    around.tell(ended("project", completed=False))
    assert around.sent == []


def test_a_refused_edit_can_be_corrected_and_loaded_again() -> None:
    around = begun()
    around.tell(started("project"), told.Refused(code="import", message="a syntax error", hint="Correct it."))
    around.tell(ended("project", completed=False))
    now = Situation(around.state, "diagnosis")
    assert "reload" in active(now)
    assert "R loads it again" in guidance(now).press


def test_it_is_offered_at_rest_only_and_not_without_an_engine_to_start() -> None:
    paused = Around(*TRIPPED).state
    assert "reload" in active(Situation(paused, "trial"))
    running = reduce(paused, told.Running(what="run"))
    for now in (
        Situation(running, "trial"),
        Situation(paused, "trial", mode="recorded"),
        Situation(paused, "trial", can_restart=False),
        Situation(paused, "trial", reloading=True),
        Situation(SessionState(), "project"),
    ):
        assert "reload" not in active(now)


def test_while_a_new_engine_starts_it_is_said_what_follows() -> None:
    paused, nothing_kept = Around(*TRIPPED).state, Around(*opened(), ended("project")).state
    for state, follows in (
        (paused, "Then the failed iteration runs once more."),
        (nothing_kept, "No failed iteration"),
    ):
        now = Situation(state, "trial", reloading=True, starting=True)
        assert "new engine is starting: it imports torch" in guidance(now).now
        assert "source as it is now" in guidance(now).now
        assert follows in guidance(now).now
        assert follows in guidance(replace(now, starting=False)).now
    replaying = reduce(nothing_kept, told.StageStarted(stage="project", aside=True))
    assert "The failed iteration runs" in guidance(Situation(replaying, "trial", reloading=True)).now
