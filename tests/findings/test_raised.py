from __future__ import annotations

import pytest

from amptui.findings.diagnosis import diagnose
from amptui.findings.raised import fails_in_fp32, policy_alone
from tests.findings.trials import case, failure, trial

FOUND = [
    ("two dtypes meet", failure(), ("dtype", True)),
    ("a project's check for NaN", failure(exception="AssertionError", message="loss is NaN"), ("overflow", True)),
    (
        "a value error that only sounds like it",
        failure(exception="ValueError", message="info missing"),
        ("dtype", True),
    ),
    ("autocast is named", failure(message="binary_cross_entropy is unsafe to autocast"), ("autocast_state", True)),
    ("FP32 fails too", failure(under="fp32"), ("not_precision", False)),
]


@pytest.mark.parametrize(("raised", "found"), [row[1:] for row in FOUND], ids=[row[0] for row in FOUND])
def test_what_an_error_is_found_to_be(raised, found):
    [finding] = diagnose(trial(failures=(raised,), completed=False))
    assert (finding.kind, finding.fp32_ok) == found
    assert (finding.severity, finding.stage, finding.step) == ("fault", "error", 0)
    assert (finding.module, finding.op, finding.line) == ("mixer", "mm", "train.py:12")


def test_the_same_error_at_the_same_place_is_said_once():
    raised = tuple(failure(step=None, case=name, phase="outputs") for name in ("a", "b", "c"))
    [finding] = diagnose(trial(failures=raised, cases=(case("a", 3),)))
    assert (finding.case, finding.step) == ("a", 3)
    assert "the same 2 more times" in finding.evidence


def test_an_error_of_fp32_is_not_blamed_on_the_policy():
    both = trial(failures=(failure(), failure(under="fp32")))
    assert [f.kind for f in diagnose(both)] == ["not_precision"]
    assert not policy_alone(both)
    assert fails_in_fp32(both)


def test_a_message_is_made_safe():
    [finding] = diagnose(trial(failures=(failure(message="evil\x1b[2J"),)))
    assert "\x1b" not in " ".join(finding.evidence)


def test_the_mend_names_the_module_where_one_is_known():
    assert "fp32_regions=['mixer']" in diagnose(trial(failures=(failure(),)))[0].advice
    [elsewhere] = diagnose(trial(failures=(failure(module="loss"),)))
    assert "…" not in elsewhere.advice
    assert "the module that gives this value its dtype" in elsewhere.advice
