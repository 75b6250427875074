from __future__ import annotations

import pytest

from amptui.findings.diagnosis import diagnose
from amptui.findings.evidence import SilentLayers
from amptui.findings.judgement import ScaleCourse
from amptui.project import Policy
from tests.findings.trials import NAN, baseline, counts, difference, trial, trip


def found(evidence):
    return [(f.severity, f.kind, f.stage, f.step, f.fp32_ok) for f in diagnose(evidence)]


LOW = ScaleCourse(initial=2.0**-10, final=2.0**-10, lowest=2.0**-10)


@pytest.mark.parametrize(
    ("changed", "changed_in_fp32", "expected"),
    [
        (20, 20, []),
        (0, 20, [("fault", "underflow", "gradient", 0, True)]),
        (10, 20, [("fault", "underflow", "gradient", 0, True)]),
        (15, 20, [("notice", "underflow", "gradient", 0, True)]),
        (15, 15, []),
        (18, 15, []),
        (0, 0, [("fault", "not_precision", "gradient", 0, False)]),
    ],
)
def test_zero_gradients_count_beyond_those_of_fp32(changed, changed_in_fp32, expected):
    evidence = trial(counts=(counts(changed=changed),), baseline=baseline(counts=(counts(changed=changed_in_fp32),)))
    assert found(evidence) == expected


def test_zero_gradients_start_at_the_first_applied_update():
    evidence = trial(counts=(counts(applied=8, skipped=12, changed=0, first_applied=12),))
    assert ("fault", "underflow", "gradient", 12, True) in found(evidence)


@pytest.mark.parametrize(("course", "mend"), [(LOW, "higher scale"), (None, "Use a loss scale")])
def test_underflow_is_mended_by_a_higher_scale_where_it_is_low(course, mend):
    [finding] = diagnose(trial(counts=(counts(changed=0),), scaler=course))
    assert mend in finding.advice


@pytest.mark.parametrize(
    ("trial_idle", "fp32_idle", "expected"),
    [
        (20, 20, [("fault", "not_precision", "gradient", 0, False)]),
        (20, 0, [("fault", "autocast_state", "gradient", 0, True)]),
        (5, 5, []),
        (5, 0, []),
    ],
)
def test_an_update_that_never_has_a_gradient(trial_idle, fp32_idle, expected):
    evidence = trial(
        counts=(counts(applied=20 - trial_idle, changed=20 - trial_idle, without_gradient=trial_idle),),
        baseline=baseline(counts=(counts(applied=20 - fp32_idle, changed=20 - fp32_idle, without_gradient=fp32_idle),)),
    )
    assert found(evidence) == expected


def loss(measured, **changes):
    return difference(measured, **{"name": "loss", "limit": 0.01, "update": "main", **changes})


def gradient(measured, **changes):
    return difference(measured, **{"name": "gradient fc.weight", "limit": 0.05, "update": "main", **changes})


@pytest.mark.parametrize(
    ("compared", "expected"),
    [
        (loss(0.01), []),
        (loss(0.02), [("fault", "rounding", "loss", 0, True)]),
        (loss(NAN), [("fault", "rounding", "loss", 0, True)]),
        (loss(0.02, nonfinite=1), []),
        (gradient(0.05), []),
        (gradient(0.06), [("fault", "rounding", "gradient", 0, True)]),
        (gradient(1.0, trial=0.0, baseline=0.3), [("fault", "underflow", "gradient", 0, True)]),
        (gradient(1.0, trial=0.0, baseline=0.0), [("fault", "rounding", "gradient", 0, True)]),
    ],
)
def test_numbers_of_iteration_0_beyond_their_limit(compared, expected):
    assert found(trial(first_iteration=(compared,))) == expected


def test_what_is_off_in_iteration_0_has_the_place_that_it_was_seen_at():
    told = diagnose(trial(first_iteration=(loss(0.3), gradient(0.9))))
    assert [(f.stage, f.module) for f in told] == [("loss", "loss"), ("gradient", "fc")]


@pytest.mark.parametrize(
    ("layers", "scale", "severity"),
    [
        (("stem.weight",), 2.0**16, "notice"),
        (("stem.weight",), 1.0, "fault"),
        (("stem.weight", "stem.bias", "mid.weight"), 2.0**16, "fault"),
    ],
)
def test_layers_that_never_move_are_a_fault_at_a_low_scale_or_where_they_are_many(layers, scale, severity):
    silent = SilentLayers(update="main", layers=layers, of=6, norm=1e-7)
    course = ScaleCourse(initial=scale, final=scale, lowest=scale)
    [told] = diagnose(trial(silent=(silent,), scaler=course))
    assert (told.severity, told.kind, told.stage, told.module) == (severity, "underflow", "gradient", "stem")
    assert ("init_scale" in told.advice) is (scale == 1.0)


def test_in_bfloat16_no_scale_lifts_a_gradient():
    silent = SilentLayers(update="main", layers=("stem.weight",), of=6, norm=1e-7)
    [told] = diagnose(trial(silent=(silent,), scaler=None, policy=Policy(dtype="bfloat16")))
    assert "scale" not in told.advice


def test_a_gradients_difference_is_told_as_such_and_not_as_that_of_two_norms():
    far = gradient(0.06311, limit=0.0625, largest=0.06311 * 0.1343, baseline=0.1343, trial=0.1348)
    [told] = diagnose(trial(first_iteration=(far,), policy=Policy(dtype="bfloat16")))
    [said] = told.evidence
    assert said == (
        "gradient fc.weight of iteration 0: the difference, bfloat16 − FP32, has a norm of 0.06311 times FP32's own "
        "norm, allowed are 0.0625; by themselves the norms are 0.1343 in FP32 and 0.1348 in bfloat16"
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gradient net.conv1.weight", "Run net.conv1 in FP32: Policy(fp32_regions=['net.conv1'])."),
        ("gradient scale", "Look at what is computed with this parameter"),
        ("loss", "Look at the loss function first"),
    ],
)
def test_the_advice_names_the_module_or_where_to_look(name, says):
    [told] = diagnose(trial(first_iteration=(difference(0.9, name=name, limit=0.05, update="main"),)))
    assert told.advice.startswith(says)
    assert "…" not in told.advice


def test_a_small_gradient_is_told_beside_the_whole_that_it_was_compared_with():
    far = gradient(0.2, largest=2e-4, baseline=1e-6, trial=2e-4)
    [told] = diagnose(trial(first_iteration=(far,)))
    assert "0.2 times a hundredth of FP32's whole gradient norm" in told.evidence[0]


def test_a_trip_at_step_0_explains_its_numbers_already():
    evidence = trial(first_iteration=(gradient(0.9),), trips=(trip(fitting_scale=None),))
    assert [f.kind for f in diagnose(evidence)] == ["underflow"]


def test_a_baseline_that_broke_alone_is_a_fault_of_its_own_without_a_step_of_the_trial():
    assert found(trial(baseline=baseline(first_bad={"main": 7}))) == [("fault", "not_precision", "loss", None, False)]


def test_a_baseline_that_broke_is_not_said_twice():
    evidence = trial(
        baseline=baseline(first_bad={"main": 3}), trips=(trip("bad_loss", step=3, fp32_finite=False, baseline_step=3),)
    )
    assert [f.kind for f in diagnose(evidence)] == ["not_precision"]


def test_a_quality_that_is_not_a_number_in_fp32():
    assert found(trial(baseline=baseline(quality=NAN))) == [("fault", "not_precision", "output", None, False)]
