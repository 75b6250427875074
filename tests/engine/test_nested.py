"""What batches and inputs are made of: copied without sharing anything, in the same shape, and hashed by content."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import hashlib
import threading
import types
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from amptui.engine.nested import copied, hashed, map_tensors, tensor_bytes, tensors_in


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


@dataclasses.dataclass
class Sample:
    image: Tensor
    label: int
    boxes: list[Tensor] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    image: Tensor


@dataclasses.dataclass(slots=True)
class Slotted:
    image: Tensor


class Encoding(collections.UserDict):  # type: ignore[type-arg]
    """As tokenizers return it: a mapping that is no dict, with a `to` that moves itself in place."""

    def __init__(self, data: dict[str, Tensor], encodings: str) -> None:
        super().__init__(data)
        self.encodings = encodings

    def to(self, device: Any) -> Encoding:
        self.data = {key: value.to(device) for key, value in self.data.items()}
        return self


class Attributes(dict):  # type: ignore[type-arg]
    """The common dict whose items are attributes too."""

    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.__dict__ = self


class Graph:
    """As graph libraries have it: tensors in attributes, `to` in place, `clone` for a copy."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def to(self, device: Any) -> Graph:
        self.x = self.x.to(device)
        return self

    def clone(self) -> Graph:
        return Graph(self.x.clone())


class Plain:
    """An object that knows nothing of devices or copies."""

    def __init__(self, x: Tensor) -> None:
        self.x = x


def x() -> Tensor:
    return torch.arange(4.0)


CONTAINERS: dict[str, Any] = {
    "dict": lambda: {"x": x(), "n": 3},
    "ordered dict": lambda: collections.OrderedDict(x=x()),
    "defaultdict": lambda: collections.defaultdict(list, x=x()),
    "mapping proxy": lambda: types.MappingProxyType({"x": x()}),
    "mapping-like class": lambda: Encoding({"x": x()}, "kept"),
    "dict with attributes": lambda: Attributes(x=x()),
    "list": lambda: [x(), "text", None],
    "tuple": lambda: (x(), 1.0),
    "named tuple": lambda: Pair(x(), x()),
    "torch's named tuple": lambda: torch.ones(2, 2).max(0),
    "set": lambda: {x()},
    "frozenset": lambda: frozenset({x()}),
    "dataclass": lambda: Sample(x(), 2, [x()]),
    "frozen dataclass": lambda: Frozen(x()),
    "slotted dataclass": lambda: Slotted(x()),
    "nested": lambda: {"a": [(x(), {"b": Sample(x(), 1)})]},
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_are_rebuilt_as_they_are_and_share_no_memory(name: str) -> None:
    value = CONTAINERS[name]()
    twin = copied(value, None)
    assert type(twin) is type(value)
    ours, theirs = list(tensors_in(value)), list(tensors_in(twin))
    assert ours
    assert len(ours) == len(theirs)
    for mine, its in zip(ours, theirs, strict=True):
        assert torch.equal(mine, its)
        assert mine.untyped_storage().data_ptr() != its.untyped_storage().data_ptr()
    for tensor in theirs:
        tensor.fill_(-1.0)
    assert all(bool((tensor >= 0).all()) for tensor in ours), "an edit in place stays in the copy"


def test_what_is_beside_the_tensors_is_kept() -> None:
    twin = copied(Encoding({"x": x()}, "kept"), None)
    assert twin.encodings == "kept"
    made = copied(collections.defaultdict(list, x=x()), None)
    assert made["missing"] == []
    assert copied(Sample(x(), 7), None).label == 7


def test_items_that_are_attributes_too_stay_one_thing() -> None:
    value = Attributes(x=x())
    twin = copied(value, None)
    assert twin.x is twin["x"]
    assert twin.x is not value.x


def test_a_field_that_was_never_set_is_no_error() -> None:
    @dataclasses.dataclass
    class Late:
        image: Tensor
        later: Tensor = dataclasses.field(init=False)

    assert torch.equal(copied(Late(x()), None).image, x())
    hashed(Late(x()), hashlib.sha256())


def test_one_tensor_in_two_places_is_one_tensor_in_the_copy() -> None:
    ids = x()
    twin = copied({"input_ids": ids, "labels": ids}, None)
    assert twin["input_ids"] is twin["labels"]


def test_a_tensor_that_wants_a_gradient_is_a_leaf_that_wants_one() -> None:
    latent = torch.ones(3, requires_grad=True)
    for tensor in (latent, latent * 2):
        twin = copied((tensor,), None)[0]
        assert twin.requires_grad
        assert twin.is_leaf
    assert not copied((x(),), None)[0].requires_grad


def test_inference_tensors_become_ordinary_ones() -> None:
    with torch.inference_mode():
        made = torch.ones(3)
    twin = copied(made, None)
    assert not twin.is_inference()


def test_moving_to_the_device_where_a_tensor_lies_still_copies() -> None:
    """`cuda` and `cuda:0` are unequal devices, and `to` gives the tensor itself: an edit would reach the original."""
    value = x()
    twin = copied(value, torch.device("cpu", 0))
    twin.zero_()
    assert bool(value.any())


def test_moving_reaches_every_container() -> None:
    meta = torch.device("meta")
    for make in CONTAINERS.values():
        assert {tensor.device.type for tensor in tensors_in(copied(make(), meta))} == {"meta"}


def test_strides_and_dtypes_are_kept() -> None:
    image = torch.randn(1, 3, 4, 4).to(memory_format=torch.channels_last)
    assert copied(image, None).stride() == image.stride()
    assert copied(torch.ones(2, dtype=torch.complex64), None).dtype == torch.complex64


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: (v, 1), lambda v: {"graph": [v]}])
def test_objects_are_asked_for_their_own_copy_and_move(wrap: Any) -> None:
    def inside(value: Any) -> Any:
        while not isinstance(value, Graph):
            value = value[0] if isinstance(value, tuple | list) else value["graph"]
        return value

    value = wrap(Graph(x()))
    twin = copied(value, None)
    inside(twin).x.zero_()
    assert bool(inside(value).x.any())
    moved = copied(value, torch.device("meta"))
    assert inside(moved).x.device.type == "meta"
    assert inside(value).x.device.type == "cpu", "a `to` that moves in place moved the copy"


def test_other_objects_and_arrays_are_copied_deeply_also_inside_containers() -> None:
    value = (Plain(x()), np.ones(3), [bytearray(b"ab")])
    twin = copied(value, None)
    twin[0].x.zero_()
    twin[1][:] = 0
    twin[2][0][0] = 0
    assert bool(value[0].x.any())
    assert value[1].all()
    assert value[2][0] == b"ab"


def test_code_and_what_cannot_be_copied_is_shared() -> None:
    lock, stream, module = threading.Lock(), iter([1]), nn.Linear(1, 1)
    value = (lock, (n for n in stream), module, len, Plain)
    twin = copied(value, None)
    assert all(mine is its for mine, its in zip(value, twin, strict=True))


def test_packed_sequences_keep_their_batch_sizes_on_the_cpu() -> None:
    packed = pack_sequence([torch.ones(3, 2), torch.ones(2, 2)])
    twin = copied(packed, torch.device("meta"))
    assert isinstance(twin, PackedSequence)
    assert twin.data.device.type == "meta"
    assert twin.batch_sizes.device.type == "cpu"


def test_map_tensors_leaves_everything_else_alone() -> None:
    array = np.ones(2)
    doubled = map_tensors({"x": x(), "a": array}, lambda t: t * 2)
    assert torch.equal(doubled["x"], x() * 2)
    assert doubled["a"] is array


def digest(value: Any) -> str:
    own = hashlib.sha256()
    hashed(value, own)
    return own.hexdigest()


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@pytest.mark.parametrize("name", CONTAINERS)
def test_equal_content_has_equal_digests(name: str) -> None:
    assert digest(CONTAINERS[name]()) == digest(CONTAINERS[name]())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.zeros(2), torch.zeros(3)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (torch.zeros(2), -torch.zeros(2)),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        ({"a": 1}, {"b": 1}),
        ([1, 2], [2, 1]),
        (1, True),
        (1, 1.0),
        ({1, 2}, {1, 3}),
        (np.ones(2), np.ones(2, dtype=np.float32)),
        (np.array(["a", None], dtype=object), np.array(["b", None], dtype=object)),
        (Graph(torch.zeros(2)), Graph(torch.ones(2))),
        (Plain(torch.zeros(2)), Plain(torch.ones(2))),
        (Colour.RED, Colour.BLUE),
        (bytearray(b"a"), bytearray(b"b")),
        ("1", 1),
    ],
)
def test_other_content_has_another_digest(one: Any, other: Any) -> None:
    assert digest(one) != digest(other)
    assert digest(one) == digest(copy.deepcopy(one)), "identity plays no part"


def test_sets_are_hashed_in_no_order() -> None:
    assert digest({"a", "b", "c"}) == digest({"c", "b", "a"})


def test_an_object_that_contains_itself_can_be_hashed() -> None:
    loop = Plain(x())
    loop.me = loop  # type: ignore[attr-defined]
    assert digest(loop) == digest(copy.deepcopy(loop))


def test_bytes_are_those_of_the_elements_in_order() -> None:
    matrix = torch.arange(6, dtype=torch.int32).reshape(2, 3)
    assert tensor_bytes(matrix.t()) == np.ascontiguousarray(matrix.numpy().T).tobytes()
    assert tensor_bytes(torch.ones(2, dtype=torch.complex64).conj()) == np.ones(2, np.complex64).conj().tobytes()
    assert tensor_bytes(torch.empty(0)) == b""
    quiet, other = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert tensor_bytes(quiet) != tensor_bytes(other), "NaN payloads count"
