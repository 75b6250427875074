from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from amptui.engine.same_draws import SameDraws

HALF = [torch.float16, torch.bfloat16]
DRAWN: dict[str, Callable[[torch.dtype], Tensor]] = {
    "randn": lambda dtype: torch.randn(3, 7, dtype=dtype),
    "randn_like": lambda dtype: torch.randn_like(torch.zeros(21, dtype=dtype)),
    "rand": lambda dtype: torch.rand(21, dtype=dtype),
    "normal_": lambda dtype: torch.zeros(21, dtype=dtype).normal_(2.0, 3.0),
    "exponential_": lambda dtype: torch.zeros(21, dtype=dtype).exponential_(),
    "dropout": lambda dtype: F.dropout(torch.ones(3, 7, dtype=dtype), 0.5),
    "gumbel": lambda dtype: F.gumbel_softmax(torch.zeros(3, 7, dtype=dtype)),
}


def seeded(draw: Callable[[torch.dtype], Tensor], dtype: torch.dtype) -> Tensor:
    torch.manual_seed(8)
    return draw(dtype)


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", list(DRAWN))
def test_half_draws_the_numbers_of_float32_and_rounds_them(name: str, dtype: torch.dtype) -> None:
    expected = seeded(DRAWN[name], torch.float32)
    with SameDraws() as alike:
        drawn = seeded(DRAWN[name], dtype)
    assert drawn.dtype == dtype
    assert alike.draws
    assert torch.allclose(drawn.float(), expected, rtol=0.05, atol=0.05)


def test_float32_draws_and_what_does_not_draw_are_left_alone() -> None:
    expected = seeded(DRAWN["randn"], torch.float32)
    x = torch.ones(3, dtype=torch.float16)
    with SameDraws() as alike:
        drawn = seeded(DRAWN["randn"], torch.float32)
        x = x * 3
    assert torch.equal(drawn, expected)
    assert x.dtype == torch.float16
    assert alike.draws == 0


def test_gradients_flow_through_what_was_drawn() -> None:
    x = torch.ones(40, dtype=torch.float16, requires_grad=True)
    with SameDraws():
        F.dropout(x, 0.5).sum().backward()
    assert x.grad is not None
    assert set(x.grad.tolist()) == {0.0, 2.0}
