"""What a recognised layout adds to what is sighted by shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from amptui.inspection.nodes import Node, mapping_of, number_of


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A framework's layout: its counters, and which parts it never saves."""

    #: Short name, as the JSON has it, and name in words, with the version where the file tells.
    name: str
    title: str
    #: Optimizer calls of the loop, skipped ones included, and where that number stands.
    loop: int | None = None
    loop_path: str = ""
    #: Skipped updates as the framework itself counted them.
    skipped: int | None = None
    epoch: int | float | None = None
    #: Whether `loop` counts every optimizer's calls in one sum.
    loop_is_sum: bool = False
    #: Whether `loop` surely counts optimizer calls (and not micro-batches).
    loop_is_exact: bool = False
    #: Parts that this framework does not save, each with a sentence.
    never: Mapping[str, str] = field(default_factory=dict)
    #: Parts that the run did not have, as the file itself tells: nothing is missing without them.
    had_none: frozenset[str] = frozenset()
    #: Whether it saves half-precision optimizer state or EMA on purpose.
    halves_on_save: bool = False


def counter(mapping: Mapping[Node, Node], *names: str) -> tuple[int | None, str]:
    """The first of `names` that is a whole number in `mapping`, and its name."""
    for name in names:
        value = number_of(mapping.get(name))
        if value is not None and 0 <= value < 1 << 60 and value == int(value):
            return int(value), name
    return None, ""


def text(mapping: Mapping[Node, Node], name: str) -> str:
    """The text at `name`, at most 40 characters, or ""."""
    value = mapping.get(name)
    return value[:40] if isinstance(value, str) else ""


def inner(mapping: Mapping[Node, Node], *path: str) -> Mapping[Node, Node]:
    """The mapping at `path`, empty where there is none."""
    node: Node = mapping
    for name in path:
        fields = mapping_of(node)
        node = fields.get(name) if fields else None
    return mapping_of(node) or {}


def titled(name: str, version: str) -> str:
    """`name` with its version, where that is known."""
    return f"{name} {version}" if version else name
