"""gan: two updates on one scale, accumulation, and outputs without a decision."""

from __future__ import annotations

import pytest
import torch

HALVES = (torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_the_discriminator_has_48_updates_and_the_generator_every_second(dtype, run):
    updates = run("gan", dtype).updates
    assert {name: len(trace.applied) for name, trace in updates.items()} == {"discriminator": 48, "generator": 24}
    assert all(trace.applied.count(False) <= 2 for trace in updates.values())


@pytest.mark.parametrize("dtype", HALVES)
def test_images_and_first_gradients_stay_far_inside_the_tolerance_of_the_dtype(dtype, run, compare):
    base, trial = run("gan", torch.float32), run("gan", dtype)
    assert compare.worst_use(base.before, trial.before, dtype) < 0.25
    for name in ("discriminator", "generator"):
        ours, theirs = base.updates[name], trial.updates[name]
        assert compare.gradient_error(ours, theirs) < 0.5 * 64 * torch.finfo(dtype).eps
        assert theirs.losses[0] == pytest.approx(ours.losses[0], rel=16 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", HALVES)
def test_the_balance_of_the_two_losses_is_that_of_fp32(dtype, run):
    base, trial = run("gan", torch.float32), run("gan", dtype)
    for name in ("discriminator", "generator"):
        quarter = len(base.updates[name].losses) // 4
        ours, theirs = (sum(r.updates[name].losses[-quarter:]) / quarter for r in (base, trial))
        assert theirs == pytest.approx(ours, rel=0.05)


@pytest.mark.parametrize("dtype", HALVES)
def test_images_are_finite_after_the_stretch_and_have_changed(dtype, run):
    result = run("gan", dtype)
    for before, after in zip(result.before, result.after, strict=True):
        assert after.outputs["images"].isfinite().all()
        assert not torch.equal(before.outputs["images"], after.outputs["images"])


def test_the_discriminators_loss_leaves_nothing_in_the_generator(sample):
    module = sample("gan")
    model = module.project().model
    module.discriminator_loss(model, module.load_images()[:16]).backward()
    assert all(p.grad is None for p in model["generator"].parameters())
    assert all(p.grad is not None for p in model["discriminator"].parameters())
