"""What `--policies` says."""

from __future__ import annotations

import pytest

from amptui.spec.error import SpecError
from amptui.spec.policies import coarsest, parse_policies
from amptui.spec.run_settings import policy_over


def test_dtypes_go_by_all_their_names() -> None:
    assert parse_policies("fp16, bf16") == ({"dtype": "float16"}, {"dtype": "bfloat16"})


def test_a_scale_or_none_stands_behind_the_at_sign() -> None:
    plain, low, none = (policy_over(None, given) for given in parse_policies("fp16,fp16@1024,fp16@none"))

    assert plain.effective_scaler is not None
    assert low.effective_scaler is not None
    assert (plain.effective_scaler.init_scale, low.effective_scaler.init_scale) == (65536.0, 1024.0)
    assert none.effective_scaler is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fp8", "'fp8' is no policy"),
        ("", "'' is no policy"),
        ("fp16,", "'' is no policy"),
        ("fp16,float16", "names 'float16' twice"),
        ("fp16@much", "'much' is no loss scale"),
        ("fp16@", "'' is no loss scale"),
        ("fp16@0", "'0' is no loss scale"),
        ("fp16@-4", "'-4' is no loss scale"),
        ("fp16@inf", "'inf' is no loss scale"),
        ("fp16@nan", "'nan' is no loss scale"),
    ],
)
def test_what_is_no_policy_is_refused_with_an_example(text: str, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_policies(text)

    assert said in refused.value.message
    assert refused.value.hint


def test_one_set_of_criteria_is_for_the_dtype_with_the_fewest_digits() -> None:
    assert coarsest(parse_policies("fp16,bf16")) == "bfloat16"
    assert coarsest(parse_policies("fp16,fp16@8")) == "float16"
    assert coarsest(()) is None
