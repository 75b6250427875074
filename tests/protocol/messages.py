"""Every event and command with made-up values, by their annotations: what the codec and the reducer must cope with."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from amptui.project import Criteria, Policy, Scaler
from amptui.protocol import commands, events
from amptui.protocol.codec import Floats

EVENTS = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event
]
COMMANDS = [
    kind
    for kind in vars(commands).values()
    if isinstance(kind, type) and issubclass(kind, commands.Command) and kind is not commands.Command
]

_numbers = st.floats()
_texts = st.text(max_size=8)
_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | _numbers | _texts | st.sampled_from(["nan", "inf", "-inf"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["float", "object", "a", ""]), inner),
    max_leaves=5,
)
_small = st.floats(min_value=0, max_value=1)
_policies = st.builds(
    Policy,
    dtype=st.sampled_from(["float16", "bfloat16"]),
    scaler=st.sampled_from(["auto", None, Scaler(), Scaler(init_scale=2.0**40)]),
    fp32_regions=st.lists(_texts, max_size=3),
)
_criteria = st.builds(
    Criteria,
    atol=st.none() | _small,
    outputs=st.dictionaries(_texts, _small | st.fixed_dictionaries({"atol": _small}), max_size=2),
    applied_share=_small,
)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of the annotated type, awkward ones included."""
    simple = {
        float: _numbers,
        int: st.integers(),
        str: _texts,
        bool: st.booleans(),
        type(None): st.none(),
        object: _plain,
        Floats: st.lists(st.floats(width=32), max_size=5).map(Floats.of),
        Policy: _policies,
        Criteria: _criteria,
    }
    if hint in simple:
        return simple[hint]
    if is_dataclass(hint):
        return messages_of(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(argument) for argument in arguments])
    if origin is Mapping:
        return st.dictionaries(_texts, values_of(arguments[1]), max_size=3)
    if origin in (tuple, Sequence):
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    raise TypeError(hint)


def messages_of(kind: Any) -> st.SearchStrategy[Any]:
    """Objects of the dataclass `kind`."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: values_of(hints[field.name]) for field in fields(kind)})
