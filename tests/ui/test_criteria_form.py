"""A criterion's field takes what it means and says what to write otherwise."""

from __future__ import annotations

import pytest

from amptui.findings.criteria import propose, value_of
from amptui.findings.evidence import OutputRange
from amptui.project import Criteria
from amptui.ui.criteria_form import with_value

RANGE = {"a.b": OutputRange(name="a.b", largest=10.0, noise=0.0, randomness=0.0)}
PROPOSED, PROPOSALS = propose(None, frozenset(), RANGE, "float16", ["main"], has_quality=True, quality=0.9)


def test_every_proposal_has_a_field_that_shows_its_value() -> None:
    assert len(PROPOSALS) > 8
    for proposal in PROPOSALS:
        assert value_of(PROPOSED, proposal.name) == proposal.value


@pytest.mark.parametrize("name", [proposal.name for proposal in PROPOSALS if proposal.name != "tie"])
def test_a_number_is_taken_and_nothing_else_changes(name: str) -> None:
    changed = with_value(PROPOSED, name, " 1 ")
    assert value_of(changed, name) == 1
    others = [proposal.name for proposal in PROPOSALS if proposal.name != name]
    assert [value_of(changed, other) for other in others] == [value_of(PROPOSED, other) for other in others]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("outputs.a.b.atol", "much", "write a number from 0"),
        ("outputs.a.b.rtol", "-1", "write a number from 0"),
        ("quality_drop", "nan", "write a number from 0"),
        ("decision_changes", "0.5", "write a whole number"),
        ("tie", "first", "write same or any"),
        ("applied_share", "2", "write a share from 0 to 1"),
        ("progress", "inf", "or none"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_write(name: str, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        with_value(PROPOSED, name, text)


def test_progress_may_be_left_open_and_a_plain_bound_is_an_atol() -> None:
    assert with_value(Criteria(progress=0.5), "progress", "none").progress is None
    assert value_of(Criteria(outputs={"y": 0.5}), "outputs.y.atol") == 0.5
    assert with_value(Criteria(outputs={"y": 0.5}), "outputs.y.rtol", "0.1").outputs["y"] == {"atol": 0.5, "rtol": 0.1}
