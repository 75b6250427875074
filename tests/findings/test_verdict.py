from __future__ import annotations

import dataclasses

import pytest

from amptui.findings.finding import Finding
from amptui.findings.judgement import ScaleCourse
from amptui.findings.verdict import judge
from amptui.project import Policy
from tests.findings.trials import (
    CRITERIA,
    INF,
    NAN,
    baseline,
    case,
    cases_only,
    counts,
    difference,
    failure,
    final_case,
    nonfinite_difference,
    settled,
    trial,
    trip,
)

FAR = case(differences=(difference(0.3),))
BROKEN = case(differences=(nonfinite_difference(baseline=NAN),), baseline_nonfinite=("logits",))
BAD_LOSS = trip("bad_loss", step=3, bad=("micro-batch 0",), count=1)
RANDOM = Finding(kind="randomness", severity="fault", stage="output", case="x", evidence=("dropout in eval",))
NEVER = {"applied": 0, "changed": 0, "first_applied": None}

VERDICTS = [
    ("everything held", trial(), "accept", "2 cases and 20 iterations under float16 autocast stayed within"),
    ("cases only", cases_only(), "accept", "1 case under float16"),
    ("no autocast", cases_only(policy=Policy(autocast=False)), "accept", "under the policy"),
    ("settling", settled(), "accept", "2 updates were skipped until the scale settled at 2^14"),
    (
        "a skip near the end",
        settled(
            {"step": 18, "last_step": 18, "count": 1},
            counts=(counts(applied=19, skipped=1, changed=19),),
            scaler=ScaleCourse(initial=65536.0, final=32768.0, lowest=32768.0),
        ),
        "accept",
        "1 update was skipped by the loss scaler's rule, at step 18 of 20; the scale ended at 2^15",
    ),
    (
        "eleven skips at the start",
        settled(counts=(counts(applied=9, skipped=11, changed=9, first_applied=11),)),
        "accept",
        "",
    ),
    (
        "an allowed change",
        cases_only(case(decision_stands=False), criteria=dataclasses.replace(CRITERIA, decision_changes=1)),
        "accept",
        "",
    ),
    ("with interventions", trial(interventions=1), "accept", "with interventions (1 intervention"),
    ("output too far", cases_only(FAR), "reject", "numbers failed, decisions hold, smallest margin 0.79"),
    (
        "margins unknown",
        cases_only(dataclasses.replace(FAR, margin=None, trial_margin=None)),
        "reject",
        "smallest margin unknown",
    ),
    (
        "too far without decide",
        cases_only(dataclasses.replace(FAR, decision_stands=None)),
        "reject",
        "in case 'digit-3', logits: 1 of 10",
    ),
    (
        "too far and decided otherwise",
        cases_only(dataclasses.replace(FAR, decision_stands=False)),
        "reject",
        "in case 'digit-3'",
    ),
    (
        "output not finite",
        cases_only(case(differences=(nonfinite_difference(),))),
        "reject",
        "2 of 10 elements not finite",
    ),
    (
        "decision changed",
        cases_only(case(decision_stands=False, trial_decision=5)),
        "reject",
        "the decision changed from 3 to 5",
    ),
    ("loss not finite", trial(trips=(BAD_LOSS,)), "reject", "at step 3, the loss is 0.7"),
    (
        "trial diverged on its own",
        trial(trips=(dataclasses.replace(BAD_LOSS, fp32_finite=False),)),
        "reject",
        "at step 3",
    ),
    (
        "gradient of iteration 0",
        trial(first_iteration=(difference(0.2, name="gradient w", limit=0.05, update="main"),)),
        "reject",
        "iteration 0: the difference is 0.2 of FP32's norm, where at most 0.05 is asked for",
    ),
    (
        "loss of iteration 0",
        trial(first_iteration=(difference(0.2, name="loss", limit=0.05, update="main"),)),
        "reject",
        "numbers failed, decisions hold",
    ),
    ("quality fell", trial(quality=0.5), "reject", "drop of quality (higher is better): 0.4, where at most 0.02"),
    (
        "progress beyond a locked limit",
        trial(late_loss={"main": 0.9}, criteria=dataclasses.replace(CRITERIA, progress=0.1)),
        "reject",
        "mean loss of main",
    ),
    (
        "not finite after the stretch",
        trial(final_cases=(final_case(trial_nonfinite=("logits",)),)),
        "reject",
        "after the trial's stretch",
    ),
    (
        "too many skips",
        settled({"step": 5}, counts=(counts(applied=15, skipped=5, changed=15),)),
        "reject",
        "at step 5",
    ),
    (
        "an initial scale far too high",
        settled(counts=(counts(applied=2, skipped=18, changed=2, first_applied=18),)),
        "reject",
        "infinite at scale 2^16",
    ),
    (
        "skipped at any scale",
        trial(trips=(trip(fitting_scale=None, count=20),), counts=(counts(skipped=20, **NEVER),)),
        "reject",
        "is not",
    ),
    ("nothing but weight decay", trial(counts=(counts(changed=0),)), "reject", "all-zero gradient"),
    (
        "no gradient under the policy",
        trial(counts=(counts(without_gradient=20, **NEVER),)),
        "reject",
        "no parameter of main",
    ),
    (
        "a fault that was traced",
        trial(located=(dataclasses.replace(RANDOM, kind="overflow", step=4, case=None),)),
        "reject",
        "at step 4",
    ),
    (
        "code fails under the policy",
        trial(failures=(failure(),), completed=False),
        "reject",
        "at train.py:12 (RuntimeError",
    ),
    (
        "code fails, and FP32 does not repeat",
        trial(failures=(failure(),), baseline=baseline(repeatable=False)),
        "reject",
        "fails under float16",
    ),
    ("stopped after a fault", trial(trips=(BAD_LOSS,), completed=False), "reject", "at step 3"),
    (
        "noise in one output, NaN in another",
        cases_only(case(differences=(difference(0.3), nonfinite_difference(name="aux")), noise={"logits": 0.3})),
        "reject",
        "aux",
    ),
    (
        "code fails in FP32",
        trial(failures=(failure(under="fp32"),), completed=False),
        "inconclusive",
        "fails in FP32 itself",
    ),
    (
        "FP32 stretch not finite",
        trial(baseline=baseline(first_bad={"main": 5})),
        "inconclusive",
        "baseline itself is not finite (main at step 5)",
    ),
    (
        "FP32 stretch not finite, trial neither",
        trial(
            baseline=baseline(first_bad={"main": 3}),
            trips=(dataclasses.replace(BAD_LOSS, fp32_finite=False, baseline_step=3),),
        ),
        "inconclusive",
        "not finite",
    ),
    ("NaN in a case in FP32", cases_only(BROKEN), "inconclusive", "logits of case 'digit-3'"),
    (
        "NaN in FP32 after the stretch",
        trial(final_cases=(final_case(baseline_nonfinite=("logits",), trial_nonfinite=("logits",)),)),
        "inconclusive",
        "after the stretch",
    ),
    ("quality of FP32 is NaN", trial(baseline=baseline(quality=NAN)), "inconclusive", "the quality is nan"),
    (
        "FP32 does not repeat",
        trial(baseline=baseline(repeatable=False, difference="loss of main")),
        "inconclusive",
        "differ, first in loss of main",
    ),
    (
        "FP32 does not repeat, place unknown",
        trial(baseline=baseline(repeatable=False)),
        "inconclusive",
        "not repeatable",
    ),
    (
        "random output",
        cases_only(case(randomness={"logits": 0.5}, differences=(difference(0.3),))),
        "inconclusive",
        "1 case depends on the RNG state",
    ),
    (
        "random decision",
        cases_only(case(decision_random=True), case("b", 1, decision_random=True)),
        "inconclusive",
        "2 cases depend on the RNG state in FP32 already (the decision of",
    ),
    ("randomness that was traced", trial(located=(RANDOM,)), "inconclusive", "in case 'x', dropout in eval"),
    (
        "noise above the tolerance",
        cases_only(case(differences=(difference(0.3),), noise={"logits": 0.3})),
        "inconclusive",
        "is larger than the tolerance",
    ),
    ("noise above the tolerance, trial within", cases_only(case(noise={"logits": 0.3})), "inconclusive", "noise"),
    (
        "FP32 has no gradient",
        trial(
            counts=(counts(without_gradient=20, **NEVER),),
            baseline=baseline(counts=(counts(without_gradient=20, **NEVER),)),
        ),
        "inconclusive",
        "applied no update of main",
    ),
    (
        "a stretch too short to settle",
        settled(iterations=3, counts=(counts(iterations=3, skipped=3, **NEVER),)),
        "inconclusive",
        "too few updates of main were applied: 0 of 3 iterations, the scale was still settling; give more",
    ),
    (
        "too few applied, and none of the skips before the first applied one",
        settled(
            {"step": 1, "count": 4, "last_step": 4}, counts=(counts(applied=1, skipped=4, withheld=15, changed=1),)
        ),
        "inconclusive",
        "too few updates of main were applied: 1 of 20 iterations, scale 2^16 was too high at step 1, where 2^14 fits",
    ),
    ("stopped by the user", trial(completed=False), "inconclusive", "not run to its end"),
    (
        "nothing to compare",
        cases_only(cases=(), baseline=baseline(quality=None, counts=())),
        "inconclusive",
        "give the project cases or updates",
    ),
]


@pytest.mark.parametrize(
    ("evidence", "verdict", "said"), [row[1:] for row in VERDICTS], ids=[row[0] for row in VERDICTS]
)
def test_the_verdict_and_what_it_says(evidence, verdict, said):
    judgement = judge(evidence)
    assert judgement.verdict == verdict
    assert said in judgement.words
    assert judgement.words.startswith(verdict.capitalize())
    assert judgement.words.endswith(".")
    if verdict == "accept":
        assert all(row.passed is not False for row in judgement.rows)
        assert all(finding.severity == "notice" for finding in judgement.findings)


def test_the_same_infinity_as_the_baseline_is_accepted():
    mask = difference(0.0, name="mask", baseline=-INF, trial=-INF)
    final = final_case(baseline_nonfinite=("mask",), trial_nonfinite=("mask",))
    evidence = trial(cases=(case(differences=(mask,), baseline_nonfinite=("mask",)),), final_cases=(final,))
    assert judge(evidence).verdict == "accept"


def test_a_second_update_with_too_few_steps_decides_alone():
    both = baseline(counts=(counts("generator"), counts("critic")))
    tally = (counts("generator"), counts("critic", applied=2, skipped=14, iterations=16, changed=2, first_applied=14))
    judgement = judge(trial(counts=tally, baseline=both, trips=(trip(update="critic", count=14),)))
    assert judgement.verdict == "reject"
    assert [(f.update, f.severity) for f in judgement.findings] == [("critic", "fault")]


def test_suggested_regions_come_from_what_was_traced_each_once():
    first = dataclasses.replace(RANDOM, kind="overflow", facts={"fp32_regions": ("norm", "head")})
    second = dataclasses.replace(first, case="y", facts={"fp32_regions": ["norm"]})
    assert judge(trial(located=(first, second))).fp32_regions == ("norm", "head")
    assert judge(trial()).fp32_regions == ()
