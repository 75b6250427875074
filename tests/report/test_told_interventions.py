"""A marked verdict says what marked it, and what takes the mark away."""

from __future__ import annotations

from dataclasses import replace

from amptui.protocol import events as told
from amptui.report.told_interventions import say_interventions
from amptui.session.state import SessionState, reduce
from tests.report.stages import Told, opened, trial_started, verdict


def said(number: int, interventions: int, *done: told.Intervened) -> str:
    begun = [replace(e, trial=number) if isinstance(e, told.TrialStarted) else e for e in trial_started()]
    ended: Told = verdict("accept", "Accept: it held.", [], interventions=interventions)
    reached = [replace(e, trial=number) if isinstance(e, told.VerdictReached) else e for e in ended]
    state = SessionState()
    for event in (*opened(), *begun, *done, *reached):
        state = reduce(state, event)
    assert state.verdict is not None
    return say_interventions(state.verdict, state)


def test_a_policy_that_was_chosen_late_marks_also_an_unattended_run() -> None:
    assert said(2, 1) == (
        "1 intervention (the policy was chosen after a trial had run). "
        "The same policy once more, unattended, confirms the verdict."
    )


def test_retries_are_told_with_their_steps_and_apart_from_the_policy() -> None:
    retries = [told.Intervened(what="retry", step=step) for step in (3, 7)]
    assert "2 interventions (retries at steps 3, 7)." in said(1, 2, *retries)
    both = said(2, 3, *retries)
    assert "3 interventions (retries at steps 3, 7, and the policy was chosen after a trial had run)." in both
    assert "(a retry at step 3)" in said(1, 1, retries[0])


def test_what_is_not_known_is_not_made_up() -> None:
    assert said(1, 1).startswith("1 intervention. The same policy once more")
    assert said(1, 0) == ""
