"""The FP32 regions that a verdict suggests: a second trial with them is accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from amptui import Project
from tests.engine.diagnosis import test_backward_faults as backward
from tests.engine.diagnosis import test_finite_faults as finite
from tests.engine.diagnosis import test_forward_faults as forward
from tests.engine.diagnosis import test_raised_faults as raised
from tests.engine.diagnosis.told import Block, Net, ask, batches, brief, trained

MENDED: dict[str, Callable[[], Project]] = {
    make.__name__: make
    for make in (
        forward.scores_by_einsum_before_they_are_scaled,
        forward.transposed_convolution,
        forward.squared_error_by_hand,
        forward.cross_entropy_of_probabilities_with_a_tiny_eps,
        forward.variance_as_a_difference_of_large_numbers,
        forward.row_that_is_masked_with_minus_1e9,
        forward.float16_inside_of_a_bfloat16_run,
        backward.spread_of_small_features,
        backward.batch_norm_behind_an_overflow,
        finite.root_mean_square_norm_by_hand,
        finite.norm_by_hand_in_a_later_iteration,
        finite.positions_beyond_the_digits_of_bfloat16,
        finite.router_by_argmax,
        finite.best_document_of_two,
        raised.mask_value_beyond_half,
        raised.messages_summed_into_a_float32_table,
        raised.block_in_a_plain_thread,
    )
}


@pytest.mark.parametrize("name", list(MENDED))
def test_a_trial_with_them_is_accepted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ask(MENDED[name](), tmp_path, monkeypatch)
    regions = answer.reached.fp32_regions
    assert answer.reached.verdict == "reject"
    assert regions
    assert any("in FP32 the same replay is" in fact for f in answer.faults for fact in f.evidence)
    mended = answer.again(fp32_regions=regions)
    told = "\n".join(map(brief, mended.findings))
    assert mended.verdict == "accept", f"{regions}: {mended.words}\n{told}"


def test_two_faults_are_followed_to_both_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fourth(h: Tensor) -> Tensor:
        return torch.log1p(h.float().half() ** 4 if h.dtype == torch.float16 else h**4)

    stack = nn.Sequential(Block(fourth), Block(fourth), nn.LayerNorm(8))
    answer = ask(trained(Net(stack), batches(b2=2e4)), tmp_path, monkeypatch)
    assert set(answer.reached.fp32_regions) <= {"block.0", "block.1", "enter"}
    assert "block.0" in answer.reached.fp32_regions


def test_what_no_region_mends_suggests_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ask(backward.target_that_is_nan(), tmp_path, monkeypatch)
    assert answer.reached.fp32_regions == ()


class Squares(nn.Module):
    """A product of the model's own, between modules: what goes into it decides its dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.a(x)
        return self.head(torch.log1p(hidden * hidden))


def test_a_region_before_the_place_is_said_to_feed_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ask(trained(Squares(), batches(b2=5e3)), tmp_path, monkeypatch)
    fault = next(fault for fault in answer.faults if fault.op == "mul")
    assert (fault.module, answer.reached.fp32_regions) == ("", ("a",))
    assert fault.advice.startswith("Keep a in FP32, which gives this float32: Policy(fp32_regions=['a'])")
