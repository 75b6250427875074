"""The parts by themselves: values, marks on storages, op facts, lines, and the table of CUDA's autocast."""

from __future__ import annotations

import gc
import math
import sys

import pytest
import torch
from torch import nn

from amptui.engine.tracing.cuda_rules import (
    FLOAT32_ON_CPU_ONLY,
    FLOAT32_ON_CUDA_ONLY,
    HALF_ON_CUDA_ONLY,
    cuda_difference,
)
from amptui.engine.tracing.modules import ModulePaths, plain_path
from amptui.engine.tracing.schema import is_sentinel_cast, learn
from amptui.engine.tracing.source import is_user_code, line_of, user_frame
from amptui.engine.tracing.taint import StorageMarks
from amptui.engine.tracing.values import extent, facts_of, is_finite, kinds_of

ATEN = torch.ops.aten
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_kinds_are_exact(dtype: torch.dtype) -> None:
    for values, kinds in (
        ([1.0, -2.0], set()),
        ([1.0, math.inf], {"inf"}),
        ([-math.inf, 1.0], {"-inf"}),
        ([math.nan, 1.0], {"nan"}),
        ([math.nan, math.inf], {"nan", "inf"}),
        ([math.nan, -math.inf, math.inf], {"nan", "inf", "-inf"}),
    ):
        assert kinds_of(torch.tensor(values, dtype=dtype)) == kinds


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1, 2]),
        torch.tensor([True]),
        torch.empty(0),
        torch.empty(2, device="meta"),
    ],
    ids=["int", "bool", "empty", "meta"],
)
def test_tensors_without_readable_floats_say_nothing(tensor: torch.Tensor) -> None:
    assert extent(tensor) is None
    assert kinds_of(tensor) == frozenset()
    assert facts_of(tensor).low is None


def test_complex_sparse_and_eight_bit_values_are_read() -> None:
    assert kinds_of(torch.tensor([complex(1, math.inf)])) == {"inf"}
    assert kinds_of(torch.tensor([[0.0, math.nan]]).to_sparse()) == {"nan"}
    assert extent(torch.tensor([1.0, -2.0]).to(torch.float8_e5m2)) == (-2.0, 1.0)


def test_facts_give_finite_extremes_beside_the_kinds() -> None:
    facts = facts_of(torch.tensor([-3.0, math.nan, 2.0, math.inf]))
    assert (facts.low, facts.high, facts.kinds, facts.absmax) == (-3.0, 2.0, ("inf", "nan"), 3.0)
    assert facts_of(torch.tensor([math.nan])).absmax is None


def test_finite_is_false_for_nan() -> None:
    assert is_finite((-1.0, 1.0))
    assert not is_finite((math.nan, math.nan))
    assert not is_finite((0.0, math.inf))


def test_marks_are_shared_by_views_and_end_when_all_is_overwritten() -> None:
    marks, base = StorageMarks(), torch.zeros(4, 4)
    marks.put(base[1], [3], frozenset({"nan"}))
    mark = marks.get(base.t())
    assert mark is not None
    assert mark.ids == {3}
    assert mark.covers(base[1])
    assert not mark.covers(base[2])
    marks.put(base[2], [5])
    assert marks.get(base).ids == {3, 5}
    marks.clear(base[0])
    assert marks.get(base).ids == {3, 5}
    marks.clear(base)
    assert marks.get(base) is None


def test_address_of_a_freed_storage_is_not_given_to_another() -> None:
    marks = StorageMarks()
    for _ in range(50):
        marks.put(torch.full((8,), math.nan), [1])
    gc.collect()
    assert all(marks.get(torch.zeros(8)) is None for _ in range(200))


def test_op_facts_come_from_the_schema() -> None:
    assert learn(ATEN.view.default).passive
    assert learn(ATEN._unsafe_view.default).passive
    assert learn(ATEN.mul_.Tensor).written == {0, "self"}
    assert learn(ATEN.copy_.default).overwrites
    assert learn(ATEN.add.out).overwrites
    assert learn(ATEN.empty_like.default).uninitialised
    assert (
        learn(ATEN.native_batch_norm.default).statistics
        == learn(ATEN._native_batch_norm_legit.default).statistics
        == (3, 4)
    )
    assert learn(ATEN._batch_norm_with_update.default).training is None
    assert learn(ATEN._to_copy.default).name == "to"
    assert learn(ATEN._ctc_loss.default).scratch_from == 1
    assert learn(ATEN.native_dropout.default).random
    assert learn(ATEN.zeros_like.default).shape_only
    assert not learn(ATEN._foreach_mul_.Scalar).passive


@pytest.mark.parametrize(
    ("values", "sentinel"),
    [
        ([0.0, torch.finfo(torch.float32).min], True),
        ([1.0, -1e9, -1e9], True),
        ([-1e30], True),
        ([0.0, -70000.0], False),
        ([-1e9, -2e9], False),
        ([-1e9, 1e9], False),
        ([-123456.0], False),
        ([1.0], False),
    ],
)
def test_sentinel_is_one_chosen_constant(values: list[float], sentinel: bool) -> None:
    assert is_sentinel_cast(torch.tensor(values), torch.finfo(torch.float16).min) is sentinel


def test_user_frame_is_the_innermost_outside_of_torch() -> None:
    seen = []

    class Spy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            frame = user_frame(sys._getframe().f_back)  # torch's own `_call_impl`
            assert frame is not None
            seen.append(line_of(frame))
            return x

    Spy()(torch.ones(1))
    assert seen[0].file == __file__
    assert seen[0].text == "Spy()(torch.ones(1))"
    assert not is_user_code(nn.Module._call_impl.__code__)
    assert not is_user_code(line_of.__code__)
    assert is_user_code(test_sentinel_is_one_chosen_constant.__code__)


def test_paths_do_not_show_the_wrapper_of_torch_compile() -> None:
    assert plain_path("_orig_mod.encoder._orig_mod.fc") == "encoder.fc"
    model = nn.Sequential(nn.Linear(1, 1))
    compiled = torch.compile(model, backend="eager")
    paths = ModulePaths({"net": compiled})
    assert paths.path_of(model[0]) == "net.0"
    assert paths.path_of(model) == paths.path_of(compiled) == "net"
    assert paths.path_of(nn.Linear(1, 1)) is None


def registered(aten: str, device: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{aten}", f"Autocast{device}"))


#: The op on which autocast's rule sits, where it is not the one that a dispatch mode sees.
RULED = {
    "_softmax": "softmax.int",
    "_log_softmax": "log_softmax.int",
    "native_group_norm": "group_norm",
    "_fused_rms_norm": "rms_norm",
    "_pdist_forward": "pdist",
    "norm": "norm.Scalar",
    "pow": "pow.Tensor_Scalar",
    "_fft_r2c": "fft_rfft",
    "_fft_c2r": "fft_irfft",
    "_fft_c2c": "fft_fft",
}


@pytest.mark.parametrize("aten", sorted(FLOAT32_ON_CUDA_ONLY | HALF_ON_CUDA_ONLY))
def test_cuda_has_a_rule_that_cpu_has_not(aten: str) -> None:
    assert registered(RULED.get(aten, aten), "CUDA")
    assert not registered(RULED.get(aten, aten), "CPU")


@pytest.mark.parametrize("aten", sorted(FLOAT32_ON_CPU_ONLY))
def test_cpu_has_a_rule_that_cuda_has_not(aten: str) -> None:
    assert registered(RULED.get(aten, aten), "CPU")
    assert not registered(RULED.get(aten, aten), "CUDA")


@pytest.mark.parametrize("op", ["exp", "sum", "log"])
def test_cpu_really_runs_these_in_half(op: str) -> None:
    with torch.autocast("cpu", torch.float16):
        assert getattr(torch, op)(torch.ones(2).half()).dtype == torch.float16


def test_cuda_difference() -> None:
    assert cuda_difference("exp", "float16", "cpu", ("float16",)) == "float32"
    assert cuda_difference("exp", "float16", "cpu", ("float32",)) is None
    assert cuda_difference("exp_", "float16", "cpu", ("float16",)) is None
    assert cuda_difference("exp", None, "cpu", ("float16",)) is None
    assert cuda_difference("exp", "float16", "cuda", ("float16",)) is None
    assert cuda_difference("mean", "float16", "cpu", ("float16",)) is None
    assert cuda_difference("linalg_qr", "bfloat16", "cpu", ("float32",)) == "bfloat16"
    assert cuda_difference("mv", "float16", "cpu", ("float32", "float32")) == "float16"
