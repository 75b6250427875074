from __future__ import annotations

import dataclasses

import pytest

from amptui.findings.diagnosis import diagnose
from amptui.findings.evidence import OutputRange
from amptui.project import Policy
from tests.findings.trials import (
    CRITERIA,
    INF,
    NAN,
    baseline,
    case,
    cases_only,
    difference,
    final_case,
    nonfinite_difference,
    trial,
)

FAR = difference(0.3, largest=0.3)
FLIP = {"decision_stands": False, "trial_decision": 8}

#: One case after an ordinary one: what is found, as (severity, kind, stage, module, fp32_ok).
FOUND = [
    ("all well", {}, []),
    ("not finite", {"differences": (nonfinite_difference(),)}, [("fault", "overflow", "output", "", True)]),
    ("too far", {"differences": (FAR,)}, [("fault", "rounding", "output", "", True)]),
    ("too far, NaN as a figure", {"differences": (difference(NAN),)}, [("fault", "rounding", "output", "", True)]),
    (
        "one output not finite, one too far: said once",
        {"differences": (nonfinite_difference(name="aux"), FAR)},
        [("fault", "overflow", "output", "", True)],
    ),
    (
        "too far and decided otherwise: the numbers explain it",
        {"differences": (FAR,), **FLIP},
        [("fault", "rounding", "output", "", True)],
    ),
    (
        "decided otherwise, the margin is smaller than the rounding",
        {"differences": (difference(0.01),), "margin": 0.0003, **FLIP},
        [("fault", "decision", "decision", "", True)],
    ),
    (
        "decided otherwise, the scores cannot have crossed",
        {"differences": (difference(0.01),), "margin": 0.5, **FLIP},
        [("fault", "decision", "decision", "decide", True)],
    ),
    (
        "decided otherwise on equal outputs",
        {"differences": (difference(0.0),), "margin": 0.0, **FLIP},
        [("fault", "decision", "decision", "decide", True)],
    ),
    ("a rule without a margin", {"margin": None, **FLIP}, [("fault", "decision", "decision", "decide", True)]),
    (
        "random output",
        {"randomness": {"logits": 0.5}, "differences": (FAR,), **FLIP},
        [("fault", "randomness", "output", "", False)],
    ),
    ("random decision", {"decision_random": True, **FLIP}, [("fault", "randomness", "decision", "decide", False)]),
    ("another RNG state within the noise", {"randomness": {"logits": 0.02}, "noise": {"logits": 0.01}}, []),
    (
        "noise above the tolerance",
        {"noise": {"logits": 0.3}, "differences": (FAR,)},
        [("fault", "randomness", "output", "", False)],
    ),
    (
        "not finite beside randomness",
        {"randomness": {"logits": INF}, "differences": (nonfinite_difference(),)},
        [("fault", "overflow", "output", "", True), ("fault", "randomness", "output", "", False)],
    ),
    (
        "NaN in FP32 too",
        {"differences": (nonfinite_difference(baseline=NAN),), "baseline_nonfinite": ("logits",)},
        [("fault", "not_precision", "output", "", False)],
    ),
    (
        "the same infinity as in FP32",
        {"differences": (difference(0.0, baseline=-INF, trial=-INF),), "baseline_nonfinite": ("logits",)},
        [],
    ),
    (
        "NaN where FP32 has an infinity",
        {"differences": (nonfinite_difference(baseline=-INF),), "baseline_nonfinite": ("logits",)},
        [("fault", "overflow", "output", "", True)],
    ),
]


@pytest.mark.parametrize(("changes", "found"), [row[1:] for row in FOUND], ids=[row[0] for row in FOUND])
def test_what_a_case_is_found_to_show(changes, found):
    findings = diagnose(cases_only(case("ordinary"), case("probed", 4, **changes)))
    assert sorted((f.severity, f.kind, f.stage, f.module, f.fp32_ok) for f in findings) == sorted(found)
    assert {(f.case, f.step) for f in findings} <= {("probed", 4)}
    assert all(f.evidence and f.advice for f in findings)
    assert not [f.advice for f in findings if "…" in f.advice], "advice that can be followed has no gaps"


def test_the_first_case_is_named_and_the_others_are_counted():
    evidence = cases_only(case("a"), *(case(name, i, differences=(FAR,)) for i, name in enumerate("bcdef", 1)))
    [finding] = diagnose(evidence)
    assert (finding.case, finding.step) == ("b", 1)
    assert "the same in 4 more cases: c, d, e and 1 more" in finding.evidence
    assert finding.facts["cases"] == ("b", "c", "d", "e", "f")


def test_the_figures_of_the_worst_output_are_the_evidence():
    worst = difference(0.7, name="aux", baseline=2.0, trial=2.7, place=(0, 3), beyond=4)
    [finding] = diagnose(cases_only(case(differences=(FAR, worst))))
    assert "aux: 4 of 10 elements beyond the tolerance" in finding.evidence
    assert "FP32 2, float16 2.7 at [0, 3]" in finding.evidence


@pytest.mark.parametrize(("allowed", "severity"), [(0, "fault"), (1, "notice")])
def test_an_allowed_change_of_decision_is_a_notice(allowed, severity):
    evidence = cases_only(case(**FLIP), criteria=dataclasses.replace(CRITERIA, decision_changes=allowed))
    [finding] = diagnose(evidence)
    assert finding.severity == severity


def test_a_broken_tie_is_told_with_the_rule_that_would_allow_it():
    [finding] = diagnose(cases_only(case(tied=True, margin=0.0, **FLIP)))
    assert "the best candidates are exactly tied in FP32" in finding.evidence
    assert "Criteria(tie='any')" in finding.advice


def test_noise_is_measured_against_the_whole_tolerance():
    criteria = dataclasses.replace(CRITERIA, outputs={"logits": {"atol": 0.1, "rtol": 0.1}})
    ranges = {"logits": OutputRange(name="logits", largest=6.0, noise=0.6, randomness=0.0)}
    noisy = case(noise={"logits": 0.6})
    assert not diagnose(cases_only(noisy, criteria=criteria, baseline=baseline(outputs=ranges, counts=())))
    assert diagnose(cases_only(noisy, baseline=baseline(outputs=ranges, counts=())))


@pytest.mark.parametrize(
    ("finals", "found"),
    [
        ((final_case(),), []),
        ((final_case(trial_nonfinite=("logits",)),), [("digit-3", 0)]),
        ((final_case("a", 1), final_case("b", 2, trial_nonfinite=("logits",))), [("b", 2)]),
        ((final_case(trial_nonfinite=("mask",), baseline_nonfinite=("mask",)),), []),
    ],
)
def test_outputs_that_only_the_trained_weights_make_non_finite(finals, found):
    findings = diagnose(trial(final_cases=finals))
    assert [(f.case, f.step) for f in findings] == found
    assert {(f.kind, f.stage, f.fp32_ok) for f in findings} <= {("overflow", "output", True)}


def test_a_case_that_was_bad_before_the_stretch_is_not_said_again_after_it():
    bad = case(differences=(nonfinite_difference(),))
    evidence = trial(cases=(bad,), final_cases=(final_case(trial_nonfinite=("logits",)),))
    assert len(diagnose(evidence)) == 1


def test_bfloat16_is_not_offered_to_bfloat16():
    bad = case(differences=(nonfinite_difference(),))
    assert "BF16" in diagnose(cases_only(bad))[0].advice
    assert "BF16" not in diagnose(cases_only(bad, policy=Policy(dtype="bfloat16")))[0].advice
