"""Norms equal those of torch's own clipping, to the last bit."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from amptui.engine import norms as module
from amptui.engine.norms import norms_of

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64]


def assert_bits(one: Tensor, other: Tensor) -> None:
    assert one.dtype == other.dtype
    assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(0, 40)), min_size=1, max_size=8), st.integers(0, 999))
def test_the_total_is_torchs_for_any_mix_of_dtypes_and_sizes(shapes: list[tuple[torch.dtype, int]], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(size, dtype=torch.float32, generator=generator).to(dtype) for dtype, size in shapes]
    norms = norms_of(tensors)
    assert norms is not None
    assert_bits(norms.total, nn.utils.get_total_norm(tensors))
    for tensor, norm in zip(tensors, norms.stacked, strict=True):
        assert_bits(norm, torch.linalg.vector_norm(tensor, 2.0).to(norm.dtype))


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, 1e30])
def test_what_is_not_finite_shows_in_its_own_norm_and_in_the_total(bad: float) -> None:
    norms = norms_of([torch.ones(3), torch.tensor([1.0, bad])])
    assert norms is not None
    assert [bool(torch.isfinite(norm)) for norm in norms.stacked] == [True, False]
    assert not bool(torch.isfinite(norms.total))


def test_without_tensors_there_is_no_norm() -> None:
    assert norms_of([]) is None


def test_the_norms_are_the_same_without_torchs_private_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.randn(5), torch.randn(3).double(), torch.randn(7)]
    expected = norms_of(tensors)
    monkeypatch.setattr(module, "_torch_foreach", None)
    monkeypatch.delattr(torch, "_foreach_norm")
    found = norms_of(tensors)
    assert expected is not None
    assert found is not None
    assert torch.allclose(found.stacked, expected.stacked)
    assert torch.allclose(found.total, expected.total)


def test_no_gradient_is_recorded_on_the_way() -> None:
    norms = norms_of([torch.ones(2, requires_grad=True) * 2])
    assert norms is not None
    assert not norms.total.requires_grad
