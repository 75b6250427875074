"""Pickle streams become inert nodes; whatever is wrong with them becomes a sentence, never an exception."""

from __future__ import annotations

import pickle
import pickletools
import struct
import sys
from collections import Counter, OrderedDict, defaultdict

import pytest

from amptui.inspection.nodes import Call, Global, Opaque, mapping_of
from amptui.inspection.pickle_opcodes import OPCODES
from amptui.inspection.pickle_walk import walk


class Sample:
    def __init__(self) -> None:
        self.scale = 2.0


VALUES = [
    {"a": [1, 2.5, None, True, False], "b": ("x", b"\0\xff", -1, 255, 256, 65536, 2**31, -(2**31), 2**100, -(2**70))},
    [[[]], {}, (), {"": ""}],
    ["é", "\ud800", "a\nb\\", "\U0001f600"],
    {1: 2, None: 3, 2.5: 4, (1, "a"): 5, b"k": 6},
    float("inf"),
    list(range(1000)),
    {str(number): number for number in range(2000)},
]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_plain_values_are_themselves(value: object, protocol: int) -> None:
    walked = walk(pickle.dumps(value, protocol))
    assert (walked.problem, walked.root) == ("", value)
    assert not set(walked.code.globals) or protocol < 3  # protocol 2 spells bytes as a call of _codecs.encode


def test_every_opcode_is_known() -> None:
    assert {opcode.code.encode("latin-1")[0] for opcode in pickletools.opcodes} == {*OPCODES, pickle.STOP[0]}


@pytest.mark.parametrize("protocol", range(6))
def test_containers_of_the_standard_library_are_plain(protocol: int) -> None:
    value = [OrderedDict(a=1), defaultdict(list, b=[2]), Counter("aab")]
    walked = walk(pickle.dumps(value, protocol))
    assert walked.root == [{"a": 1}, {"b": [2]}, {"a": 2, "b": 1}]


@pytest.mark.parametrize("protocol", range(6))
def test_an_object_is_a_call_with_its_attributes(protocol: int) -> None:
    walked = walk(pickle.dumps(Sample(), protocol))
    assert isinstance(walked.root, Call)
    assert walked.root.name == f"{Sample.__module__}.Sample"
    assert mapping_of(walked.root) == {"scale": 2.0}


def test_python_2_strings_are_text_where_they_are_ascii() -> None:
    assert walk(b"(S'abc'\nU\x03abcU\x01\xffT\x02\x00\x00\x00okl.").root == ["abc", "abc", b"\xff", "ok"]
    assert walk(b"(I01\nI00\nI-7\nL12L\nF2.5\nVx\\u00e9\nl.").root == [True, False, -7, 12, 2.5, "xé"]


def test_a_lookup_in_a_class_names_its_member() -> None:
    walked = walk(b"cbuiltins\ngetattr\n(cpkg\nKind\nX\x01\x00\x00\x00AtR.")
    assert isinstance(walked.root, Global)
    assert walked.root.dotted == "pkg.Kind.A"
    hidden = walk(b"cbuiltins\ngetattr\n(cpkg\nKind\nX\x0b\x00\x00\x00__globals__tR.")
    assert isinstance(hidden.root, Call)


def test_a_call_of_what_a_call_returned_is_counted() -> None:
    assert walk(b"coperator\nattrgetter\n(X\x06\x00\x00\x00systemtR(cos\npath\ntR.").code.computed_calls == 1


def test_attributes_that_the_unpickler_itself_calls_are_counted() -> None:
    for name in (b"extend", b"append", b"add", b"__setstate__"):
        text = b"X" + struct.pack("<I", len(name)) + name
        assert walk(b"\x80\x02ca\nB\n)\x81}" + text + b"ca\nf\nsb.").code.computed_calls == 1


@pytest.mark.parametrize(
    ("stream", "said"),
    [
        (b"", "before its end mark"),
        (b"]", "before its end mark"),
        (b"X\xff\xff\xff\xffab.", "4,294,967,295 bytes announced"),
        (b"\xff.", "not a pickle opcode"),
        (b"0.", "no mark"),
        (b".", "stack is empty"),
        (b"R.", "stack is empty"),
        (b"u.", "no mark"),
        (b"](K\1u.", "without a value"),
        (b"](K\1K\1u.", "not a dict"),
        (b"}K\1a.", "not a list"),
        (b"K\1}b.", "plain data"),
        (b"h\7.", "never put"),
        (b"X\1\0\0\0\xff.", "UTF-8"),
        (b"K\1K\2\x93.", "not text"),
        (b"Iabc\n.", "not a number"),
        (b"F1.x\n.", "not a number"),
        (b"S'abc\n.", "quotes"),
        (b"S'\\x'\n.", "escape"),
        (b"V\\ud\n.", "escape"),
        (b"I12", "within a line"),
        (b"J\1", "within a number"),
        (b"(o.", "without a class"),
        (b"g999\n.", "never put"),
        (b"gx\n.", "not a number"),
    ],
)
def test_broken_streams_are_told(stream: bytes, said: str) -> None:
    walked = walk(stream)
    assert said in walked.problem
    assert walked.short is (stream[-1:] != b".") or "announced" in said


def test_what_was_built_before_the_break_is_kept() -> None:
    good = pickle.dumps({"scaler": {"scale": 8.0}, "list": [1, 2, 3], "last": "x" * 50}, 2)
    walked = walk(good[:-30])
    assert walked.short
    assert walked.root["scaler"] == {"scale": 8.0}
    assert walked.root["list"] == [1, 2, 3]


def test_numbers_that_cannot_be_shown_are_words() -> None:
    assert isinstance(walk(b"I" + b"9" * 5000 + b"\n.").root, Opaque)
    assert isinstance(walk(pickle.dumps(1 << 10_000, 2)).root, Opaque)


def test_keys_that_are_not_flat_stay_inert() -> None:
    walked = walk(b"}" + b"N" + b"\x85" * 5000 + b"K\1s.")
    assert [type(key) for key in walked.root] == [Opaque]


def test_nothing_is_imported() -> None:
    assert "antigravity" not in sys.modules
    walk(b"cantigravity\nfly\n)R.")
    assert "antigravity" not in sys.modules
