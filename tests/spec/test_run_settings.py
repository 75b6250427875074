"""What was given overrides the Project's own, field by field; what was not given leaves it standing."""

from __future__ import annotations

import pytest

from amptui.project import Criteria, Policy, ProjectError, Scaler
from amptui.protocol import codec
from amptui.protocol.commands import OpenProject
from amptui.spec.run_settings import RunSettings, criteria_over, policy_over


def test_options_alone_make_settings() -> None:
    settings = RunSettings(device="cpu", iterations=3, policy={"dtype": "fp16", "scaler": None})
    assert settings.policy == {"dtype": "float16", "scaler": None}


def test_nothing_given_overrides_nothing() -> None:
    settings = RunSettings(args={"a": 1}, device="cpu", policy={"scaler": None}, criteria={"atol": 1.0})
    assert settings.overridden_by(RunSettings()) == settings


def test_no_scaler_is_a_value_and_can_be_overridden_again() -> None:
    without = RunSettings(policy={"scaler": "auto"}).overridden_by(RunSettings(policy={"scaler": None}))
    assert without.policy == {"scaler": None}
    again = without.overridden_by(RunSettings(policy={"scaler": Scaler(init_scale=8.0)}))
    assert policy_over(None, again.policy).effective_scaler == Scaler(init_scale=8.0)


def test_a_dtype_given_for_a_project_of_another_one_brings_its_own_scaler() -> None:
    without = Policy(dtype="bfloat16", scaler=None)
    assert policy_over(without, {"dtype": "float16"}).effective_scaler == Scaler()
    assert policy_over(without, {"dtype": "bf16"}).effective_scaler is None
    assert policy_over(without, {"dtype": "float16", "scaler": None}).effective_scaler is None


def test_the_projects_policy_keeps_what_is_not_given() -> None:
    base = Policy(dtype="float16", scaler="auto", fp32_regions=("norm",), buffers="rollback")
    policy = policy_over(base, {"dtype": "bf16"})
    assert policy == Policy(dtype="bfloat16", scaler="auto", fp32_regions=("norm",), buffers="rollback")
    assert policy_over(None, {}) == Policy()
    assert policy_over(Policy(), {"dtype": "bfloat16"}).effective_scaler is None


def test_the_projects_criteria_keep_what_is_not_given() -> None:
    base = Criteria(atol=1.0, rtol=2.0, tie="any")
    assert criteria_over(base, {"atol": None}) == Criteria(rtol=2.0, tie="any")
    assert criteria_over(base, {}) == base
    assert criteria_over(None, {}) is None
    assert criteria_over(None, {"rtol": 0.5}) == Criteria(rtol=0.5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"iterations": 0}, "iterations is 0: write a whole number"),
        ({"iterations": True}, "iterations is True"),
        ({"policy": {"dtype": "fp17"}}, "write 'float16' or 'bfloat16'"),
        ({"policy": {"dype": "fp16"}}, "Policy has no field 'dype'"),
        ({"policy": {"scaler": {"init_scale": 0}}}, "above 0"),
        ({"policy": {"scaler": {"scale": 1}}}, "Scaler has no field 'scale'"),
        ({"criteria": {"rtol": -1}}, "finite number from 0"),
    ],
)
def test_what_policy_scaler_and_criteria_refuse_is_refused_at_once(given: dict[str, object], said: str) -> None:
    with pytest.raises(ProjectError, match=said):
        RunSettings(**given)  # type: ignore[arg-type]


def test_settings_reach_the_engine_unchanged() -> None:
    settings = RunSettings(
        args={"lr": 1e-3, "names": ["a"]},
        policy={"scaler": Scaler(init_scale=8.0), "fp32_regions": ["norm"], "dtype": "fp16"},
        criteria={"outputs": {"logits": {"atol": 0.5}}, "atol": None},
    )
    command = OpenProject(
        spec="m:f", folder="/", arguments=settings.args or {}, policy=settings.policy, criteria=settings.criteria
    )
    arrived = codec.decode(codec.encode(command))
    assert isinstance(arrived, OpenProject)
    assert arrived.arguments == settings.args
    assert policy_over(None, arrived.policy) == policy_over(None, settings.policy)
    assert policy_over(None, arrived.policy).fp32_regions == ("norm",)
    assert criteria_over(None, arrived.criteria) == criteria_over(None, settings.criteria)
