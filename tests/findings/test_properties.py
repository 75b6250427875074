"""What holds for any evidence, however broken its numbers are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from amptui.findings.evidence import OutputRange
from amptui.findings.finding import Finding
from amptui.findings.judgement import ScaleCourse
from amptui.findings.verdict import judge
from amptui.project import Policy
from tests.findings.trials import (
    baseline,
    case,
    counts,
    difference,
    failure,
    final_case,
    trial,
    trip,
)

figure = st.floats() | st.sampled_from([0.0, 0.01, 0.3, 65536.0, 2.0**-140])
maybe = st.none() | figure
output_names = st.sampled_from(["logits", "aux"])
some_outputs = st.lists(output_names, unique=True, max_size=2).map(tuple)
by_output = st.dictionaries(output_names, figure, max_size=2)
update_names = st.sampled_from(["main", "critic"])
step = st.none() | st.integers(0, 30)

differences = st.builds(
    difference,
    figure,
    name=st.sampled_from(["logits", "aux", "loss", "gradient w"]),
    limit=figure,
    largest=figure,
    baseline=maybe,
    trial=maybe,
    nonfinite=st.integers(0, 3),
    update=st.none() | update_names,
)
cases = st.builds(
    case,
    st.sampled_from(["a", "b"]),
    st.integers(0, 5),
    differences=st.lists(differences, max_size=2).map(tuple),
    decision=st.none() | st.integers() | figure | st.text(max_size=3),
    margin=maybe,
    trial_margin=maybe,
    decision_stands=st.none() | st.booleans(),
    tied=st.booleans(),
    baseline_nonfinite=some_outputs,
    noise=by_output,
    randomness=by_output,
    decision_random=st.booleans(),
)
tallies = st.builds(
    counts,
    update_names,
    iterations=st.integers(0, 20),
    applied=st.integers(0, 20),
    skipped=st.integers(0, 20),
    withheld=st.integers(0, 20),
    changed=st.integers(0, 20),
    first_applied=step,
    without_gradient=st.integers(0, 20),
)
outcomes = ["bad_loss", "bad_gradient", "bad_after_unscale", "norm_overflow", "bad_buffers", "bad_before_step", "other"]
trips = st.builds(
    trip,
    st.sampled_from(outcomes),
    step=st.integers(0, 30),
    update=update_names,
    loss=figure,
    scale=figure,
    found_inf=st.booleans(),
    bad=st.lists(st.sampled_from(["micro-batch 0", "fc.weight", "bn.running_var"]), max_size=3).map(tuple),
    buffers=st.lists(st.just("bn.running_var"), max_size=1).map(tuple),
    fp32_finite=st.booleans(),
    fitting_scale=maybe,
    count=st.integers(1, 20),
    baseline_step=step,
)
located = st.builds(
    Finding,
    kind=st.sampled_from(["overflow", "randomness", "dtype", "not_precision"]),
    severity=st.sampled_from(["fault", "notice"]),
    stage=st.sampled_from(["forward", "backward", "buffer", "output"]),
    step=step,
    case=st.none() | st.sampled_from(["a", "b"]),
    update=st.none() | update_names,
    fp32_ok=st.none() | st.booleans(),
)
failures = st.builds(failure, under=st.sampled_from(["policy", "fp32"]), step=step, case=st.none() | st.just("a"))
baselines = st.builds(
    baseline,
    repeatable=st.booleans(),
    first_bad=st.dictionaries(update_names, st.integers(0, 30), max_size=1),
    outputs=st.builds(
        lambda largest, noise: {"logits": OutputRange(name="logits", largest=largest, noise=noise, randomness=0.0)},
        figure,
        figure,
    ),
    quality=maybe,
    counts=st.lists(tallies, max_size=2).map(tuple),
    late_loss=st.dictionaries(update_names, figure, max_size=2),
)
finals = st.builds(
    final_case, st.sampled_from(["a", "b"]), baseline_nonfinite=some_outputs, trial_nonfinite=some_outputs
)
trials = st.builds(
    trial,
    policy=st.sampled_from([Policy(), Policy(dtype="bfloat16"), Policy(buffers="rollback"), Policy(scaler=None)]),
    baseline=st.just(baseline()) | baselines,
    cases=st.lists(cases, max_size=2).map(tuple),
    final_cases=st.lists(finals, max_size=2).map(tuple),
    first_iteration=st.lists(differences, max_size=2).map(tuple),
    iterations=st.integers(0, 20),
    completed=st.booleans(),
    counts=st.just((counts(),)) | st.lists(tallies, max_size=2).map(tuple),
    scaler=st.none() | st.builds(ScaleCourse, initial=figure, final=figure, lowest=figure),
    trips=st.lists(trips, max_size=3).map(tuple),
    failures=st.just(()) | st.lists(failures, max_size=2).map(tuple),
    quality=maybe,
    quality_better=st.sampled_from(["higher", "lower"]),
    late_loss=st.dictionaries(update_names, figure, max_size=2),
    interventions=st.integers(0, 2),
    located=st.lists(located, max_size=2).map(tuple),
)


@settings(max_examples=300, deadline=None)
@given(trials)
def test_accept_excludes_faults_and_failed_rows_and_no_evidence_raises(evidence):
    judgement = judge(evidence)
    if judgement.verdict == "accept":
        assert all(finding.severity != "fault" for finding in judgement.findings)
        assert all(row.passed is not False for row in judgement.rows)
        assert any(row.passed for row in judgement.rows)
    if any(finding.severity == "fault" for finding in judgement.findings):
        assert judgement.verdict != "accept"
    assert judgement.words.endswith(".")


@settings(max_examples=150, deadline=None)
@given(trials)
def test_every_finding_is_complete_and_in_order(evidence):
    findings = judge(evidence).findings
    assert all(finding.fp32_ok is not None for finding in findings)
    severities = [finding.severity for finding in findings]
    assert severities == sorted(severities)  # "fault" before "notice"
    steps = [f.step for f in findings if f.severity == "fault" and f.step is not None]
    assert steps == sorted(steps)


@settings(max_examples=100, deadline=None)
@given(trials)
def test_the_same_evidence_gives_the_same_judgement(evidence):
    assert repr(judge(evidence)) == repr(judge(evidence))


@settings(max_examples=100, deadline=None)
@given(trials)
def test_a_broken_baseline_accepts_and_rejects_nothing_but_code_that_fails(evidence):
    verdict = judge(evidence).verdict
    if evidence.baseline.first_bad or not evidence.baseline.repeatable:
        assert verdict != "accept"
        assert verdict == "inconclusive" or any(failure.under == "policy" for failure in evidence.failures)
