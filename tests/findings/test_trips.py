"""Trips of the guard: one cause, then each lasting consequence as its own finding."""

from __future__ import annotations

import dataclasses

import pytest

from amptui.findings.diagnosis import diagnose
from amptui.findings.judgement import ScaleCourse
from amptui.project import Policy, Scaler
from tests.findings.trials import NAN, counts, settled, trial, trip

BF16 = Policy(dtype="bfloat16")
#: Trips in an otherwise ordinary trial of 20 iterations: what is found, as (severity, kind, stage, fp32_ok).
FOUND = [
    ("settling", {}, trip(), [("notice", "scaler", "gradient", True)]),
    ("settling, FP32 breaks later", {}, trip(baseline_step=9), [("notice", "scaler", "gradient", True)]),
    ("no scale fits", {}, trip(fitting_scale=None), [("fault", "underflow", "gradient", True)]),
    (
        "no scale fits in FP32 either",
        {},
        trip(fitting_scale=None, fp32_finite=False),
        [("fault", "not_precision", "gradient", False)],
    ),
    (
        "FP32 broke at the same step or before",
        {},
        trip(step=3, baseline_step=3),
        [("fault", "not_precision", "gradient", False)],
    ),
    ("bad loss", {}, trip("bad_loss", bad=("micro-batch 0",)), [("fault", "overflow", "loss", True)]),
    (
        "bad loss in bfloat16",
        {"policy": BF16},
        trip("bad_loss", bad=("micro-batch 0",), found_inf=False),
        [("fault", "rounding", "loss", True)],
    ),
    (
        "bad loss, FP32 too",
        {},
        trip("bad_loss", bad=("micro-batch 0",), fp32_finite=False),
        [("fault", "not_precision", "loss", False)],
    ),
    (
        "divergence: this batch is fine in FP32, the baseline is not",
        {},
        trip("bad_loss", step=5, bad=("micro-batch 0",), baseline_step=19),
        [("fault", "not_precision", "loss", False)],
    ),
    (
        "bad loss with a finite gradient and no scaler writes nothing bad",
        {"policy": BF16},
        trip("bad_loss", bad=("micro-batch 0",), found_inf=False, fp32_finite=False),
        [("fault", "not_precision", "loss", False)],
    ),
    (
        "bad loss and gradient without a scaler",
        {"policy": BF16},
        trip("bad_loss", bad=("micro-batch 0", "fc.weight"), found_inf=False, fp32_finite=False),
        [("fault", "not_precision", "loss", False), ("fault", "state_damage", "weights", False)],
    ),
    (
        "bad gradient without a scaler",
        {"policy": BF16},
        trip(found_inf=False, fitting_scale=None),
        [("fault", "rounding", "gradient", True), ("fault", "state_damage", "weights", True)],
    ),
    (
        "bad loss and poisoned buffers",
        {},
        trip("bad_loss", bad=("micro-batch 0", "bn.running_var"), buffers=("bn.running_var",)),
        [("fault", "overflow", "loss", True), ("fault", "state_damage", "buffer", True)],
    ),
    (
        "bad buffers alone",
        {},
        trip("bad_buffers", bad=("bn.running_var",), buffers=("bn.running_var",), found_inf=False),
        [("fault", "overflow", "forward", True), ("fault", "state_damage", "buffer", True)],
    ),
    (
        "bad buffers in FP32 too",
        {},
        trip("bad_buffers", bad=("bn.running_var",), buffers=("bn.running_var",), found_inf=False, fp32_finite=False),
        [("fault", "not_precision", "forward", False), ("fault", "state_damage", "buffer", False)],
    ),
    (
        "buffers rolled back by the policy",
        {"policy": Policy(buffers="rollback")},
        trip("bad_loss", bad=("micro-batch 0", "bn.running_var"), buffers=("bn.running_var",)),
        [("fault", "overflow", "loss", True), ("notice", "state_damage", "buffer", True)],
    ),
    (
        "bad only after unscaling",
        {},
        trip("bad_after_unscale", scale=2.0**-20, found_inf=False),
        [("fault", "scaler", "gradient", True), ("fault", "state_damage", "weights", True)],
    ),
    (
        "a step hook",
        {},
        trip("bad_before_step", found_inf=False),
        [("fault", "overflow", "update", True), ("fault", "state_damage", "weights", True)],
    ),
    (
        "norm overflow",
        {},
        trip("norm_overflow", found_inf=False),
        [("fault", "overflow", "gradient", True)],
    ),
    (
        "norm overflow, FP32 too",
        {},
        trip("norm_overflow", found_inf=False, fp32_finite=False),
        [("fault", "not_precision", "gradient", False)],
    ),
    (
        "collapse of the scale",
        {"scaler": ScaleCourse(initial=65536.0, final=0.0, lowest=0.0)},
        trip(fitting_scale=None, count=180, last_step=179),
        [("fault", "underflow", "gradient", True), ("fault", "scaler", "scaler", True)],
    ),
]


@pytest.mark.parametrize(("changes", "tripped", "found"), [row[1:] for row in FOUND], ids=[row[0] for row in FOUND])
def test_what_a_trip_is_found_to_be(changes, tripped, found):
    findings = diagnose(trial(trips=(tripped,), **changes))
    assert [(f.severity, f.kind, f.stage, f.fp32_ok) for f in findings] == found
    assert {(f.step, f.update) for f in findings} == {(tripped.step, "main")}
    assert all(f.evidence and f.advice for f in findings)
    assert not [f.advice for f in findings if "…" in f.advice], "advice that can be followed has no gaps"


def test_a_buffer_that_breaks_names_the_module_that_fills_it():
    broken = trip("bad_buffers", bad=("net.bn.running_var",), buffers=("net.bn.running_var",), found_inf=False)
    cause = diagnose(trial(trips=(broken,)))[0]
    assert "Policy(fp32_regions=['net.bn'])" in cause.advice
    at_the_root = trip("bad_buffers", bad=("mean",), buffers=("mean",), found_inf=False)
    assert "cast it to float32" in diagnose(trial(trips=(at_the_root,)))[0].advice


SKIPS = [
    ("two of twenty", {"applied": 18, "skipped": 2, "first_applied": 2}, {}, "notice"),
    ("eleven at the start, nine applied after", {"applied": 9, "skipped": 11, "first_applied": 11}, {}, "notice"),
    ("three after the first applied one", {"applied": 17, "skipped": 3, "first_applied": 0}, {"step": 5}, "fault"),
    ("less than a quarter applied after many", {"applied": 4, "skipped": 16, "first_applied": 16}, {}, "fault"),
    ("none applied after many", {"applied": 0, "skipped": 20, "first_applied": None}, {}, "fault"),
    ("a stretch too short", {"iterations": 3, "applied": 0, "skipped": 3, "first_applied": None}, {}, "notice"),
]


@pytest.mark.parametrize(("tally", "changes", "severity"), [row[1:] for row in SKIPS], ids=[row[0] for row in SKIPS])
def test_a_skip_that_a_lower_scale_mends_is_a_fault_only_where_updates_are_missing(tally, changes, severity):
    evidence = settled(changes, counts=(counts(**{"changed": tally["applied"], **tally}),))
    [finding] = diagnose(evidence)
    assert (finding.severity, finding.kind, finding.stage) == (severity, "scaler", "gradient")


def test_updates_lost_to_another_fault_are_not_blamed_on_a_scale_that_settles():
    overflow = trip("bad_loss", step=12, count=3, last_step=14)
    after_it = counts(applied=15, skipped=5, first_applied=2, changed=15)
    findings = diagnose(trial(trips=(trip(), overflow), counts=(after_it,)))
    assert [(f.severity, f.kind) for f in findings] == [("fault", "overflow"), ("notice", "scaler")]


def test_a_scale_that_starves_an_update_is_blamed_beside_another_fault():
    overflow = trip("bad_loss", step=3, count=1, last_step=3)
    starved = counts(applied=2, skipped=18, first_applied=17, changed=2)
    findings = diagnose(trial(trips=(trip(count=17, last_step=19), overflow), counts=(starved,)))
    assert [(f.severity, f.kind) for f in findings] == [("fault", "scaler"), ("fault", "overflow")]


def test_settling_says_which_scale_fits_and_how_many_skips_it_takes():
    [finding] = diagnose(settled())
    said = " ".join(finding.evidence)
    assert "infinite at scale 2^16 and finite at 2^14" in said
    assert "2 updates skipped, 2 skips expected" in said
    assert "Scaler(init_scale=16384.0)" in finding.advice
    assert (finding.facts["fitting_scale"], finding.facts["skips_expected"]) == (16384.0, 2)


def test_an_overgrown_scale_is_told_as_one_that_had_grown():
    policy = Policy(scaler=Scaler(growth_interval=1))
    tripped = {"step": 10, "scale": 2.0**26, "fitting_scale": 2.0**14, "count": 10}
    evidence = settled(tripped, policy=policy, counts=(counts(applied=10, skipped=10, changed=10),))
    [finding] = diagnose(evidence)
    assert finding.severity == "fault"
    assert "the scale had grown from 2^16" in finding.evidence
    assert "growth_interval" in finding.advice


def test_a_skip_after_the_scale_had_grown_is_no_reason_to_start_lower():
    tripped = {"step": 10, "scale": 2.0**17, "fitting_scale": 2.0**16, "count": 1}
    [finding] = diagnose(settled(tripped, policy=Policy(scaler=Scaler(growth_interval=5)), counts=(counts(skipped=1),)))
    assert finding.severity == "notice"
    assert "settling" not in " ".join(finding.evidence)
    assert "tries a larger scale" in finding.advice
    assert "init_scale" not in finding.advice


def test_a_fitting_scale_below_one_comes_with_a_warning():
    [finding] = diagnose(settled({"fitting_scale": 2.0**-3}))
    assert "Scaler(init_scale=2.0**-3)" in finding.advice
    assert "BF16" in finding.advice


def test_a_micro_batch_of_several_is_named():
    [finding] = diagnose(trial(trips=(trip("bad_loss", loss=NAN, bad=("micro-batch 1",)),)))
    assert "the loss is nan in micro-batch 1" in finding.evidence


def test_a_repeated_trip_says_how_often_and_until_when():
    [finding] = diagnose(trial(trips=(trip(fitting_scale=None, count=12, last_step=40),)))
    assert "the same in 12 iterations, last at step 40" in finding.evidence


def test_the_retained_case_and_the_loss_function_go_with_the_finding():
    tripped = trip("bad_loss", bad=("micro-batch 0",), retained="case-1", loss_at="train.py:7")
    [finding] = diagnose(trial(trips=(tripped,)))
    assert finding.facts["retained"] == "case-1"
    assert finding.line == "train.py:7"


@pytest.mark.parametrize(
    ("buffers", "module"),
    [(("stem.bn.running_mean", "stem.bn.running_var"), "stem.bn"), (("a.var", "b.var"), ""), (("running",), "")],
)
def test_damaged_buffers_are_named_with_their_module(buffers, module):
    findings = diagnose(trial(trips=(trip("bad_loss", bad=buffers, buffers=buffers),)))
    assert next(f for f in findings if f.stage == "buffer").module == module


def test_a_dead_scale_is_told_from_one_that_is_only_low():
    low, dead = (trip("bad_after_unscale", scale=scale, found_inf=False) for scale in (2.0**-20, 2.0**-130))
    said = [" ".join(diagnose(trial(trips=(t,)))[0].evidence) for t in (low, dead)]
    assert "1/scale is infinite" not in said[0]
    assert "1/scale is infinite in float32" in said[1]


def test_the_cause_comes_before_its_consequences_and_an_earlier_step_before_a_later_one():
    late = trip("bad_loss", step=9, bad=("micro-batch 0", "bn.running_var"), buffers=("bn.running_var",))
    early = trip("bad_loss", step=4, update="critic", bad=("micro-batch 0",))
    findings = diagnose(trial(trips=(late, early, trip())))
    assert [(f.step, f.stage, f.severity) for f in findings] == [
        (4, "loss", "fault"),
        (9, "loss", "fault"),
        (9, "buffer", "fault"),
        (0, "gradient", "notice"),
    ]


def test_without_a_scaler_the_evidence_does_not_speak_of_one():
    policy = dataclasses.replace(Policy(), scaler=None)
    cause = diagnose(trial(policy=policy, scaler=None, trips=(trip(found_inf=False, fitting_scale=None),)))[0]
    assert "no loss scale is in use" in cause.evidence
