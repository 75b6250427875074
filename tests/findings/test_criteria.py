from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amptui.findings.criteria import as_locked, digest, limits_for, propose, written_fields
from amptui.findings.evidence import OutputRange
from amptui.project import Criteria
from tests.findings.trials import INF, NAN

FP16, BF16 = 2.0**-10, 2.0**-7


def logits(largest: float = 6.0, noise: float = 0.0) -> dict[str, OutputRange]:
    return {"logits": OutputRange(name="logits", largest=largest, noise=noise, randomness=0.0)}


def proposed(given=None, given_fields=(), outputs=None, dtype="float16", updates=("main",), quality=0.9):
    outputs = logits() if outputs is None else outputs
    return propose(given, given_fields, outputs, dtype, updates, quality is not None, quality)


def by_name(proposals):
    return {proposal.name: proposal for proposal in proposals}


@pytest.mark.parametrize(("dtype", "eps"), [("float16", FP16), ("fp16", FP16), ("bfloat16", BF16)])
def test_an_open_output_gets_sixteen_roundings(dtype, eps):
    criteria, _ = proposed(dtype=dtype)
    assert limits_for(criteria, "logits") == (16 * eps * 6.0, 16 * eps)


@pytest.mark.parametrize(
    ("largest", "noise", "atol", "said"),
    [
        (6.0, 0.0, 16 * FP16 * 6.0, "largest value in the baseline (6)"),
        (6.0, 0.09, 0.36, "4 × the noise of two equal FP32 runs (0.09)"),
        (6.0, 0.5, 16 * FP16 * 6.0, "largest value in the baseline (6)"),
        (0.0, 0.0, 16 * 2.0**-24, "the baseline is zero or nearly so"),
        (INF, NAN, 16 * 2.0**-24, "the baseline is zero or nearly so"),
    ],
)
def test_atol_follows_size_and_noise_and_says_which(largest, noise, atol, said):
    criteria, proposals = proposed(outputs=logits(largest, noise))
    assert limits_for(criteria, "logits")[0] == atol
    assert said in by_name(proposals)["outputs.logits.atol"].reason


@pytest.mark.parametrize(
    ("written", "limits"),
    [
        (Criteria(atol=0.05, rtol=0.0), (0.05, 0.0)),
        (Criteria(atol=0.05, rtol=0.01), (0.05, 0.01)),
        (Criteria(atol=0.05), (0.05, 0.0)),
        (Criteria(rtol=0.01), (0.06, 0.01)),
        (Criteria(outputs={"logits": 0.2}), (0.2, 0.0)),
        (Criteria(atol=0.05, rtol=0.01, outputs={"logits": 0.2}), (0.2, 0.01)),
        (Criteria(outputs={"logits": {"atol": 0.2, "rtol": 0.3}}), (0.2, 0.3)),
        (Criteria(atol=0.05, outputs={"logits": {"rtol": 0.3}}), (0.05, 0.3)),
        (Criteria(outputs={"logits": {"rtol": 0.5}}), (3.0, 0.5)),
        (Criteria(atol=0.0), (0.0, 0.0)),
    ],
)
def test_what_a_project_writes_bounds_its_outputs(written, limits):
    criteria, _ = proposed(given=written)
    assert limits_for(criteria, "logits") == pytest.approx(limits)


def test_a_tolerance_for_outputs_does_not_touch_loss_and_gradient():
    criteria, proposals = proposed(given=Criteria(atol=100.0, rtol=0.0))
    assert limits_for(criteria, "loss") == (FP16, 16 * FP16)
    assert limits_for(criteria, "gradient") == (64 * FP16, 0.0)
    assert not by_name(proposals)["outputs.gradient.atol"].given


@pytest.mark.parametrize(
    ("outputs", "loss", "gradient"),
    [
        ({"loss": 0.2}, (0.2, 0.0), (64 * FP16, 0.0)),
        ({"loss": {"rtol": 0.3}}, (FP16, 0.3), (64 * FP16, 0.0)),
        ({"gradient": 0.5}, (FP16, 16 * FP16), (0.5, 0.0)),
        ({"gradient": {"rtol": 0.5}}, (FP16, 16 * FP16), (0.5, 0.0)),
    ],
)
def test_loss_and_gradient_are_bounded_under_their_names(outputs, loss, gradient):
    criteria, _ = proposed(given=Criteria(outputs=outputs))
    assert (limits_for(criteria, "loss"), limits_for(criteria, "gradient")) == (loss, gradient)


def test_rtol_is_said_to_be_zero_where_atol_alone_was_given():
    _, proposals = proposed(Criteria(outputs={"logits": {"atol": 0.1}, "loss": 0.2}), {"outputs"})
    for name in ("outputs.logits.rtol", "outputs.loss.rtol"):
        found = by_name(proposals)[name]
        assert (found.value, found.given) == (0.0, False)
        assert "atol alone was given, so rtol is 0" in found.reason


def test_a_bound_of_an_output_that_is_not_there_says_which_are():
    _, proposals = proposed(Criteria(outputs={"logit": 0.1}), {"outputs"})
    assert by_name(proposals)["outputs.logit.atol"].given
    assert "bounds nothing: the outputs are logits" in by_name(proposals)["outputs.logit.atol"].reason


def test_without_updates_nothing_about_training_is_proposed():
    criteria, proposals = proposed(updates=())
    assert set(criteria.outputs) == {"logits"}
    assert not {"applied_share", "progress"} & set(by_name(proposals))


def test_an_output_called_loss_gets_the_wider_bound():
    outputs = {"loss": OutputRange(name="loss", largest=100.0, noise=0.0, randomness=0.0)}
    criteria, _ = proposed(outputs=outputs)
    assert limits_for(criteria, "loss") == (16 * FP16 * 100.0, 16 * FP16)


def test_a_bound_for_an_output_that_no_case_has_is_kept():
    criteria, _ = proposed(given=Criteria(outputs={"aux": 0.1}))
    assert limits_for(criteria, "aux") == (0.1, 0.0)


@pytest.mark.parametrize(
    ("written", "fields", "quality", "drop"),
    [
        (None, (), 0.9, 0.018),
        (None, (), -40.0, 0.8),
        (None, (), 0.0, FP16),
        (None, (), NAN, FP16),
        (Criteria(), (), 0.9, 0.0),
        (Criteria(quality_drop=0.1), (), 0.9, 0.1),
        (Criteria(atol=0.1), ("atol",), 0.9, 0.018),
        (Criteria(atol=0.1), ("atol", "quality_drop"), 0.9, 0.0),
        (Criteria(atol=0.1, quality_drop=0.3), ("atol",), 0.9, 0.3),
    ],
)
def test_quality_may_drop_by_two_percent_unless_the_project_says_otherwise(written, fields, quality, drop):
    criteria, _ = proposed(given=written, given_fields=fields, quality=quality)
    assert criteria.quality_drop == pytest.approx(drop)


def test_every_proposal_has_a_reason_and_says_whether_it_was_given():
    _, proposals = proposed(given=Criteria(atol=0.1), given_fields=("atol",))
    named = by_name(proposals)
    assert named["outputs.logits.atol"].given
    assert named["outputs.logits.atol"].value == 0.1
    assert not named["outputs.logits.rtol"].given
    assert not named["applied_share"].given
    assert all(proposal.reason for proposal in proposals)


def test_a_proposal_is_stable_once_locked():
    criteria, _ = proposed()
    again, proposals = proposed(given=criteria)
    assert again == criteria
    assert all(p.given for p in proposals if p.name.startswith("outputs.") and p.name != "outputs.gradient.rtol")


def test_written_fields_of_nothing_and_of_a_none():
    assert written_fields(None, ("atol",)) == frozenset()
    assert "atol" not in written_fields(Criteria(), ("atol",))


def test_limits_of_what_nobody_wrote_down_are_zero():
    assert limits_for(Criteria(), "logits") == (0.0, 0.0)
    assert limits_for(Criteria(rtol=0.5), "logits") == (0.0, 0.5)


figure = st.none() | st.floats(0, 1e6)
bound = st.floats(0, 10) | st.dictionaries(st.sampled_from(["atol", "rtol"]), st.floats(0, 10))
any_criteria = st.builds(
    Criteria,
    atol=figure,
    rtol=figure,
    outputs=st.dictionaries(st.text(max_size=4), bound, max_size=3),
    decision_changes=st.integers(0, 3),
    tie=st.sampled_from(["same", "any"]),
    quality_drop=st.floats(0, 2),
    applied_share=st.floats(0, 1),
    progress=figure,
)


@given(any_criteria, any_criteria)
def test_digests_differ_exactly_where_criteria_do(one, other):
    assert (digest(one) == digest(other)) == (one == other)


CHANGES = {
    "atol": 0.5,
    "rtol": 0.5,
    "outputs": {"x": 0.1},
    "decision_changes": 1,
    "tie": "any",
    "quality_drop": 0.5,
    "applied_share": 0.5,
    "progress": 0.5,
}


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Criteria)])
def test_every_field_is_part_of_the_digest(field):
    assert digest(dataclasses.replace(Criteria(), **{field: CHANGES[field]})) != digest(Criteria())


def test_a_digest_does_not_depend_on_how_a_number_or_an_order_was_written():
    assert digest(Criteria(atol=1)) == digest(Criteria(atol=1.0))
    assert digest(Criteria(rtol=-0.0)) == digest(Criteria(rtol=0.0))
    assert digest(Criteria(outputs={"a": 1.0, "b": 2.0})) == digest(Criteria(outputs={"b": 2.0, "a": 1.0}))
    assert len(digest(Criteria())) == 64


@given(
    st.floats(),
    st.floats(),
    st.sampled_from(["float16", "bfloat16"]),
    st.none() | st.floats(),
)
def test_proposals_are_finite_and_usable_whatever_was_measured(largest, noise, dtype, quality):
    criteria, _ = proposed(outputs=logits(largest, noise), dtype=dtype, quality=quality)
    assert isinstance(criteria, Criteria)  # its own checks passed: every figure finite and from 0


def test_what_differs_from_a_proposal_is_the_user_s_and_says_what_it_stands_for():
    criteria, proposals = proposed()
    assert as_locked(proposals, criteria) == proposals
    outputs = {**criteria.outputs, "logits": {"atol": 1.0, "rtol": 0.25}}
    wider = dataclasses.replace(criteria, outputs=outputs, decision_changes=1)
    changed = {proposal.name: proposal for proposal in as_locked(proposals, wider) if proposal.changed}
    assert {name: proposal.value for name, proposal in changed.items()} == {
        "outputs.logits.atol": 1.0,
        "outputs.logits.rtol": 0.25,
        "decision_changes": 1,
    }
    before = {proposal.name: proposal.value for proposal in proposals}
    assert all((p.writer, p.proposed) == ("you", before[name]) for name, p in changed.items())
