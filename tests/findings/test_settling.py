from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amptui.findings.judgement import UpdateCounts
from amptui.findings.settling import applied_share, counted_iterations, settles, skips_to, too_few
from tests.findings.trials import NAN, counts, trip


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"fitting_scale": None}, False),
        ({"found_inf": False}, False),
        ({"fp32_finite": False}, False),
        ({"baseline_step": 19}, True),
        ({"baseline_step": 0}, False),
        ({"outcome": "bad_loss"}, False),
    ],
)
def test_only_a_gradient_that_a_lower_scale_mends_is_settling(changes, expected):
    assert settles(trip(**{"outcome": "bad_gradient", **changes})) is expected


@pytest.mark.parametrize(
    ("fitting", "scale", "backoff", "skips"),
    [
        (16384.0, 65536.0, 0.5, 2),
        (16384.0, 65536.0, 0.25, 1),
        (10000.0, 65536.0, 0.5, 3),
        (65536.0, 65536.0, 0.5, 0),
        (2.0**-24, 65536.0, 0.5, 40),
        (0.0, 65536.0, 0.5, 0),
        (2.0**-600, 2.0**600, 0.5, 1200),
        (NAN, 65536.0, 0.5, 0),
    ],
)
def test_skips_until_a_scale_is_reached(fitting, scale, backoff, skips):
    assert skips_to(fitting, scale, backoff) == skips


@given(st.integers(1, 60), st.integers(1, 7), st.data())
def test_iterations_are_counted_from_the_first_applied_one_whatever_every_is(iterations, every, data):
    steps = list(range(0, iterations, every))
    first = data.draw(st.sampled_from(steps))
    after = [step for step in steps if step >= first]
    applied = data.draw(st.integers(1, len(after)))
    tally = UpdateCounts(
        name="critic",
        iterations=len(steps),
        applied=applied,
        skipped=len(steps) - applied,
        withheld=0,
        changed=applied,
        first_applied=first,
    )
    assert counted_iterations(tally, iterations) == len(after)
    assert applied_share(tally, iterations) == applied / len(after)


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({}, 1.0),
        ({"applied": 18, "skipped": 2}, 0.9),
        ({"applied": 18, "skipped": 2, "first_applied": 2}, 1.0),
        ({"applied": 9, "skipped": 11, "first_applied": 2}, 0.5),
        ({"applied": 0, "skipped": 20, "first_applied": None}, 0.0),
        ({"iterations": 0, "applied": 0, "first_applied": None}, 0.0),
    ],
)
def test_the_share_of_applied_updates(changes, share):
    assert applied_share(counts(**changes), 20) == share


def test_iterations_without_a_gradient_in_fp32_either_are_not_asked_for():
    idle = counts(applied=15, without_gradient=5)
    assert applied_share(idle, 20, without_gradient=5) == 1.0
    assert applied_share(idle, 20, without_gradient=0) == 0.75


@pytest.mark.parametrize(("applied", "few"), [(0, True), (4, True), (5, False), (20, False)])
def test_too_few_is_less_than_a_quarter(applied, few):
    assert too_few(counts(applied=applied)) is few


def test_a_stretch_without_any_gradient_has_too_few():
    assert too_few(counts(applied=0, without_gradient=20), without_gradient=20)
