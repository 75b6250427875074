from __future__ import annotations

import dataclasses

import pytest

from amptui.findings.diagnosis import diagnose
from amptui.findings.finding import Finding
from tests.findings.trials import (
    NAN,
    baseline,
    case,
    cases_only,
    counts,
    difference,
    nonfinite_difference,
    settled,
    trial,
    trip,
)


def located(**changes):
    values = {
        "kind": "overflow",
        "severity": "fault",
        "stage": "forward",
        "step": 3,
        "update": "main",
        "module": "blocks.1.attn",
        "op": "matmul",
        "line": "model.py:40",
        "evidence": ("70,000 leaves float16's range",),
        "advice": "Run blocks.1.attn in FP32.",
    }
    return Finding(**{**values, **changes})


BAD_LOSS = trip("bad_loss", step=3, loss=NAN, bad=("micro-batch 0", "bn.running_var"), buffers=("bn.running_var",))


def test_a_traced_cause_takes_the_place_of_the_general_one_and_keeps_its_consequences():
    cause, damage = diagnose(trial(trips=(BAD_LOSS,), located=(located(),)))
    assert (cause.stage, cause.module, cause.op, cause.fp32_ok) == ("forward", "blocks.1.attn", "matmul", True)
    assert cause.evidence[0] == "70,000 leaves float16's range"
    assert "the loss is nan" in cause.evidence
    assert cause.advice == "Run blocks.1.attn in FP32."
    assert (damage.kind, damage.stage) == ("state_damage", "buffer")


@pytest.mark.parametrize(
    "changes", [{"step": 4}, {"update": "critic"}, {"case": "digit-3"}, {"stage": "decision", "kind": "decision"}]
)
def test_a_finding_about_something_else_replaces_nothing(changes):
    findings = diagnose(trial(trips=(BAD_LOSS,), located=(located(**changes),)))
    assert len(findings) == 3
    assert all(f.fp32_ok is True for f in findings)


def test_a_traced_finding_without_an_update_fits_any():
    cause = diagnose(trial(trips=(BAD_LOSS,), located=(located(update=None),)))[0]
    assert (cause.module, cause.update) == ("blocks.1.attn", "main")


@pytest.mark.parametrize(("step", "told"), [(3, 1), (4, 2)])
def test_why_fp32_alone_failed_takes_the_place_of_that_it_did(step, told):
    broken = baseline(first_bad={"main": 3})
    why = located(kind="autocast_state", fp32_ok=False, step=step, facts={"baseline_step": step})
    findings = diagnose(trial(baseline=broken, located=(why,)))
    assert len(findings) == told
    assert (findings[0].kind, findings[0].module, findings[0].fp32_ok) == ("autocast_state", "blocks.1.attn", False)


ZERO = (counts(applied=20, changed=0),)
ROUNDED = located(
    kind="underflow", stage="gradient", step=0, module="fc", op="to", evidence=("the gradient is zero",), advice=""
)


def test_a_detail_gives_a_general_finding_its_place_and_leaves_it_the_advice():
    [found] = diagnose(trial(counts=ZERO, details=(ROUNDED,)))
    assert (found.kind, found.module, found.op, found.severity) == ("underflow", "fc", "to", "fault")
    assert found.evidence[0] == "the gradient is zero"
    assert "Start from a higher scale" in found.advice or "smallest gradients" in found.advice


def test_a_detail_without_a_general_finding_says_nothing():
    assert diagnose(trial(details=(ROUNDED,))) == ()


def test_two_general_findings_with_one_detail_are_told_once():
    gone = difference(1.0, name="gradient fc.weight", limit=0.05, trial=0.0, baseline=0.3, update="main")
    [found] = diagnose(trial(counts=ZERO, first_iteration=(gone,), details=(ROUNDED,)))
    assert any("iteration 0" in fact for fact in found.evidence)
    assert any("had an all-zero gradient" in fact for fact in found.evidence)


def test_what_fp32_shows_as_well_stays_no_matter_of_precision():
    diverged = dataclasses.replace(BAD_LOSS, baseline_step=19)
    cause = diagnose(trial(trips=(diverged,), located=(located(fp32_ok=True),)))[0]
    assert (cause.kind, cause.fp32_ok, cause.module) == ("not_precision", False, "blocks.1.attn")
    assert "Mend this in FP32 first" in cause.advice


def test_a_skip_that_a_lower_scale_mends_stays_a_notice_with_the_place():
    traced = located(stage="backward", step=0, module="conv2", op="convolution_backward")
    [finding] = diagnose(settled(located=(traced,)))
    assert (finding.severity, finding.kind, finding.module) == ("notice", "scaler", "conv2")


def test_a_fault_of_the_forward_pass_at_the_same_step_stands_beside_the_skip():
    findings = diagnose(settled(located=(located(step=0, kind="autocast_state"),)))
    assert [(f.severity, f.kind) for f in findings] == [("fault", "autocast_state"), ("notice", "scaler")]


def test_damage_is_replaced_by_damage_of_the_same_sort():
    traced = located(kind="state_damage", stage="buffer", module="stem.bn", op=None)
    findings = diagnose(trial(trips=(BAD_LOSS,), located=(traced,)))
    assert [(f.stage, f.module) for f in findings] == [("loss", ""), ("buffer", "stem.bn")]


def test_two_traced_findings_of_one_failure_are_both_kept():
    root = located(module="stem", op="exp")
    cause, other, _ = diagnose(trial(trips=(BAD_LOSS,), located=(root, located())))
    assert (cause.module, other.module) == ("stem", "blocks.1.attn")


def test_a_case_is_matched_by_its_id():
    traced = located(case="b", step=1, update=None)
    [finding] = diagnose(cases_only(case("b", 1, differences=(nonfinite_difference(),)), located=(traced,)))
    assert (finding.module, finding.stage, finding.fp32_ok) == ("blocks.1.attn", "forward", True)


def test_a_random_output_stays_random_whatever_was_traced():
    traced = located(case="b", step=1, update=None, kind="rounding", module="body.drop")
    [finding] = diagnose(cases_only(case("b", 1, randomness={"logits": 0.5}), located=(traced,)))
    assert (finding.kind, finding.module, finding.fp32_ok) == ("randomness", "body.drop", False)


@pytest.mark.parametrize(("kind", "fp32_ok"), [("overflow", True), ("not_precision", False), ("randomness", False)])
def test_a_traced_finding_alone_has_its_fp32_fact_too(kind, fp32_ok):
    [finding] = diagnose(trial(located=(located(kind=kind),)))
    assert finding.fp32_ok is fp32_ok
