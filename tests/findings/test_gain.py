"""No gain is stated that is smaller than its own noise."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amptui.findings.gain import (
    Memory,
    SeedSpread,
    Spread,
    memory_claim,
    noise_of,
    seed_claim,
    spread,
    time_claim,
)

QUIET = Spread(low=0.99, median=1.0, high=1.01, count=9)
MB = 1 << 20


def ratios(low: float, median: float, high: float, count: int = 9) -> Spread:
    return Spread(low=low, median=median, high=high, count=count)


@given(st.lists(st.floats(min_value=0.01, max_value=100.0), min_size=2, max_size=30))
def test_quartiles_are_those_of_the_standard_library(values: list[float]) -> None:
    found = spread(values)
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")

    assert (found.low, found.median, found.high) == pytest.approx((low, median, high))
    assert found.count == len(values)


def test_of_nothing_there_is_no_median() -> None:
    assert math.isnan(spread([]).median)


def test_noise_is_the_farther_quartile_of_two_equal_runs() -> None:
    assert noise_of(ratios(0.8, 1.0, 1.05)) == pytest.approx(0.25)
    assert noise_of(ratios(0.9, 1.0, 1.3)) == pytest.approx(0.3)
    assert noise_of(ratios(0.0, 1.0, 1.0)) == math.inf


class TestTime:
    def test_a_clear_gain_is_stated_with_its_quartiles(self) -> None:
        claim = time_claim(ratios(1.8, 2.0, 2.2), QUIET)

        assert (claim.direction, claim.figure) == ("better", 2.0)
        assert claim.words == "2.00 times as fast as FP32 (quartiles 1.80 to 2.20)"

    def test_a_clear_loss_is_stated_as_a_loss(self) -> None:
        claim = time_claim(ratios(0.4, 0.5, 0.5), QUIET)

        assert claim.direction == "worse"
        assert claim.words == "2.00 times as long as FP32 (quartiles 2.00 to 2.50)"

    @pytest.mark.parametrize(
        ("speedup", "same"),
        [
            (ratios(1.005, 1.05, 1.1), QUIET),  # its own weaker quartile lies within the noise
            (ratios(1.2, 1.3, 1.4), ratios(0.7, 1.0, 1.3)),  # the machine is too restless
            (ratios(0.9, 0.95, 0.995), QUIET),
        ],
    )
    def test_what_the_noise_can_make_is_not_stated(self, speedup: Spread, same: Spread) -> None:
        claim = time_claim(speedup, same)

        assert (claim.direction, claim.figure) == ("none", None)
        assert "no difference in time beyond the noise" in claim.words

    def test_too_few_pairs_state_nothing(self) -> None:
        assert time_claim(ratios(1.9, 2.0, 2.1, count=4), QUIET).direction == "none"
        assert time_claim(ratios(1.9, 2.0, 2.1), ratios(0.99, 1.0, 1.01, count=4)).direction == "none"

    @given(st.floats(min_value=0.0, max_value=0.4), st.floats(min_value=0.5, max_value=2.0))
    def test_two_equal_runs_never_gain_over_themselves(self, noise: float, median: float) -> None:
        same = ratios(median - noise, median, median + noise)

        assert time_claim(same, same).direction == "none"


class TestMemory:
    def test_less_device_memory_is_a_share(self) -> None:
        claim = memory_claim(Memory(kind="device", fp32=1000, fp32_again=1000, mixed=600))

        assert (claim.direction, claim.words) == ("better", "peak device memory: 40% less")

    def test_more_is_said_too(self) -> None:
        claim = memory_claim(Memory(kind="device", fp32=1000, fp32_again=1000, mixed=1500))

        assert (claim.direction, claim.words) == ("worse", "peak device memory: 50% more")

    def test_what_two_equal_runs_differ_by_is_no_gain(self) -> None:
        assert memory_claim(Memory(kind="device", fp32=1000, fp32_again=900, mixed=850)).direction == "none"

    def test_a_page_of_resident_memory_is_no_gain(self) -> None:
        memory = Memory(kind="resident", fp32=100 * MB, fp32_again=100 * MB, mixed=100 * MB - 4096)

        assert memory_claim(memory).direction == "none"

    def test_unknown_memory_is_said_to_be_unknown(self) -> None:
        assert memory_claim(None).words == "memory could not be measured here"


class TestSeeds:
    LOSS = SeedSpread(what="loss of main", subject="loss", baseline=0.5, others=(0.45, 0.55, 0.52))

    def test_an_effect_within_the_spread_is_what_seeds_do(self) -> None:
        claim = seed_claim(self.LOSS, 0.53)

        assert (claim.direction, claim.figure) == ("none", pytest.approx(0.03))
        assert "within what seeds do: with 3 other seeds FP32 gives 0.45 to 0.55" in claim.words

    def test_an_effect_beyond_the_spread_is_told_as_such(self) -> None:
        claim = seed_claim(self.LOSS, 0.9)

        assert claim.direction == "worse"
        assert "beyond what seeds do" in claim.words

    def test_seeds_that_change_nothing_are_no_yardstick(self) -> None:
        fixed = SeedSpread(what="quality", subject="quality", baseline=0.9, others=(0.9, 0.9))

        assert "2 other seeds change nothing in FP32" in seed_claim(fixed, 0.8).words

    @pytest.mark.parametrize("trial", [math.nan, math.inf])
    def test_a_trial_that_is_not_finite_is_not_compared(self, trial: float) -> None:
        assert "not comparable" in seed_claim(self.LOSS, trial).words
