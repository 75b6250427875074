"""What is proposed from the baseline and the project's own criteria, and what is locked, with which revision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from amptui import Criteria
from amptui.findings import criteria as proposing
from amptui.protocol.commands import LockCriteria, RunBaseline, RunTrial
from amptui.protocol.events import CriteriaLocked, CriteriaProposed, TrialStarted, VerdictReached
from tests.engine.projects import full_project


def test_the_proposal_is_locked_unless_other_criteria_are_given(opened: Any) -> None:
    done = opened(full_project()).do(RunBaseline(), LockCriteria())
    assert done.one(CriteriaLocked).criteria == done.one(CriteriaProposed).criteria
    assert done.one(CriteriaLocked).revision == 1


def test_what_the_project_wrote_down_is_kept_in_the_proposal(opened: Any) -> None:
    done = opened(full_project(criteria=Criteria(atol=0.5, applied_share=0.25))).do(RunBaseline())
    proposed = done.one(CriteriaProposed)
    assert (proposed.criteria.atol, proposed.criteria.applied_share) == (0.5, 0.25)
    given = {proposal.name for proposal in proposed.proposals if proposal.given}
    assert "applied_share" in given
    assert any("atol" in name for name in given)
    assert all(p.reason for p in proposed.proposals)


def test_what_the_user_wrote_before_the_lock_is_locked_as_theirs_beside_what_was_proposed(opened: Any) -> None:
    done = opened(full_project()).do(RunBaseline())
    proposed = done.one(CriteriaProposed)
    done.do(LockCriteria(criteria=replace(proposed.criteria, applied_share=0.5)))
    by_name = {proposal.name: proposal for proposal in done.one(CriteriaLocked).proposals}
    share = by_name.pop("applied_share")
    assert (share.value, share.writer, share.proposed) == (0.5, "you", proposed.criteria.applied_share)
    assert {proposal.writer for proposal in by_name.values()} == {"amptui"}


def test_after_a_trial_a_change_needs_a_reason_and_is_a_new_revision(opened: Any) -> None:
    done = opened(full_project()).judge()
    stricter = Criteria(atol=1e-9, rtol=0.0)
    done.do(LockCriteria(criteria=stricter), LockCriteria(criteria=stricter, reason="  "))
    assert done.refusals == ["reason", "reason"]
    done.do(LockCriteria(criteria=stricter, reason=" the product needs it "), RunTrial())
    first, second = done.all(CriteriaLocked)
    assert (first.revision, first.after_trial, first.reason) == (1, False, "")
    assert (second.revision, second.after_trial, second.reason) == (2, True, "the product needs it")
    assert first.digest == proposing.digest(first.criteria) != second.digest
    assert [trial.revision for trial in done.all(TrialStarted)] == [1, 2]
    assert [verdict.verdict for verdict in done.all(VerdictReached)] == ["accept", "reject"]
