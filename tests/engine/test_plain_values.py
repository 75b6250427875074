"""State becomes what `torch.load(weights_only=True)` takes with an empty allow-list, and comes back as it was."""

from __future__ import annotations

import io
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from amptui.engine.plain_values import NotPlain, from_plain, same_bits, stored, to_plain


def through_a_file(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(to_plain(value, "state"), file)
    file.seek(0)
    return from_plain(torch.load(file, weights_only=True))


class Level(IntEnum):
    LOW = 3


Point = namedtuple("Point", "x y")

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**1990), 2**1990) | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.binary(max_size=8) | st.complex_numbers(allow_nan=False)
)  # fmt: skip
KEYS = st.text(max_size=5) | st.integers() | st.booleans() | st.none() | st.tuples(st.integers(), st.text(max_size=3))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner, max_size=4)
    | st.sets(st.integers(), max_size=3),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_plain_state_is_returned_as_it_was(value: Any) -> None:
    back = through_a_file(value)
    assert back == value
    assert repr(back) == repr(value) or isinstance(value, set | dict | list | tuple)


@pytest.mark.parametrize(
    ("value", "back"),
    [
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, {"a": [1]}), {"a": [1]}),
        (Counter({3: 2}), Counter({3: 2})),
        (Point(1, 2), (1, 2)),
        (frozenset([1]), {1}),
        (Level.LOW, 3),
        (np.float64(0.1), 0.1),
        (np.int32(-7), -7),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        ({np.int64(3): 1}, {3: 1}),
        ((torch.float16, torch.device("cpu"), torch.strided, torch.Size([2])),) * 2,
        (bytearray(b"\xff\0"), bytearray(b"\xff\0")),
    ],
)
def test_near_types_become_the_plain_type(value: Any, back: Any) -> None:
    found = through_a_file(value)
    assert found == back
    assert type(found) is type(back)


def test_not_a_number_keeps_its_bits() -> None:
    assert math.isnan(through_a_file(float("nan")))
    payload = np.array([0x7FF8000000000123], dtype=np.uint64).view(np.float64)
    assert through_a_file(payload).view(np.uint64)[0] == 0x7FF8000000000123


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", ">f4", ">i2", ">u8"]
)
@pytest.mark.parametrize("shape", [(), (0, 2), (3,), (2, 3)])
def test_numpy_arrays_come_back_as_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    bits = np.random.RandomState(0).bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize)
    array = np.frombuffer(bits, dtype="u1" if dtype == "?" else dtype).reshape(shape)
    if dtype == "?":
        array = np.asarray(array > 99)
    back = through_a_file({"array": array})["array"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "value",
    [
        print,
        object(),
        1 << 2001,
        np.array(["a"]),
        np.array([object()]),
        np.datetime64("2020"),
        slice(1),
        range(3),
        ...,
        math,
        Level,
    ],
)
def test_what_would_need_code_is_refused_by_path(value: Any) -> None:
    with pytest.raises(NotPlain, match=r"^state/a/1 is an? "):
        to_plain({"a": [0, value]}, "state")


def test_wide_floats_are_refused() -> None:
    with pytest.raises(NotPlain, match="state is an array of float128, which no tensor can hold"):
        to_plain(np.zeros(2, np.longdouble), "state")


def test_a_module_in_state_is_refused() -> None:
    with pytest.raises(NotPlain, match=r"state/net is a torch.nn.modules.linear.Linear"):
        to_plain({"net": torch.nn.Linear(1, 1)}, "state")


def test_stored_tensors_bring_no_storage_but_their_own() -> None:
    whole = torch.arange(100.0)
    assert stored(whole).data_ptr() == whole.data_ptr()
    for part in (
        whole[3:7],
        whole[::2],
        whole.reshape(10, 10).t()[:4],
        whole[:1].expand(50),
        torch.tensor([1j]).conj(),
    ):
        kept = stored(part)
        assert torch.equal(kept, part)
        assert kept.untyped_storage().nbytes() == kept.numel() * kept.element_size()
        assert not kept.is_conj()


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.complex128, torch.float8_e5m2]
)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (4, 5), (0,)])
def test_same_bits_sees_every_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    size = torch.empty(shape, dtype=dtype).numel() * torch.empty((), dtype=dtype).element_size()
    raw = torch.randint(0, 256, (size,), dtype=torch.uint8)
    one = raw.clone().view(dtype).reshape(shape)
    assert same_bits(one, raw.clone().view(dtype).reshape(shape))
    for byte in range(size):
        raw[byte] ^= 1
        assert not same_bits(one, raw.clone().view(dtype).reshape(shape))
        raw[byte] ^= 1


def test_same_bits_tells_forms_apart_and_looks_through_views() -> None:
    one = torch.arange(6.0)
    assert not same_bits(one, one.reshape(2, 3))
    assert not same_bits(one, one.double())
    assert not same_bits(one, one.to_sparse())
    assert same_bits(one.reshape(2, 3).t(), one.reshape(2, 3).t().contiguous())
    assert same_bits(torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j]))
    assert same_bits(torch.eye(2).to_sparse(), torch.eye(2).to_sparse())
    assert not same_bits(torch.eye(2).to_sparse(), torch.eye(2).mul(2).to_sparse())
    assert same_bits(torch.eye(2).to_sparse_csr(), torch.eye(2).to_sparse_csr())
