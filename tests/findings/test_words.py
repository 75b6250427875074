from __future__ import annotations

import pytest

from amptui.findings.words import UNTOUCHED, counted, listed, op_words, percent, plain_value, scale_text, trip_words
from tests.findings.trials import INF, NAN


@pytest.mark.parametrize(
    ("scale", "text"),
    [
        (65536.0, "2^16"),
        (2.0, "2^1"),
        (1.0, "1"),
        (0.5, "2^-1"),
        (2.0**-149, "2^-149"),
        (1000.0, "1000"),
        (0.0, "0"),
        (INF, "inf"),
        (NAN, "nan"),
        (-4.0, "-4"),
    ],
)
def test_a_scale_is_a_power_of_two_where_it_is_one(scale, text):
    assert scale_text(scale) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0003988, "0.04 %"), (-0.02, "-2 %"), (1.234, "120 %"), (0.0, "0 %"), (INF, "inf %"), (NAN, "nan %")],
)
def test_a_share_is_told_in_percent(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("count", "noun", "plural", "text"),
    [
        (1, "update", None, "1 update"),
        (0, "update", None, "0 updates"),
        (1200, "skip", None, "1,200 skips"),
        (2, "update was", "updates were", "2 updates were"),
    ],
)
def test_counts_agree_with_their_noun(count, noun, plural, text):
    assert counted(count, noun, plural) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
        (["evil\x1b[2J"], "evil\\x1b[2J"),
    ],
)
def test_names_are_listed_and_made_safe(names, text):
    assert listed(names) == text


def test_a_decision_in_a_sentence_is_short():
    assert plain_value(0.123456) == "0.1235"
    assert len(plain_value(list(range(1000)))) <= 60


SAID = [
    (
        ("bad_gradient", ["conv2.weight"], {"scale": 32768.0, "layers": 18, "fitting_scale": 16384.0}),
        "The gradient of conv2.weight (1 of 18 tensors) is infinite at scale 2^15 and finite at 2^14: the scale",
    ),
    (
        ("bad_gradient", ["conv2.weight"], {"scale": 32768.0, "layers": 18}),
        "The gradient of conv2.weight (1 of 18 tensors) is not finite at scale 2^15.",
    ),
    (
        ("bad_gradient", ["fc.weight"], {"scaler": False}),
        "The gradient of fc.weight is not finite. Without a loss scaler the plain loop would write it into the",
    ),
    (("bad_loss", ["micro-batch 0"], {}), "The loss is not finite."),
    (("bad_loss", ["micro-batch 2"], {}), "The loss of micro-batch 2 is not finite."),
    (
        ("bad_loss", ["micro-batch 0", "fc.weight", "bn.running_var"], {}),
        "The loss is not finite. So are fc.weight and bn.running_var.",
    ),
    (
        ("bad_after_unscale", ["fc.weight"], {"scale": 2.0**-20}),
        "The gradient of fc.weight is finite while scaled and not after the division by the scale 2^-20.",
    ),
    (("bad_before_step", ["fc.weight"], {}), "A hook of the optimizer made the gradient of fc.weight non-finite"),
    (
        ("norm_overflow", ["fc.weight"], {}),
        "Every gradient is finite, but the norm of fc.weight is too large",
    ),
    (("bad_buffers", ["bn.running_mean", "bn.running_var"], {}), "bn.running_mean and bn.running_var are not finite"),
    (("no_gradient", [], {}), "No parameter of this update has a gradient."),
    (("something_new", [], {}), "The update is held back (something_new)."),
]


@pytest.mark.parametrize(("asked", "text"), SAID, ids=[asked[0] + str(i) for i, (asked, _) in enumerate(SAID)])
def test_a_held_update_is_told_with_what_the_guard_did(asked, text):
    outcome, bad, more = asked
    words = trip_words(outcome, bad, **more)
    assert words.startswith(text)
    assert words.endswith(UNTOUCHED)


def test_an_operation_called_like_a_preposition_is_told_from_one():
    assert [op_words(op) for op in ("addmm", "to", "where")] == ["addmm", "to()", "where()"]
