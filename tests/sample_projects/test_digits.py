"""digits: decisions that hold in half precision, a near tie among them."""

from __future__ import annotations

import pytest
import torch

HALVES = (torch.float16, torch.bfloat16)


def row(rows, case):
    return next(row for row in rows if row.id == case)


def test_the_near_tie_is_between_a_3_and_an_8_and_0_0003_apart(run):
    scores = row(run("digits", torch.float32).before, "near-tie").outputs["output"].flatten()
    (best, second), classes = scores.topk(2)
    assert set(classes.tolist()) == {3, 8}
    assert (best - second).item() == pytest.approx(3e-4, abs=2e-5)


@pytest.mark.parametrize("dtype", HALVES)
def test_half_precision_moves_the_tied_scores_by_more_than_their_gap(dtype, run):
    base = row(run("digits", torch.float32).before, "near-tie").outputs["output"]
    trial = row(run("digits", dtype).before, "near-tie").outputs["output"].float()
    assert (trial - base).abs().max().item() > 3e-4


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("dtype", HALVES)
def test_no_decision_changes_before_or_after_the_stretch(dtype, when, run):
    base, trial = getattr(run("digits", torch.float32), when), getattr(run("digits", dtype), when)
    assert [r.decision for r in trial] == [r.decision for r in base]
    assert row(base, "near-tie").decision == "review"


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("dtype", HALVES)
def test_every_margin_is_three_times_what_the_dtype_moves_a_gap_or_more(dtype, when, run):
    base, trial = getattr(run("digits", torch.float32), when), getattr(run("digits", dtype), when)
    moved = max(abs(a.margin - b.margin) for a, b in zip(base, trial, strict=True))
    assert 0 < moved < 0.06
    assert min(r.margin for r in base) > 3 * moved


def test_there_are_25_cases_and_the_smallest_margin_is_that_of_a_reviewed_9(run):
    rows = run("digits", torch.float32).before
    smallest = min(rows, key=lambda r: r.margin)
    assert len(rows) == 25
    assert (smallest.id, smallest.decision, smallest.target) == ("digit-9-1", "review", 9)
    assert smallest.margin == pytest.approx(0.33, abs=0.02)


@pytest.mark.parametrize("dtype", HALVES)
def test_accuracy_does_not_change_and_only_one_right_answer_is_lost_to_review(dtype, run):
    base, trial = run("digits", torch.float32), run("digits", dtype)
    quality = base.project.quality
    assert quality(base.before) == quality(trial.before) == pytest.approx(0.95)
    assert quality(base.after) == quality(trial.after) == pytest.approx(0.95)


@pytest.mark.parametrize("dtype", HALVES)
def test_numbers_stay_far_inside_the_tolerance_of_the_dtype(dtype, run, compare):
    base, trial = run("digits", torch.float32), run("digits", dtype)
    eps = torch.finfo(dtype).eps
    assert compare.worst_use(base.before, trial.before, dtype) < 0.25
    assert compare.gradient_error(base.updates["main"], trial.updates["main"]) < 0.5 * 64 * eps
    assert trial.updates["main"].losses[0] == pytest.approx(base.updates["main"].losses[0], rel=16 * eps)


def test_at_most_two_updates_are_skipped_in_fp16(run):
    applied = run("digits", torch.float16).updates["main"].applied
    assert len(applied) == 40
    assert applied.count(False) <= 2


def test_a_gap_that_is_nan_goes_to_review(sample):
    decision, _ = sample("digits").project().decide(torch.full((1, 10), float("nan")))
    assert decision == "review"


def test_with_no_review_the_near_tie_is_decided_by_its_gap_alone(sample):
    project = sample("digits").project(review_below=0.0)
    case = next(case for case in project.cases if case.id == "near-tie")
    with torch.no_grad():
        decision, margin = project.decide(project.model(case.inputs))
    assert decision == "3"
    assert margin == pytest.approx(3e-4, abs=2e-5)
