"""What is sent for a key, and what is asked first: stages behind the verdict, policies side by side, files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from amptui.findings.finding import Finding
from amptui.protocol import events as told
from amptui.protocol.commands import (
    Cancel,
    Command,
    Condition,
    Continue,
    FindCases,
    LockCriteria,
    Measure,
    MeasureSeeds,
    ProposeCriteria,
    RunTrial,
)
from amptui.session.death import EngineDeath
from amptui.session.state import SessionState
from amptui.ui.dialogs.question import Question
from amptui.ui.moves import Situation, active
from amptui.ui.pages import Page
from amptui.ui.steering import PROPOSED_ANEW, Steering
from tests.report import measured
from tests.report.stages import baseline, ended, iteration, locked, opened, trial_started, trip
from tests.ui.test_moves import ACCEPTED, FOUND, REJECTED, after

BOTH = (
    *opened()[:-3],
    *(told.Probed(dtype=dtype, supported=True) for dtype in ("float16", "bfloat16")),
    ended("project"),
)
BEFORE_LOCK = after(*BOTH, *baseline())
LOCKED = after(*locked(), state=BEFORE_LOCK)


@dataclass
class Screen:
    """Answers each question with the next of `answers`."""

    state: SessionState
    page: Page = "verdict"
    answers: list[str] = field(default_factory=list)
    sent: list[Command] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)
    asked: list[Question] = field(default_factory=list)
    reports: list[tuple[Path, str]] = field(default_factory=list)
    session_id: str = "20260101-tiny"

    def __post_init__(self) -> None:
        self.steering = Steering(self)

    @property
    def situation(self) -> Situation:
        return Situation(self.state, self.page, planned=self.steering.planned)

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def ask(self, question: Question, answered: Callable[[str], None]) -> None:
        self.asked.append(question)
        if self.answers:
            answer = self.answers.pop(0)
            if question.check is not None:
                question.check(answer)
            answered(answer)

    def go(self, page: Page) -> None:
        self.page = page
        self.pages.append(page)

    def changed_criteria(self, criteria: object) -> None:
        """Nothing is shown."""

    def repaint(self) -> None:
        """Nothing is painted."""

    def write_report(self, path: Path, format: str) -> None:  # noqa: A002
        self.reports.append((path, format))


def test_c_measures_what_was_accepted_then_shows_and_writes_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    screen = Screen(ACCEPTED, answers=["html", "out.html"])
    screen.steering.proceed()
    screen.steering.proceed()
    assert (screen.pages, screen.sent) == (["measure"], [Measure(trial=1)])
    screen.state = after(measured.measured(1), state=ACCEPTED)
    screen.steering.proceed()
    screen.steering.proceed()
    assert screen.pages == ["measure", "report"]
    assert screen.reports == [(tmp_path / "out.html", "html")]
    assert screen.asked[-1].entry == "20260101-tiny.html"


def test_an_existing_file_is_written_over_only_when_that_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.md").write_text("old")
    screen = Screen(ACCEPTED, page="report", answers=["md", "old.md"])
    screen.steering.proceed()
    assert screen.reports == []
    assert screen.asked[-1].title == "there is such a file"

    screen.answers = ["md", "old.md", "name", "new.md"]
    screen.steering.proceed()
    screen.answers = ["md", "old.md", "overwrite"]
    screen.steering.proceed()
    assert screen.reports == [(tmp_path / "new.md", "md"), (tmp_path / "old.md", "md")]


@pytest.mark.parametrize(
    ("text", "says"), [(" ", "write the name"), (".", "is a folder"), ("no/such/r.md", "no such folder")]
)
def test_a_file_that_cannot_be_is_refused_where_it_is_written(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=says):
        Screen(ACCEPTED, page="report", answers=["md", text]).steering.proceed()


def test_other_seeds_and_found_cases_are_one_command_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    screen = Screen(ACCEPTED, page="measure")
    screen.steering.yardstick()
    assert screen.sent == [MeasureSeeds()]

    screen = Screen(after(*opened()), page="project", answers=["found.pt"])
    screen.steering.find_cases()
    screen.state = after(FOUND, state=screen.state)
    screen.steering.proceed()
    assert screen.pages == ["cases"]
    assert screen.sent == [FindCases(), FindCases(path=str(tmp_path / "found.pt"))]


def finished(trial: int = 1, dtype: str = "float16") -> tuple[Any, ...]:
    return tuple(measured.trial(trial, dtype, "accept", scaled=dtype == "float16"))


def tell(screen: Screen, *events: Any) -> None:
    for event in events:
        screen.state = after(event, state=screen.state)
        screen.steering.notice(event)


def test_policies_chosen_before_the_first_trial_are_planned_and_run_one_after_the_other() -> None:
    screen = Screen(LOCKED, page="criteria", answers=["e"])
    screen.steering.policies()
    tell(screen, *finished())
    tell(screen, *finished(2, "bfloat16"))
    assert screen.sent == [
        RunTrial(policy={"dtype": "float16"}, planned=True),
        RunTrial(policy={"dtype": "bfloat16"}, planned=True),
    ]
    assert screen.pages[-1] == "measure"
    tell(screen, *finished(3))
    assert len(screen.sent) == 2


def test_a_policy_that_was_thought_of_after_a_trial_is_not_called_planned() -> None:
    screen = Screen(after(*finished(), state=LOCKED), answers=["write", "fp16@1024"])
    screen.steering.policies()
    assert screen.sent == [RunTrial(policy={"dtype": "float16", "scaler": {"init_scale": 1024.0}}, planned=False)]
    assert "counts as an intervention" in "".join(text for p in screen.asked[0].paragraphs if p for text, _ in p.spans)


@pytest.mark.parametrize(
    "end",
    [
        told.Cancelled(stage="trial"),
        told.EngineFailed(message="oh", where=None),
        EngineDeath(how="SIGKILL", words="killed", last_output=()),
    ],
)
def test_ending_one_of_several_trials_ends_them_all(end: Any) -> None:
    screen = Screen(LOCKED, answers=["e"])
    screen.steering.policies()
    screen.steering.notice(end)
    screen.steering.notice(ended("trial", completed=False))
    assert len(screen.sent) == 1
    assert "measure" not in screen.pages


def test_a_policy_that_is_refused_does_not_keep_the_next_from_being_tried() -> None:
    screen = Screen(LOCKED, answers=["e"])
    screen.steering.policies()
    tell(screen, told.Refused(code="policy", message="no"), ended("trial", completed=False))
    assert len(screen.sent) == 2


def test_before_the_lock_the_limits_are_proposed_for_the_coarsest_and_c_runs_the_plan_after_it() -> None:
    screen = Screen(BEFORE_LOCK, page="criteria", answers=["e"])
    screen.steering.policies()
    assert screen.sent == [ProposeCriteria(dtype="bfloat16")]
    assert screen.steering.planned == "float16, bfloat16"
    screen.steering.proceed()
    assert screen.sent[1:] == [LockCriteria()]
    tell(screen, *locked())
    screen.steering.proceed()
    assert screen.sent[2:] == [RunTrial(policy={"dtype": "float16"}, planned=True)]
    assert screen.steering.planned == ""


def test_what_follows_a_trial_under_another_policy_is_under_that_policy() -> None:
    state = after(*finished(1, "bfloat16"), state=LOCKED)
    assert state.verdict is not None
    marked = replace(state.verdict, interventions=1, fp32_regions=("conv",))
    state = replace(state, trials=(replace(state.trials[0], verdict=marked),))
    given = {"dtype": "bfloat16", "scaler": "auto"}
    for act, command in (
        (Steering.unattended, RunTrial(policy=given)),
        (Steering.extend, RunTrial(policy=given, extend=10)),
        (Steering.phase, RunTrial(policy=given, attended=True)),
        (Steering.mend, RunTrial(policy={**given, "fp32_regions": ("conv",)})),
    ):
        screen = Screen(state)
        act(screen.steering)
        assert screen.sent == [command]


def test_a_mend_of_the_projects_own_policy_names_the_modules_alone() -> None:
    screen = Screen(replace(REJECTED, trials=(_under_the_projects_own(REJECTED),)))
    screen.steering.mend()
    assert screen.sent == [RunTrial(policy={"fp32_regions": ("conv",)})]


def _under_the_projects_own(state: SessionState) -> Any:
    assert state.project is not None
    return replace(state.trials[0], started=replace(state.trials[0].started, policy=state.project.policy))


def test_a_held_trial_runs_on_to_its_verdict_without_stopping() -> None:
    attended = [replace(e, attended=True) if isinstance(e, told.TrialStarted) else e for e in trial_started()]
    screen = Screen(after(*attended, told.Paused(step=1, why="after this phase"), state=LOCKED), page="trial")
    screen.steering.unattended()
    assert screen.sent == [Continue(attended=False)]


@pytest.mark.parametrize("key", [Steering.phase, Steering.iteration, Steering.unattended, Steering.extend])
def test_where_a_trial_has_ended_its_keys_ask_before_they_begin_another(key: Callable[[Steering], None]) -> None:
    screen = Screen(ACCEPTED, page="trial", answers=["no", "yes"])
    key(screen.steering)
    assert screen.sent == []
    assert screen.asked[0].title == "start trial 2?"
    key(screen.steering)
    assert isinstance(screen.sent[0], RunTrial)

    due = Screen(LOCKED, page="trial")
    key(due.steering)
    assert due.asked == []
    assert isinstance(due.sent[0], RunTrial)


def test_what_was_run_until_is_forgotten_once_it_was_reached_and_kept_where_something_else_came_first() -> None:
    attended = [replace(e, attended=True) if isinstance(e, told.TrialStarted) else e for e in trial_started()]
    running = after(*attended, state=LOCKED)
    for why, goes_on in (("until step", None), ("the guard held an update back", Condition(name="step", value=7.0))):
        paused = told.Paused(step=7, why=why)
        screen = Screen(running, page="trial", answers=["step", "7"])
        screen.steering.until()
        screen.state = after(paused, state=running)
        screen.steering.notice(paused)
        screen.steering.proceed()
        assert screen.sent == [Continue(until=Condition(name="step", value=7.0)), Continue(until=goes_on)]


def test_criteria_are_locked_again_without_a_question_unless_the_user_changed_one() -> None:
    reopened = after(*opened(), *baseline(), state=after(*trial_started(), state=LOCKED))
    same = Screen(reopened, page="criteria")
    same.steering.proceed()
    assert (same.sent, same.asked) == ([LockCriteria(criteria=None, reason="")], [])

    assert reopened.proposed is not None
    anew = replace(reopened.proposed, criteria=replace(reopened.proposed.criteria, quality_drop=0.5))
    other = Screen(replace(reopened, proposed=anew), page="criteria")
    other.steering.proceed()
    assert (other.sent, other.asked) == ([LockCriteria(criteria=None, reason=PROPOSED_ANEW)], [])

    by_hand = Screen(reopened, page="criteria", answers=["2", "the product can bear it"])
    by_hand.steering.change("decision_changes")
    by_hand.steering.proceed()
    [command] = by_hand.sent
    assert isinstance(command, LockCriteria)
    assert command.criteria is not None
    assert (command.criteria.decision_changes, command.reason) == (2, "the product can bear it")


HELD_WITH_ADVICE = after(
    *trial_started(),
    iteration(0),
    trip(1),
    told.Diagnosed(
        step=1,
        update="main",
        case=None,
        retained=None,
        findings=(
            Finding(
                kind="overflow",
                severity="fault",
                stage="forward",
                facts={"fp32_regions": ["conv"]},
                advice="Keep this in FP32: Policy(fp32_regions=['conv']).",
            ),
        ),
        variations=(),
    ),
    told.Paused(step=1, why="the guard held an update back"),
    state=LOCKED,
)


def test_a_held_trial_is_left_for_one_with_the_modules_in_fp32_once_that_is_confirmed() -> None:
    screen = Screen(HELD_WITH_ADVICE, "diagnosis")
    assert "mend" in active(screen.situation)
    screen.steering.mend()
    assert "conv" in str(screen.asked[0].paragraphs)
    assert screen.sent == []
    screen.answers = ["yes"]
    screen.steering.mend()
    assert screen.sent == [Cancel()]
    screen.steering.notice(told.Cancelled(stage="trial"))
    assert screen.sent == [Cancel()]
    screen.steering.notice(told.StageEnded(stage="trial", completed=False))
    (_, command) = screen.sent
    assert isinstance(command, RunTrial)
    assert command.policy["fp32_regions"] == ("head.norm", "conv")
    screen.steering.notice(told.StageEnded(stage="trial", completed=True))
    assert len(screen.sent) == 2


def test_what_is_asked_for_meanwhile_counts_and_the_other_trial_does_not_begin() -> None:
    screen = Screen(HELD_WITH_ADVICE, answers=["yes"])
    screen.steering.mend()
    screen.steering.mending.give_up()  # as with F
    screen.steering.notice(told.StageEnded(stage="trial", completed=False))
    assert screen.sent == [Cancel()]
