"""Which of several policies to take, and why."""

from __future__ import annotations

from typing import Any

import pytest

from amptui.findings.gain import Claim
from amptui.findings.judgement import Row, ScaleCourse, UpdateCounts
from amptui.findings.policies import TrialSummary, by_standing, policy_name, recommend
from amptui.project import Policy, Scaler

SCALER = ScaleCourse(initial=65536.0, final=65536.0, lowest=65536.0)


def trial(number: int, dtype: str = "float16", **changes: Any) -> TrialSummary:
    held = changes.pop("held", 0)
    values: dict[str, Any] = {
        "trial": number,
        "policy": Policy(dtype=dtype),
        "verdict": "accept",
        "scaler": SCALER if dtype == "float16" else None,
        "counts": (UpdateCounts(name="main", iterations=9, applied=9 - held, skipped=held, withheld=0, changed=9),),
    }
    return TrialSummary(**{**values, **changes})


def timed(direction: str, ratio: float | None = None) -> tuple[Claim, ...]:
    return (Claim(subject="time", direction=direction, words=f"{ratio} times as fast", figure=ratio),)  # type: ignore[arg-type]


def saves_memory() -> tuple[Claim, ...]:
    return (
        Claim(subject="time", direction="none", words="no difference"),
        Claim(subject="memory", direction="better", words="40% less", figure=0.6),
    )


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(), "float16"),
        (Policy(dtype="bf16"), "bfloat16"),
        (Policy(scaler=Scaler(init_scale=1024.0)), "float16@2^10"),
        (Policy(scaler=Scaler()), "float16"),
        (Policy(scaler=None), "float16@none"),
        (Policy(dtype="bf16", scaler=Scaler(init_scale=8.0)), "bfloat16@2^3"),
        (Policy(dtype="bf16", scaler=None), "bfloat16"),
        (Policy(fp32_regions=("head",)), "float16 with 1 FP32 region"),
    ],
)
def test_a_policys_name_tells_it_from_others(policy: Policy, expected: str) -> None:
    assert policy_name(policy) == expected


def test_nothing_accepted_means_fp32_with_what_failed() -> None:
    failed = (
        Row(criterion="difference", passed=False),
        Row(criterion="difference", passed=False),
        Row(criterion="updates", passed=False),
        Row(criterion="quality", passed=True),
    )
    said = recommend([trial(1, verdict="reject", rows=failed), trial(2, "bfloat16", verdict="inconclusive")])

    assert said.trial is None
    assert said.words == ("Stay in FP32: float16 is rejected (difference and updates); bfloat16 is inconclusive.")


def test_a_trial_without_a_verdict_is_not_recommended() -> None:
    assert recommend([trial(1, verdict=None)]).trial is None


def test_unmeasured_the_one_without_a_scaler_is_taken() -> None:
    said = recommend([trial(1), trial(2, "bfloat16")])

    assert said.trial == 2
    assert said.words == "Take bfloat16: it is accepted and needs no loss scale; not measured yet."


def test_unmeasured_a_rejected_one_is_passed_over() -> None:
    assert recommend([trial(1), trial(2, "bfloat16", verdict="reject")]).trial == 1


def test_the_faster_one_is_taken() -> None:
    fast = trial(1, claims=timed("better", 2.4))
    slower = trial(2, "bfloat16", claims=timed("better", 1.5))

    said = recommend([fast, slower])

    assert said.trial == 1
    assert said.words == "Take float16: it is accepted, and 2.4 times as fast."


def test_of_two_about_as_fast_the_one_with_less_to_go_wrong_is_taken() -> None:
    said = recommend([trial(1, claims=timed("better", 2.05)), trial(2, "bfloat16", claims=timed("better", 2.0))])

    assert said.trial == 2


def test_fewer_skips_decide_between_two_scales() -> None:
    skipping = trial(1, held=3, claims=timed("better", 2.0))
    settled = trial(2, policy=Policy(scaler=Scaler(init_scale=1024.0)), claims=timed("better", 2.0))

    assert recommend([skipping, settled]).trial == 2


def test_saved_memory_is_a_gain_as_long_as_no_time_is_lost() -> None:
    assert recommend([trial(1, claims=saves_memory())]).trial == 1
    slower = (timed("worse", 0.5)[0], saves_memory()[1])
    assert recommend([trial(1, claims=slower)]).trial is None


def test_accepted_without_a_gain_means_fp32() -> None:
    said = recommend([trial(1, claims=timed("none")), trial(2, "bfloat16", claims=timed("worse", 0.4))])

    assert said.trial is None
    assert said.words == (
        "Stay in FP32 on this device: float16 is accepted, but gains nothing beyond the noise; "
        "bfloat16 is accepted, but takes longer."
    )


def test_what_was_accepted_and_not_measured_is_said_where_nothing_is_gained() -> None:
    said = recommend([trial(1), trial(2, "bfloat16", claims=timed("none"))])

    assert said.trial is None
    assert said.words.endswith("gains nothing beyond the noise; float16 is accepted, not measured.")


def test_measured_stands_before_unmeasured_and_less_to_go_wrong_before_more() -> None:
    trials = [trial(1, verdict="reject"), trial(2), trial(3, "bfloat16"), trial(4, held=2, claims=timed("none"))]

    assert [standing.trial for standing in by_standing(trials)] == [4, 3, 2]


def test_an_intervention_counts_against_a_trial() -> None:
    touched = trial(1, "bfloat16", interventions=1)

    assert recommend([touched, trial(2)]).trial == 2
