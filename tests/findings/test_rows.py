from __future__ import annotations

import dataclasses

import pytest

from amptui.findings.rows import rows
from tests.findings.trials import (
    CRITERIA,
    INF,
    NAN,
    baseline,
    case,
    cases_only,
    counts,
    difference,
    final_case,
    nonfinite_difference,
    settled,
    trial,
    trip,
)


def only(evidence, criterion, **wanted):
    found = [row for row in rows(evidence) if row.criterion == criterion]
    return [row for row in found if all(getattr(row, key) == value for key, value in wanted.items())]


def one(evidence, criterion, **wanted):
    [row] = only(evidence, criterion, **wanted)
    return row


def test_an_ordinary_trial_passes_every_row_and_only_tells_its_progress():
    judged = rows(trial())
    assert {row.criterion for row in judged if row.passed} == {"finite", "difference", "decision", "quality", "updates"}
    assert [row.criterion for row in judged if row.passed is None] == ["progress"]


def test_rows_follow_the_course_of_the_trial():
    order = [row.criterion for row in rows(trial(cases=(case(),), final_cases=(final_case(),)))]
    assert order == [
        *("finite", "difference", "decision", "decision"),
        *("difference", "difference"),
        *("finite", "updates"),
        *("finite", "quality", "progress"),
    ]


def test_a_project_without_updates_has_rows_for_its_cases_only():
    judged = rows(cases_only(case(), case("b", 1)))
    assert {row.criterion for row in judged} == {"finite", "difference", "decision", "quality"}
    assert {row.what for row in judged if row.criterion == "finite"} == {"output logits"}


def test_a_project_without_cases_is_judged_by_its_stretch():
    judged = rows(trial(cases=(), final_cases=(), baseline=baseline(quality=None), quality=None))
    assert [row.criterion for row in judged] == ["difference", "difference", "finite", "updates", "progress"]


@pytest.mark.parametrize(
    ("changed", "finite", "within"),
    [
        (difference(0.1), True, True),
        (difference(0.1000001), True, False),
        (difference(NAN), True, False),
        (difference(INF, nonfinite=0), True, False),
        (nonfinite_difference(), False, False),
        (difference(0.0, nonfinite=1), False, False),
    ],
)
def test_an_output_is_finite_and_within_its_limit(changed, finite, within):
    evidence = cases_only(case(differences=(changed,)))
    assert one(evidence, "finite", case="digit-3").passed is finite
    row = one(evidence, "difference", case="digit-3")
    assert (row.passed, row.limit, row.output) == (within, 0.1, "logits")


def test_the_same_infinity_as_the_baseline_is_fine():
    mask = difference(0.0, name="mask", baseline=-INF, trial=-INF)
    row = one(cases_only(case(differences=(mask,), baseline_nonfinite=("mask",))), "finite")
    assert row.passed
    assert row.trial == "infinite only where the baseline is"


def test_every_case_and_output_has_a_row_failed_or_not():
    both = (difference(), difference(0.3, name="aux"))
    evidence = cases_only(case(differences=both), case("b", 1, differences=both))
    assert [(row.case, row.output, row.passed) for row in only(evidence, "difference")] == [
        ("digit-3", "logits", True),
        ("digit-3", "aux", False),
        ("b", "logits", True),
        ("b", "aux", False),
    ]


@pytest.mark.parametrize(("allowed", "each", "total"), [(0, False, False), (1, False, False), (2, None, True)])
def test_decisions_may_change_as_often_as_was_written_down(allowed, each, total):
    flipped = [case(name, i, decision_stands=False, trial_decision=5) for i, name in enumerate(("a", "b"))]
    evidence = cases_only(*flipped, case("c", 2), criteria=dataclasses.replace(CRITERIA, decision_changes=allowed))
    assert [row.passed for row in only(evidence, "decision")] == [each, each, True, total]
    summary = only(evidence, "decision")[-1]
    assert (summary.trial, summary.limit, summary.case) == (2, allowed, None)


def test_without_decide_there_is_no_decision_row():
    assert not only(cases_only(case(decision_stands=None)), "decision")


def test_a_tie_is_named_with_its_rule():
    evidence = cases_only(case(tied=True), criteria=dataclasses.replace(CRITERIA, tie="any"))
    assert one(evidence, "decision", case="digit-3").limit == "any of the tied"
    assert one(cases_only(case(tied=True)), "decision", case="digit-3").limit == "the same"


def test_iteration_0_is_compared_like_an_output():
    far = difference(0.2, name="gradient fc.weight", limit=0.05, update="main")
    row = one(trial(first_iteration=(far,)), "difference", case=None)
    assert (row.passed, row.update, row.what) == (False, "main", "gradient fc.weight of main, iteration 0")


def test_a_gradient_that_overflowed_at_the_first_scale_alone_fails_no_row():
    infinite = difference(INF, name="gradient fc.weight", nonfinite=1, limit=0.05, update="main")
    row = one(settled(first_iteration=(infinite,)), "difference", case=None)
    assert row.passed is None
    assert row.trial == "not finite at scale 2^16, finite at 2^14"


def test_a_settled_gradient_that_was_compared_at_the_fitting_scale_is_judged():
    far = difference(0.2, name="gradient fc.weight", limit=0.05, update="main")
    assert one(settled(first_iteration=(far,)), "difference", case=None).passed is False


def test_a_loss_that_is_not_finite_fails_even_while_the_scale_settles():
    infinite = difference(INF, name="loss", nonfinite=1, limit=0.01, update="main")
    assert one(settled(first_iteration=(infinite,)), "difference", case=None).passed is False


@pytest.mark.parametrize(
    ("trips", "passed", "iterations"),
    [
        ((), True, 0),
        ((trip(),), True, 0),
        ((trip(fitting_scale=None, count=3),), False, 3),
        ((trip(), trip("bad_loss", step=5, count=4)), False, 4),
        ((trip("bad_loss", update="other"),), True, 0),
    ],
)
def test_the_stretch_is_finite_when_nothing_but_the_scale_settled(trips, passed, iterations):
    row = one(trial(trips=trips), "finite", update="main")
    assert (row.passed, row.measured) == (passed, iterations)


def test_a_baseline_that_broke_is_named_in_the_row():
    row = one(trial(baseline=baseline(first_bad={"main": 7})), "finite", update="main")
    assert row.baseline == "not finite at step 7"


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ({}, True),
        ({"applied": 18, "skipped": 2}, True),
        ({"applied": 17, "skipped": 3}, False),
        ({"applied": 15, "skipped": 5, "first_applied": 5}, True),
        ({"applied": 0, "skipped": 20, "first_applied": None}, False),
    ],
)
def test_the_share_of_applied_updates_passes_at_its_limit(changes, passed):
    row = one(trial(counts=(counts(**changes),)), "updates")
    assert (row.passed, row.limit, row.update) == (passed, 0.9, "main")


def test_each_update_has_its_own_row():
    evidence = trial(
        counts=(counts("generator"), counts("critic", applied=5, skipped=15)),
        baseline=baseline(counts=(counts("generator"), counts("critic"))),
    )
    assert [(row.update, row.passed) for row in only(evidence, "updates")] == [("generator", True), ("critic", False)]


@pytest.mark.parametrize(
    ("before", "after", "better", "passed"),
    [
        (0.9, 0.88, "higher", True),
        (0.9, 0.8799, "higher", False),
        (0.9, 0.95, "higher", True),
        (0.3, 0.32, "lower", True),
        (0.3, 0.33, "lower", False),
        (0.3, 0.1, "lower", True),
        (0.9, NAN, "higher", False),
        (0.9, None, "higher", False),
        (INF, INF, "higher", True),
    ],
)
def test_quality_may_fall_as_far_as_was_written_down(before, after, better, passed):
    evidence = trial(baseline=baseline(quality=before), quality=after, quality_better=better)
    assert one(evidence, "quality").passed is passed


def test_quality_without_a_stretch_is_left_out_where_the_trial_has_none():
    assert not only(cases_only(quality=None), "quality")


@pytest.mark.parametrize(
    ("late", "limit", "passed"),
    [(0.55, None, None), (0.55, 0.1, True), (0.56, 0.1, False), (0.4, 0.0, True), (NAN, 0.1, False), (NAN, None, None)],
)
def test_progress_only_tells_unless_a_limit_is_locked(late, limit, passed):
    evidence = trial(late_loss={"main": late}, criteria=dataclasses.replace(CRITERIA, progress=limit))
    row = one(evidence, "progress")
    assert row.passed is passed
    if late == 0.56:
        assert row.measured == pytest.approx(0.12)


@pytest.mark.parametrize(("before", "after", "passed"), [(0.0, 0.0, True), (0.0, 0.1, False), (-1.0, -0.95, True)])
def test_progress_is_relative_to_the_size_of_the_baseline(before, after, passed):
    evidence = trial(
        baseline=baseline(late_loss={"main": before}),
        late_loss={"main": after},
        criteria=dataclasses.replace(CRITERIA, progress=0.1),
    )
    assert one(evidence, "progress").passed is passed


@pytest.mark.parametrize(
    ("in_baseline", "in_trial", "passed"),
    [((), (), True), ((), ("logits",), False), (("mask",), ("mask",), True), (("mask",), ("mask", "logits"), False)],
)
def test_after_the_stretch_outputs_are_finite_where_the_baseline_is(in_baseline, in_trial, passed):
    final = final_case(baseline_nonfinite=in_baseline, trial_nonfinite=in_trial)
    row = one(trial(final_cases=(final,)), "finite", what="outputs after the stretch")
    assert (row.passed, row.case) == (passed, "digit-3")


def test_a_stretch_that_was_not_run_to_its_end_has_no_rows_about_its_end():
    judged = rows(trial(completed=False))
    assert not {row.criterion for row in judged} & {"updates", "quality", "progress"}
    assert all("after the stretch" not in row.what for row in judged)
