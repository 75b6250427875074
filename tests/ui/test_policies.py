"""Policies to try: what this device runs, what the forecast proposes, and how the engine is asked for one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amptui.project import Policy, Scaler
from amptui.protocol import events as told
from amptui.session.state import SessionState, reduce
from amptui.spec.run_settings import policy_over
from amptui.ui import policies
from tests.report import measured
from tests.report.stages import Told, opened

BOTH: Told = (*opened(), *(told.Probed(dtype=dtype, supported=True) for dtype in ("float16", "bfloat16")))


def after(*events: object) -> SessionState:
    state = SessionState()
    for event in events:
        if not isinstance(event, told.Probed) or event.supported:
            state = reduce(state, event)  # type: ignore[arg-type]
    return state


def labels(state: SessionState) -> dict[str, str]:
    return {choice.key: choice.label for choice in policies.choices(state)}


OWN = Policy(scaler=Scaler(init_scale=1024.0), fp32_regions=("head",))


@pytest.mark.parametrize(
    "wanted",
    [
        OWN,
        replace(OWN, fp32_regions=("head", "conv")),
        replace(OWN, dtype="bfloat16", scaler="auto"),
        replace(OWN, dtype="bfloat16"),
        replace(OWN, scaler=None),
        Policy(),
    ],
)
def test_what_is_asked_for_makes_the_wanted_policy_of_the_projects_own(wanted: Policy) -> None:
    given = policies.given_for(wanted, OWN)
    assert policy_over(OWN, given) == wanted
    assert bool(given) == (wanted != OWN)


def test_only_dtypes_that_run_here_are_offered() -> None:
    assert labels(after(*BOTH)) == {
        "f": "float16, first loss scale 2^16",
        "b": "bfloat16",
        "e": "each dtype, one after the other",
    }
    state = SessionState()
    for event in opened():  # the probe says that bfloat16 fails
        state = reduce(state, event)  # type: ignore[arg-type]
    assert set(labels(state)) == {"f"}


def test_the_scale_that_the_forecast_proposes_is_offered_where_the_projects_own_is_another() -> None:
    state = after(*BOTH, measured.forecast())
    assert labels(state)["s"] == "float16, first loss scale 2^12, which the forecast says fits"
    assert state.project is not None
    fits = replace(state, project=replace(state.project, policy=Policy(scaler=Scaler(init_scale=4096.0))))
    assert "s" not in labels(fits)


def test_after_a_trial_each_says_what_came_of_it() -> None:
    state = after(*BOTH, *measured.trial(1, "bfloat16", "reject", scaled=False))
    assert labels(state)["b"] == "bfloat16 (reject)"
    assert "e" not in labels(state), "what was planned before the first trial is over"


def test_a_further_run_is_under_the_policy_of_the_last_one() -> None:
    assert policies.again(after(*BOTH)) == {}
    tried = after(*BOTH, *measured.trial(1, "bfloat16", "accept", scaled=False))
    assert policies.again(tried) == {"dtype": "bfloat16", "scaler": "auto"}
    opened_again = after(*BOTH, *measured.trial(1, "bfloat16", "accept", scaled=False), *BOTH)
    assert policies.again(opened_again) == {}


def test_policies_are_read_as_the_command_line_reads_them() -> None:
    assert policies.read("fp16@1024, bf16") == (
        {"dtype": "float16", "scaler": {"init_scale": 1024.0}},
        {"dtype": "bfloat16"},
    )
    with pytest.raises(ValueError, match=r"^'fp8' is no policy; write dtypes such as"):
        policies.read("fp8")


def test_criteria_are_for_the_coarsest() -> None:
    assert policies.coarsest(policies.read("fp16,bf16")) == "bfloat16"
    assert policies.coarsest(policies.read("fp16@8")) == "float16"
