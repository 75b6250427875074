"""Of much evidence the screen tells the handful that says most, in its order, and counts the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amptui.findings.telling import MOST, most_telling

OVERFLOW = (
    "matmul (bmm) is inf in float16: scores = q @ k.transpose(-1, -2)",
    "input float16 (8, 6, 16) from -149.4 to 164.1",
    "input float16 (8, 16, 6) from -149.4 to 164.1",
    "the exact result is 7.357e+04, float16 ends at 65504",
    "from there: softmax in blocks.1.attn → nll_loss in loss",
    "with blocks.1.attn in FP32 the same replay is finite",
    "reproduced bit for bit in a replay",
    "the loss is nan",
    "true FP32 is finite on the same weights and batch, float16 is not",
)


def test_the_cause_its_size_its_way_and_its_mend_are_told() -> None:
    assert most_telling(OVERFLOW) == ((OVERFLOW[0], OVERFLOW[1], *OVERFLOW[3:6]), 4)


def test_what_changed_for_the_user_is_told_before_what_the_replay_was() -> None:
    evidence = (
        *OVERFLOW[:6],
        "the case was evaluated once more",
        "output: 3 of 3 elements not finite",
        "the decision changed from [4] to [1]",
    )
    telling, _ = most_telling(evidence)
    assert "the decision changed from [4] to [1]" in telling
    assert not any(fact.startswith("input") for fact in telling)


@given(st.lists(st.sampled_from([*OVERFLOW, "a", "b", "c"]), max_size=20))
def test_at_most_so_many_in_their_order_the_first_among_them(evidence: list[str]) -> None:
    telling, more = most_telling(evidence)

    assert len(telling) + more == len(evidence)
    assert len(telling) <= MOST or len(evidence) == MOST + 1
    assert telling[:1] == tuple(evidence[:1])
    remaining = iter(evidence)
    assert all(fact in remaining for fact in telling)


@pytest.mark.parametrize("count", range(MOST + 2))
def test_nothing_is_left_out_for_the_sake_of_one_line(count: int) -> None:
    assert most_telling(OVERFLOW[:count]) == (OVERFLOW[:count], 0)
