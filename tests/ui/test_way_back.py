"""`F`: what runs is ended first, a hang is offered a new engine, a dead engine is replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from amptui.protocol import events as told
from amptui.protocol.commands import Cancel, Command, FallBack
from amptui.session.death import EngineDeath
from amptui.session.state import SessionState, died, reduce
from amptui.ui.around import around as frame_around
from amptui.ui.dialogs.question import Question
from amptui.ui.guidance import guidance
from amptui.ui.key_names import AS_DECLARED
from amptui.ui.moves import Situation
from amptui.ui.raster.glyphs import UNICODE
from amptui.ui.way_back import WayBack
from tests.report.stages import Told, baseline, ended, locked, opened, trial_started

READY = (*opened(), ended("project"), *baseline(), ended("baseline"), *locked(), ended("criteria"))
RUNNING = (*READY, *trial_started())
DEATH = EngineDeath(how="SIGKILL", words="The engine was killed.", last_output=())
BACK = told.FellBack(checkpoint="fp32", verified=6, proven=True)


class Around:
    """A screen and an engine that do what they are told, and time that passes when asked to."""

    session = "20260101-tiny"
    keys = AS_DECLARED

    def __init__(self, *events: object) -> None:
        self.state = SessionState()
        self.connected = True
        self.sent: list[Command] = []
        self.questions: list[tuple[Question, Callable[[str], None]]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.restarts = 0
        self.starting = False
        self.way_back = WayBack(self)
        self.tell(*events)

    def tell(self, *events: object) -> None:
        for event in events:
            if isinstance(event, EngineDeath):
                self.state, self.connected = died(self.state, event), False
            else:
                self.state = reduce(self.state, event)  # type: ignore[arg-type]
            self.way_back.notice(event)  # type: ignore[arg-type]

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def ask(self, question: Question, answered: Callable[[str], None]) -> None:
        self.questions.append((question, answered))

    def withdraw(self, question: Question) -> None:
        self.questions = [asked for asked in self.questions if asked[0] is not question]

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timers.append((seconds, callback))

    def restart_engine(self) -> None:
        self.restarts += 1

    def five_seconds(self) -> None:
        self.pass_time(5.0)

    def pass_time(self, seconds: float) -> None:
        due = [timer for after, timer in self.timers if after <= seconds]
        self.timers = [(after - seconds, timer) for after, timer in self.timers if after > seconds]
        for timer in due:
            timer()


def confirmed(*events: object) -> Around:
    around = Around(*events)
    around.way_back.ask()
    question, answered = around.questions.pop()
    assert [option.key for option in question.options] == ["F"]
    assert not around.sent
    answered("yes")
    return around


def test_an_engine_that_waits_restores_at_once() -> None:
    around = confirmed(*READY)
    assert around.sent == [FallBack()]
    around.tell(BACK)
    assert not around.way_back.underway


def test_a_running_trial_is_ended_before_the_restore_is_sent() -> None:
    around = confirmed(*RUNNING)
    assert around.sent == [Cancel()]
    around.tell(told.Cancelled(stage="trial"))
    assert around.sent == [Cancel()]
    around.tell(ended("trial", completed=False))
    assert around.sent == [Cancel(), FallBack()]


def test_a_phase_that_hangs_is_offered_a_new_engine_that_restores_the_checkpoint() -> None:
    around = confirmed(*RUNNING)
    around.five_seconds()
    question, answered = around.questions.pop()
    assert [option.key for option in question.options] == ["N", "w"]
    answered("new")
    assert around.restarts == 1
    around.tell(*opened()[:1], told.StageStarted(stage="project"))
    around.tell(BACK)
    assert not around.way_back.underway


def test_waiting_on_asks_again_after_another_five_seconds() -> None:
    around = confirmed(*RUNNING)
    around.five_seconds()
    around.questions.pop()[1]("wait")
    around.five_seconds()
    assert around.questions[-1][0].title == "the engine does not answer"


def test_an_answer_that_comes_too_late_starts_no_second_engine() -> None:
    around = confirmed(*RUNNING)
    around.five_seconds()
    [(_, answered)] = around.questions
    around.tell(ended("trial", completed=False), BACK)
    assert not around.questions, "it is no longer asked"
    answered("new")
    assert around.restarts == 0


def test_an_engine_that_is_on_its_way_already_is_brought_back_once_it_has_opened_the_project() -> None:
    around = Around(*RUNNING)
    around.starting = True
    around.way_back.begin()
    around.tell(ended("trial", completed=False))  # the last word of the engine before
    assert (around.restarts, around.sent) == (0, [])
    around.five_seconds()
    assert not around.questions, "it imports torch: that takes longer"
    around.starting = False
    around.tell(*opened(), ended("project"))
    assert around.sent == [FallBack()]


def test_a_timer_of_an_earlier_fall_back_asks_nothing() -> None:
    around = confirmed(*READY)
    around.tell(BACK, DEATH)
    around.way_back.begin()
    around.five_seconds()
    assert not around.questions


def test_a_dead_engine_is_replaced_and_one_that_dies_meanwhile_too() -> None:
    around = Around(*RUNNING, DEATH)
    around.way_back.begin()
    assert (around.restarts, around.sent) == (1, [])
    around = confirmed(*RUNNING)
    around.tell(DEATH)
    assert around.restarts == 1


def test_a_new_engine_that_does_not_open_the_project_is_asked_about_again_and_can_be_left() -> None:
    around = Around(*RUNNING, DEATH)
    around.way_back.begin()
    around.pass_time(10.0)
    assert not around.questions, "torch may still be imported"
    around.pass_time(20.0)
    question, answered = around.questions.pop()
    assert [option.key for option in question.options] == ["N", "w", "s"]
    assert "amptui restore 20260101-tiny" in str(question.paragraphs)
    answered("new")
    assert around.restarts == 2
    around.pass_time(30.0)
    around.questions.pop()[1]("stop")
    assert not around.way_back.underway


def test_an_engine_that_dies_whenever_it_opens_the_project_is_not_started_for_ever() -> None:
    around = Around(*RUNNING, DEATH)
    around.way_back.begin()
    for _ in range(5):
        around.tell(DEATH)
    assert around.restarts == 2
    assert not around.way_back.underway


def test_where_the_project_cannot_be_opened_the_shell_is_named_and_the_cause_stays() -> None:
    refused = told.Refused(code="syntax", message="mine.py:14: invalid syntax")
    around = Around(*READY, told.StageStarted(stage="project"), refused, ended("project", completed=False))
    around.way_back.ask()
    question, answered = around.questions.pop()
    assert "invalid syntax" in str(question.paragraphs)
    assert "amptui restore 20260101-tiny" in str(question.paragraphs)
    answered("keep")
    assert (around.sent, around.restarts, around.way_back.underway) == ([], 0, False)
    assert around.state.obstacle is refused


def test_what_stands_in_the_way_ends_it_and_is_told() -> None:
    around = confirmed(*READY)
    around.tell(told.Refused(code="checkpoint", message="the file is damaged"))
    assert not around.way_back.underway
    assert around.state.refusal is not None


def test_the_events_here_are_a_session() -> None:
    events: Told = RUNNING
    assert Around(*events).state.stages["trial"] == "running"


def test_on_the_way_back_it_is_said_what_happens_now() -> None:
    for events, starting, says in (
        (RUNNING, False, "what runs ends at its next safe point"),
        ((*RUNNING, DEATH), True, "A new engine is starting: it imports torch and then your project. Then the FP32"),
        ((*READY, told.StageStarted(stage="project")), False, "The new engine loads your project. Then the FP32"),
        (READY, False, "Falling back: the FP32 checkpoint is restored"),
    ):
        now = Situation(Around(*events).state, "trial", falling_back=True, starting=starting)
        assert says in guidance(now).now
        assert ("what runs" in guidance(now).now) == (events is RUNNING)


def test_the_title_tells_an_engine_that_starts_from_one_that_is_gone() -> None:
    gone = Situation(Around(*RUNNING, DEATH).state, "trial", connected=False)
    for now, says in ((gone, "engine gone"), (replace(gone, starting=True), "engine starting")):
        _, right = frame_around(now, UNICODE, explain=False).title
        assert says in "".join(text for text, _ in right)
    assert "imports torch" in guidance(replace(gone, starting=True)).now
