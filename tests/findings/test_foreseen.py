"""What a forecast may say: ranges, shares lost, the scale that fits, and what it was worth afterwards."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amptui.findings.finding import Finding
from amptui.findings.foreseen import (
    DEFAULT_SCALE,
    EXPONENTS,
    LOWEST_EXPONENT,
    RANGES,
    DtypeForecast,
    Gradients,
    PlaceForecast,
    compare,
    fitting_scale,
    headroom,
    initial_scale,
    lost_share,
    near,
    overflows,
    place_name,
    place_words,
    scale_table,
)
from amptui.findings.judgement import ScaleCourse, UpdateCounts


def as_float16(value: float) -> float:
    """`value` rounded to float16 by the standard library's own packing; inf where that refuses."""
    try:
        return float(struct.unpack("<e", struct.pack("<e", value))[0])
    except OverflowError:
        return math.inf


def exponents(*values: float) -> list[float]:
    counts = [0.0] * EXPONENTS
    for value in values:
        counts[math.frexp(value)[1] - 1 - LOWEST_EXPONENT] += 1
    return counts


def place(module: str = "body", op: str = "mm", **changes: object) -> PlaceForecast:
    values = {
        "phase": "forward",
        "module": module,
        "op": op,
        "line": "net.py:3",
        "dtype": "float16",
        "results": 4,
        "largest": 1e5,
        "headroom": 0.65,
        "lost": 0.0,
        "step": 2,
    }
    return PlaceForecast(**{**values, **changes})  # type: ignore[arg-type]


@given(st.floats(min_value=60000.0, max_value=70000.0))
def test_a_value_overflows_in_float16_where_rounding_makes_it_infinite(value: float) -> None:
    assert overflows(value, "float16") == math.isinf(as_float16(value))


def test_bfloat16_reaches_as_far_as_float32() -> None:
    assert not overflows(3.3e38, "bfloat16")
    assert overflows(3.4e38, "bfloat16")


def test_headroom_is_the_factor_that_is_left() -> None:
    assert headroom(65504.0 / 8, "float16") == 8.0
    assert headroom(0.0, "float16") == math.inf


@given(st.floats(min_value=2.0**-40, max_value=2.0**10))
def test_a_value_is_lost_where_float16_rounds_it_to_zero(value: float) -> None:
    lost = lost_share(exponents(value), "float16")
    if math.frexp(value)[0] != 0.5:  # exactly half of the smallest number rounds to even, to zero
        assert lost == (1.0 if as_float16(value) == 0.0 else 0.0)


def test_the_share_lost_falls_with_the_loss_scale() -> None:
    counts = exponents(2.0**-30, 2.0**-28, 2.0**-20, 1.0)

    shares = [lost_share(counts, "float16", 2.0**k) for k in (0, 4, 8)]

    assert shares == [0.5, 0.25, 0.0]


def test_nothing_is_lost_of_nothing() -> None:
    assert lost_share([0.0] * EXPONENTS, "float16") == 0.0


class TestTheScaleThatFits:
    @given(st.floats(min_value=1e-20, max_value=1e20))
    def test_is_a_power_of_two_that_leaves_a_factor_of_two_and_no_four(self, largest: float) -> None:
        scale = fitting_scale(Gradients(largest=largest, exponents=[]), "float16")

        assert math.frexp(scale)[0] == 0.5
        assert 2.0 * largest * scale <= RANGES["float16"].largest < 4.0 * largest * scale

    def test_a_loss_in_half_must_hold_the_scale_itself(self) -> None:
        assert fitting_scale(Gradients(largest=0.0, exponents=[], seed=1.0), "float16") == 2.0**15

    def test_without_a_gradient_in_half_every_scale_fits(self) -> None:
        assert fitting_scale(Gradients(largest=0.0, exponents=[]), "float16") == 2.0**127


class TestTheScaleToStartWith:
    def test_is_torchs_default_where_that_fits(self) -> None:
        assert initial_scale(Gradients(largest=1e-3, exponents=exponents(1e-3)), "float16") == DEFAULT_SCALE

    def test_is_lower_where_the_default_overflows(self) -> None:
        assert initial_scale(Gradients(largest=10.0, exponents=exponents(10.0)), "float16") == 2.0**11

    def test_is_higher_where_the_default_loses_much(self) -> None:
        tiny = Gradients(largest=2.0**-30, exponents=exponents(*[2.0**-45] * 5, 2.0**-30))

        assert initial_scale(tiny, "float16") == 2.0**20

    def test_is_never_below_one(self) -> None:
        assert initial_scale(Gradients(largest=1e9, exponents=exponents(1e9)), "float16") == 1.0

    def test_bfloat16_needs_none(self) -> None:
        assert initial_scale(Gradients(largest=1e-3, exponents=exponents(1e-30)), "bfloat16") == 1.0


def test_the_table_says_which_scales_fit_and_what_they_lose() -> None:
    gradients = Gradients(largest=1.0, exponents=exponents(1.0, 2.0**-30))

    table = scale_table(gradients, "float16", (1.0, 2.0**14, 2.0**16))

    assert [(row.fits, row.lost) for row in table] == [(True, 0.5), (True, 0.0), (False, 0.0)]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a", True),
        ("a", "a.b", True),
        ("", "a", True),
        ("a.b", "a.c", False),
        ("", "a.b", False),
        ("ab", "a", False),
    ],
)
def test_near_is_the_same_module_its_parent_or_its_child(one: str, other: str, expected: bool) -> None:
    assert near(one, other) is expected


class TestAfterwards:
    COUNTS = (UpdateCounts(name="main", iterations=9, applied=7, skipped=2, withheld=0, changed=7),)
    SCALER = ScaleCourse(initial=65536.0, final=32768.0, lowest=16384.0)

    def overflow(
        self, module: str, severity: str = "fault", *, kind: str = "overflow", op: str | None = "mm"
    ) -> Finding:
        return Finding(kind=kind, severity=severity, stage="forward", module=module, op=op, step=2)  # type: ignore[arg-type]

    def test_a_foreseen_overflow_is_right_where_a_finding_names_its_module(self) -> None:
        forecast = DtypeForecast(dtype="float16", overflows=(place("a.b"), place("c")))

        said = compare(forecast, [self.overflow("a.b")], self.COUNTS, self.SCALER)

        assert said.overflow_right
        assert said.words[0] == "the overflow in a.b (mm) was foreseen"

    def test_another_module_is_said_to_be_another(self) -> None:
        forecast = DtypeForecast(dtype="float16", overflows=(place("c"),))

        said = compare(forecast, [self.overflow("a.b")], self.COUNTS, self.SCALER)

        assert not said.overflow_right
        assert said.words[0] == "the overflow in a.b (mm) was not foreseen; one in c (mm) was"

    def test_an_overflow_that_did_not_come_is_admitted(self) -> None:
        forecast = DtypeForecast(dtype="float16", overflows=(place(""),))

        said = compare(forecast, [self.overflow("a", severity="notice")], self.COUNTS, self.SCALER)

        assert not said.overflow_right
        assert said.words[0] == "an overflow was foreseen in the model itself (mm), and none was found"

    def test_an_overflow_with_a_known_place_speaks_before_one_of_an_output(self) -> None:
        forecast = DtypeForecast(dtype="float16", overflows=(place("a.b"),))

        said = compare(forecast, [self.overflow("", op=None), self.overflow("a.b")], self.COUNTS, self.SCALER)

        assert said.words[0] == "the overflow in a.b (mm) was foreseen"

    @pytest.mark.parametrize(
        ("kind", "told"),
        [
            ("not_precision", " was foreseen; FP32 has it too"),
            ("autocast_state", ", found as autocast state, was foreseen"),
        ],
    )
    def test_a_foreseen_overflow_that_is_told_by_its_reason_is_found(self, kind: str, told: str) -> None:
        forecast = DtypeForecast(dtype="float16", overflows=(place("a.b"),))

        said = compare(forecast, [self.overflow("a.b", kind=kind)], self.COUNTS, self.SCALER)

        assert said.overflow_right
        assert said.words[0] == f"the overflow in a.b (mm){told}"

    def test_a_cast_is_called_so_in_both(self) -> None:
        forecast = DtypeForecast(dtype="float16", overflows=(place("a", "to", why="cast"),))

        said = compare(forecast, [self.overflow("a", op="to")], self.COUNTS, self.SCALER)

        assert said.words[0] == "the overflow in a (cast) was foreseen"

    def test_an_overflow_of_half_that_is_written_into_the_code_is_admitted_too(self) -> None:
        found = replace(self.overflow("a", kind="autocast_state"), facts={"cause": "overflow"})

        said = compare(DtypeForecast(dtype="float16"), [found], self.COUNTS, None)

        assert said.words == ("the overflow in a (mm), found as autocast state, was not foreseen",)

    def test_a_gradient_at_the_loss_scale_is_no_overflow_of_forward(self) -> None:
        skip = replace(self.overflow("b", kind="scaler", op="addmm"), facts={"cause": "overflow"})

        said = compare(DtypeForecast(dtype="float16", initial_scale=2.0**15), [skip], self.COUNTS, self.SCALER)

        assert said.overflow_right
        assert said.words[0] == "no overflow in forward was foreseen, and none was found"

    def test_a_fault_elsewhere_of_another_kind_is_no_overflow(self) -> None:
        forecast = DtypeForecast(dtype="float16", overflows=(place("a.b"),))

        said = compare(forecast, [self.overflow("z", kind="underflow")], self.COUNTS, self.SCALER)

        assert said.words[0] == "an overflow was foreseen in a.b (mm), and none was found"

    def test_an_overflow_without_a_known_op_names_none(self) -> None:
        said = compare(DtypeForecast(dtype="float16"), [self.overflow("a", op=None)], self.COUNTS, None)

        assert said.words == ("the overflow in a was not foreseen",)

    def test_after_an_error_nothing_is_said_of_what_neither_saw(self) -> None:
        forecast = DtypeForecast(dtype="float16", failed="RuntimeError: no kernel", initial_scale=8.0)
        error = Finding(kind="dtype", severity="fault", stage="error", module="a", op="mm", step=0)

        assert compare(forecast, [error], self.COUNTS, self.SCALER).words == (
            "the error in the project's code was foreseen",
        )
        assert compare(forecast, [], self.COUNTS, self.SCALER).words == (
            "an error in the project's code was foreseen, and there was none",
        )

    def test_the_scale_is_held_against_what_the_trial_came_down_to(self) -> None:
        forecast = DtypeForecast(dtype="float16", initial_scale=2.0**14)

        said = compare(forecast, [], self.COUNTS, self.SCALER)

        assert (said.foreseen_scale, said.trial_scale, said.skipped) == (2.0**14, 2.0**14, 2)
        assert said.words[1] == (
            "a first scale of 2^14 was foreseen; the trial started at 2^16 and came down to 2^14 with 2 skipped updates"
        )

    def test_a_scale_that_stayed_skipped_nothing_that_would_have_to_be_counted(self) -> None:
        forecast = DtypeForecast(dtype="float16", initial_scale=2.0**14)
        course = ScaleCourse(initial=2.0**16, final=2.0**16, lowest=2.0**16)
        stayed = "a first scale of 2^14 was foreseen; the trial started at 2^16 and never came down"

        for skipped, words in ((0, stayed), (2, f"{stayed}, with 2 skipped updates")):
            counts = (replace(self.COUNTS[0], skipped=skipped),)
            assert compare(forecast, [], counts, course).words[1] == words

    def test_without_a_scaler_nothing_is_said_of_scales(self) -> None:
        said = compare(DtypeForecast(dtype="bfloat16", initial_scale=1.0), [], self.COUNTS, None)

        assert said.words == ("no overflow in forward was foreseen, and none was found",)


def test_a_module_whose_name_is_a_number_is_called_a_module() -> None:
    assert [place_name(path) for path in ("", "0", "0.1", "body.0", "loss")] == [
        "the model itself",
        "module 0",
        "module 0.1",
        "body.0",
        "loss",
    ]


def test_what_autocast_makes_half_is_a_cast() -> None:
    assert place_words(place("0", "to", why="cast")) == "module 0 (cast)"
    assert place_words(place("0", "to")) == "module 0 (to)"
