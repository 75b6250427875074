"""The account beyond the verdict: forecast, precision, measurement, other seeds, policies side by side."""

from __future__ import annotations

from typing import Any

import pytest

from amptui.report.result import check_result, exit_code
from amptui.report.told_cases import say_found, say_not_found
from amptui.session.state import SessionState, reduce
from tests.report import measured, sessions
from tests.report.sessions import account_of
from tests.report.stages import Told, started


def words_of(text: str) -> str:
    return " ".join(text.split())


def after(events: Told) -> SessionState:
    state = SessionState()
    for event in events:
        state = reduce(state, event)  # type: ignore[arg-type]
    return state


@pytest.mark.parametrize(
    "said",
    [
        # the forecast
        "✓ forecast float16: nothing overflows; the largest value, 655 in head (convolution), leaves a factor of 100",
        "a first loss scale of 2^12 should fit, limited by the gradient in head (mm); 25.0% of the gradients round to",
        "round to zero at it; no loss scale mends 2 iterations whose gradients overflow at scale 1 already",
        "! forecast bfloat16 fails at net.py:9: RuntimeError: no kernel",
        # the trials
        "✓ precision 3 of 12 ops ran in half (25%) · 5 casts, 2.0 KiB written a step",
        "foreseen no overflow in forward was foreseen, and none was found",
        "a first scale of 2^12 was foreseen; the trial started at 2^16 and came down to 2^12 with 2 skipped updates",
        # the measurement
        "✓ cases 4 cases once more without diagnostics: the same bits",
        "FP32 10.4 ms a step (quartiles 9.8 to 11.2)",
        "ratio 2.00 (quartiles 1.90 to 2.10): FP32 over mixed, pair by pair",
        "noise 1.00 (quartiles 0.99 to 1.01): FP32 over FP32, two equal runs",
        "peak FP32 1,000 B, mixed 600 B",
        "device cuda:0 for both",
        "mixed 5.2 ms a step (quartiles 4.9 to 5.6)",
        "12 rounds of 8 training steps, FP32 and mixed in random order · CUDA events · 1 left out for a skip",
        "for both float32 matmul high, cuda matmul tf32 ✓ time",
        "✓ time 2.00 times as fast as FP32",
        "✓ memory peak device memory: 40% less",
        "· time no difference in time beyond the noise",
        # other seeds
        "yardstick the FP32 stretch under 3 other seeds: draws and order of batches",
        "loss of main: 0.5 in FP32, 0.51 under the policy; within what seeds do",
        "with 3 other seeds FP32 gives 0.48 to 0.53",
        # side by side
        "✓ float16 accept · 38 of 40 applied · final scale 2^12 · quality 0.955 2.00 times as fast as FP32",
        "✓ bfloat16 accept · 38 of 40 applied · quality 0.955",
        "✓ advice Take float16: it is accepted, and 2.00 times as fast as FP32 and peak device memory: 40% less.",
    ],
)
def test_two_policies_side_by_side_say(said: str) -> None:
    assert said in words_of(account_of(measured.side_by_side()))


def test_several_measurements_are_one_stage() -> None:
    assert account_of(measured.side_by_side()).count("6 Measure") == 1


@pytest.mark.parametrize(
    ("overflow", "said"),
    [
        (measured.place(), "conv (convolution) reaches 230,000 in FP32 at step 4 · net.py:31"),
        (
            measured.place("", step=None, case="long-3"),
            "the model itself (convolution) reaches 230,000 in FP32 in case long-3",
        ),
        (measured.place("0", why="cast", op="to"), "module 0 (cast) is given 230,000 at step 4"),
        (measured.place(largest=8.372e18), "conv (convolution) reaches 8.372e18 in FP32 at step 4"),
        (
            measured.place(why="row", op="softmax"),
            "conv (softmax) has a row that lies wholly beyond the range at step 4",
        ),
    ],
)
def test_an_overflow_is_named_with_its_place(overflow: measured.PlaceForecast, said: str) -> None:
    text = words_of(account_of([started("baseline"), measured.forecast(overflow)]))

    assert f"! forecast float16 overflows: {said}" in text


def test_an_overflow_in_the_dtype_of_an_autocast_of_the_projects_own_says_so() -> None:
    nested = measured.place(dtype="bfloat16")
    text = words_of(account_of([started("baseline"), measured.forecast(nested)]))

    assert "conv (convolution) reaches 230,000 in FP32, and is computed in bfloat16, at step 4" in text


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, "a first loss scale of 2^12 should fit, limited by the gradient in head (mm)"),
        (
            {"overflowing": 1},
            "; no loss scale mends 1 iteration that overflows in forward",
        ),
        (
            {"overflowing": 3, "beyond_every_scale": 1},
            "; no loss scale mends 3 iterations that overflow in forward and 1 iteration whose gradients overflow at",
        ),
        (
            {"beyond_every_scale": 2},
            "; no loss scale mends 2 iterations whose gradients overflow at scale 1 already",
        ),
        (
            {"initial_scale": None, "limited_by": None, "overflowing": 8},
            "net.py:31 no loss scale mends 8 iterations that overflow in forward",
        ),
    ],
)
def test_a_first_loss_scale_is_no_promise_where_no_scale_helps(known: dict[str, Any], said: str) -> None:
    text = words_of(
        account_of([started("baseline"), measured.forecast(measured.place(), **{"beyond_every_scale": 0, **known})])
    )

    assert said in text


def test_many_overflows_are_counted() -> None:
    places = [measured.place(f"layer.{n}") for n in range(9)]
    text = words_of(account_of([started("baseline"), measured.forecast(*places)]))

    assert "then layer.2 (convolution)" in text
    assert "layer.3" not in text
    assert "and 6 more places" in text


def test_why_there_is_no_forecast_is_said() -> None:
    text = account_of([started("baseline"), measured.forecast(failed="RuntimeError: no mode")])

    assert "forecast     none: RuntimeError: no mode" in text


def test_autocast_that_did_nothing_is_marked() -> None:
    text = words_of(account_of([measured.mapped(ops={"float32": 3}, words="all 3 ops ran in float32", casts=0)]))

    assert "! precision all 3 ops ran in float32" in text


def test_cases_that_are_not_the_accepted_ones_state_nothing() -> None:
    text = words_of(account_of([started("measure"), measured.measured(differs="output scores of case a")]))

    assert "✗ cases not the accepted ones: output scores of case a differs; nothing is stated" in text


def test_one_unmeasured_trial_is_not_compared_with_itself() -> None:
    assert "Stay in FP32" not in account_of(sessions.accepted())
    assert "Policies" not in account_of(sessions.accepted())


class TestJson:
    def test_trials_measurement_and_forecast_are_there(self) -> None:
        result = check_result(after(measured.side_by_side()), session="s")

        assert [(trial["name"], trial["verdict"]) for trial in result["trials"]] == [
            ("float16", "accept"),
            ("bfloat16", "accept"),
        ]
        assert result["trials"][0]["measurement"]["speedup"] == {"low": 1.9, "median": 2.0, "high": 2.1, "count": 12}
        assert result["trials"][0]["precision"]["casts"] == 5
        assert result["trials"][0]["forecast"]["trial_scale"] == 4096.0
        assert [told["trial"] for told in result["measurement"]["trials"]] == [1, 2]
        assert result["measurement"]["seeds"]["seeds"] == 3
        assert [forecast["dtype"] for forecast in result["forecast"]["dtypes"]] == ["float16", "bfloat16"]
        assert result["recommendation"]["trial"] == 1

    def test_the_chosen_trial_is_the_result(self) -> None:
        state = after(measured.side_by_side(measure=False, first="reject"))
        result = check_result(state, session="s")

        assert (result["verdict"], result["policy"]["dtype"], exit_code(state)) == ("accept", "bfloat16", 0)

    def test_all_rejected_is_a_reject(self) -> None:
        state = after(
            [
                *measured.trial(1, "float16", "reject", scaled=True),
                *measured.trial(2, "bfloat16", "reject", scaled=False),
            ]
        )

        assert exit_code(state) == 1
        assert check_result(state, session=None)["policy"]["dtype"] == "float16"

    def test_unmeasured_there_is_no_measurement(self) -> None:
        result = check_result(after(sessions.accepted()), session=None)

        assert result["measurement"] is None
        assert result["forecast"] is None
        assert len(result["trials"]) == 1


class TestFoundCases:
    def test_each_case_has_its_place_and_reason(self) -> None:
        lines = say_found(measured.FOUND).splitlines()

        assert lines[0] == "2 cases worth having, out of 1,280 samples in FP32"
        assert lines[1] == "  boundary-1  boundary  batch 32, sample 2 · near · decides 3"
        assert lines[2] == "  empty       edge      made · all zero"
        assert lines[3] == "  ! 2 samples are not finite"

    def test_the_code_that_takes_them_over_is_shown(self) -> None:
        text = say_found(measured.FOUND)

        assert "found = torch.load('/tmp/found.pt', weights_only=True)" in text
        assert "*(Case(**case) for case in found)" in text

    def test_foreign_names_are_made_safe(self) -> None:
        from dataclasses import replace

        nasty = replace(measured.FOUND.found[0], id="\x1b[31m", why="\x07")

        assert "\x1b" not in say_found(replace(measured.FOUND, found=(nasty,)))
        assert "\x07" not in say_found(replace(measured.FOUND, found=(nasty,)))

    def test_a_refusal_is_one_sentence_with_its_mend(self) -> None:
        text = say_not_found(after(sessions.refused()))

        assert (
            text
            == "amptui: train.py:21: parameter 'w' is in two optimizers; let exactly one optimizer own each parameter"
        )

    def test_an_early_end_is_said(self) -> None:
        assert say_not_found(SessionState()) == "amptui: the engine ended before it had looked"
