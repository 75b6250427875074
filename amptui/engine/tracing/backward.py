"""From a backward op to the forward op whose gradient it computes.

An autograd node carries the sequence number that was current when its forward op ran; the first op dispatched after a
node was made is the op that the node belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from amptui.engine.tracing.schema import makes_half
from amptui.engine.tracing.source import Line

_SUFFIX = re.compile(r"Backward\d*$")


def _private(name: str) -> Any:
    """A function of torch that is not part of its interface, or None in a torch without it."""
    target: Any = torch._C
    for part in name.split("."):
        target = getattr(target, part, None)
    return target


_current_node = _private("_current_autograd_node")
_sequence = _private("_autograd._get_sequence_nr")


def available() -> bool:
    """Whether this torch tells which node runs and which was made last; without that op level is not possible."""
    return _current_node is not None and _sequence is not None


def current_node() -> Any:
    """The autograd node that is being evaluated in this thread, or None outside of backward."""
    return _current_node() if _current_node is not None else None


def newest_sequence() -> int:
    """Sequence number of the newest autograd node of this thread; -1 where torch does not tell."""
    return int(_sequence()) - 1 if _sequence is not None else -1


@dataclass(frozen=True, slots=True)
class ForwardOp:
    """A forward op that made an autograd node."""

    aten: str
    name: str
    #: None outside of all modules.
    module: str | None
    line: Line | None
    #: The innermost module being called: another one where a method of `module` was called directly.
    called: str | None


@dataclass
class ForwardIndex:
    """The forward ops of a run by sequence number. Threads count separately: a number can have several."""

    ops: dict[int, list[ForwardOp]] = field(default_factory=dict)
    #: Line to module, for code that backward runs again outside of its module's call.
    modules: dict[Line | None, str | None] = field(default_factory=dict)

    def note(self, sequence: int, op: ForwardOp) -> None:
        """Remember `op` as what the node with this number belongs to."""
        self.ops.setdefault(sequence, []).append(op)

    def find(self, node: Any) -> ForwardOp | None:
        """The forward op of an autograd node."""
        sequence = node._sequence_nr()
        name = node_stem(node.name())
        same = self.ops.get(sequence, [])
        for op in same:
            if _belongs(op.aten, name):
                return op
        if is_custom(node):
            # The first op inside may have been autocast's cast of a weight, which makes a node of its own.
            same = same or self.ops.get(sequence + 1, [])
            return same[0] if same else None
        # An in-place op on a view gets a second node (CopySlices) right after its own.
        before = self.ops.get(sequence - 1, [])
        if name.startswith("CopySlices") and before:
            return before[-1]
        return same[0] if same else None


def makers_of(nodes: Iterable[Any], index: ForwardIndex, limit: int = 2000) -> tuple[str, ...]:
    """The modules that made these values half: those whose autocast op is the nearest on the way to the inputs.

    Other ops keep the dtype of what they are given: with these modules in FP32 all that follows, up to the next
    autocast op, is float32.
    """
    found: dict[str, None] = {}
    waiting = [node for node in nodes if node is not None]
    seen = set(waiting)
    for node in waiting:
        forward = index.find(node)
        if forward is not None and makes_half(forward.aten):
            if forward.called is not None:
                found[forward.called] = None
            continue
        for earlier, _ in node.next_functions:
            if earlier is not None and earlier not in seen and len(seen) < limit:
                seen.add(earlier)
                waiting.append(earlier)
    return tuple(found)


def is_custom(node: Any) -> bool:
    """Whether the node is a `torch.autograd.Function` of the user's."""
    return isinstance(node, torch.autograd.function.BackwardCFunction)


def node_stem(name: str) -> str:
    """`Sqrt` for `SqrtBackward0`."""
    return _SUFFIX.sub("", name.rsplit("::", maxsplit=1)[-1])


def _belongs(aten: str, stem: str) -> bool:
    op, node = aten.replace("_", "").lower(), stem.replace("_", "").lower()
    return op == node or (len(node) > 2 and op.startswith(node))
