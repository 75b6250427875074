"""diabetes: a sum of squares beyond FP16, within BF16, mended by one FP32 region."""

from __future__ import annotations

import pytest
import torch

FP16_MAX = 65504.0


def squares(project):
    return {case.id: case.inputs.square().sum().item() for case in project.cases}


def test_the_data_straddle_the_largest_fp16_number_as_the_readme_says(sample):
    x, y = sample("diabetes").load_patients()
    energy = x.square().sum(1)
    assert (energy > FP16_MAX).sum().item() == 281
    assert (energy.min().item(), energy.max().item()) == pytest.approx((31_022, 174_112), abs=1)
    assert x.max().item() == 301
    assert (y.min().item(), y.max().item()) == (25, 346)


def test_in_fp16_exactly_the_cases_beyond_its_range_are_not_finite(run):
    result = run("diabetes", torch.float16)
    energy = squares(result.project)
    lost = {row.id for row in result.before if not row.outputs["prediction"].isfinite().all()}
    assert lost == {case for case, value in energy.items() if value > FP16_MAX}
    assert "beyond-fp16" in lost
    assert "within-fp16" not in lost


def test_the_boundary_cases_are_two_percent_away_from_the_limit(run):
    energy = squares(run("diabetes", torch.float32).project)
    assert 0.95 * FP16_MAX < energy["within-fp16"] < 0.98 * FP16_MAX
    assert 1.02 * FP16_MAX < energy["beyond-fp16"] < 1.05 * FP16_MAX


def test_the_first_value_that_is_not_finite_leaves_the_normalisation(run):
    project = run("diabetes", torch.float32).project
    longest = next(case.inputs for case in project.cases if case.id == "longest")
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.float16):
        assert not project.model.normalise(longest).isfinite().all()
    with torch.no_grad():
        assert project.model.normalise(longest).isfinite().all()


def test_in_fp16_no_update_is_applied_and_the_running_statistics_are_lost(run):
    result = run("diabetes", torch.float16)
    assert len(result.updates["main"].applied) == 44
    assert not any(result.updates["main"].applied)
    assert not result.project.model.standardise.running_var.isfinite().all()
    assert not any(row.outputs["prediction"].isfinite().all() for row in result.after)


def test_bf16_stays_within_its_tolerance(run, compare):
    base, trial = run("diabetes", torch.float32), run("diabetes", torch.bfloat16)
    assert compare.worst_use(base.before, trial.before, torch.bfloat16) < 0.25
    assert compare.gradient_error(base.updates["main"], trial.updates["main"]) < 0.5 * 64 * 2**-7
    assert all(trial.updates["main"].applied)
    assert all(row.outputs["prediction"].isfinite().all() for row in trial.after)


def test_with_the_normalisation_in_fp32_the_rest_runs_in_fp16(run, compare):
    base, trial = run("diabetes", torch.float32), run("diabetes", torch.float16, fp32_region="normalise")
    assert compare.worst_use(base.before, trial.before, torch.float16) < 0.25
    assert compare.gradient_error(base.updates["main"], trial.updates["main"]) < 0.5 * 64 * 2**-10
    assert trial.updates["main"].applied.count(False) <= 2
    assert all(row.outputs["prediction"].isfinite().all() for row in trial.after)


def test_dividing_by_64_first_keeps_the_sum_of_squares_below_43(sample):
    x, _ = sample("diabetes").load_patients()
    with torch.autocast("cpu", dtype=torch.float16):
        energy = torch.einsum("nf,nf->n", x / 64, x / 64)
    assert energy.dtype is torch.float16
    assert energy.max().item() < 43


def test_the_model_predicts_better_than_the_mean_of_the_target(run):
    rows = run("diabetes", torch.float32).before
    targets = torch.cat([row.target for row in rows])
    predictions = torch.cat([row.outputs["prediction"] for row in rows])
    assert (predictions - targets).abs().mean() < (targets - 152.0).abs().mean()
