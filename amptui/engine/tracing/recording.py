"""What all threads of one traced run share, and how an op's place is found: phase, module, line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from amptui.engine.tracing.backward import (
    ForwardIndex,
    ForwardOp,
    current_node,
    makers_of,
    newest_sequence,
    node_stem,
)
from amptui.engine.tracing.calls import TorchCalls, autocast_dtype
from amptui.engine.tracing.modules import ModuleStack
from amptui.engine.tracing.schema import OpFacts, learn, makes_half, shown_name
from amptui.engine.tracing.source import is_checkpoint_code, line_of, user_frame
from amptui.engine.tracing.tape import KnownTensors, Place, Tape
from amptui.engine.tracing.values import TensorFacts


@dataclass(frozen=True, slots=True)
class Failure:
    """The op that raised."""

    place: Place
    #: dtype and shape of the tensors that went in.
    inputs: tuple[TensorFacts, ...]
    error: BaseException


@dataclass
class Recording:
    """The state of one traced run."""

    stack: ModuleStack
    known: KnownTensors
    #: Name of the user function that code outside of all modules belongs to.
    outside: str = "loss"
    #: Set by the caller to name what runs outside of forward and backward, such as `unscale`.
    phase: str | None = None
    device: str = "cpu"
    tape: Tape = field(default_factory=Tape)
    index: ForwardIndex = field(default_factory=ForwardIndex)
    #: The module of the newest op that autocast runs in half.
    newest_maker: str | None = None
    #: The newest op of a forward that backward repeated.
    repeated: ForwardOp | None = None
    #: In the order of raising; user code may have caught some.
    failures: list[Failure] = field(default_factory=list)
    _op_facts: dict[OpOverload, OpFacts] = field(default_factory=dict)

    def facts(self, func: OpOverload) -> OpFacts:
        """The static facts of an op, learnt once."""
        facts = self._op_facts.get(func)
        if facts is None:
            facts = self._op_facts[func] = learn(func)
        return facts

    def note(self, facts: OpFacts) -> None:
        """In forward: remember what the newest autograd node belongs to, and which module each line belongs to."""
        sequence = newest_sequence()
        known = self.index.ops.get(sequence)
        is_new = known is None or not (self.stack.at_home or facts.aten == known[-1].aten)
        if not is_new and torch.is_grad_enabled():
            return
        # Without gradients no node is made, but a checkpoint repeats these lines later with gradients.
        here = sys._getframe(1)
        frame = user_frame(here)
        line = line_of(frame) if frame is not None else None
        module, called = self.stack.owner(here), self.stack.current()
        if called is not None and makes_half(facts.aten):
            self.newest_maker = called
        if current_node() is None:
            self.index.modules[line] = module
        elif module is None:
            module = called = self.index.modules.get(line)
        op = ForwardOp(facts.aten, facts.name, module, line, called)
        if current_node() is not None:
            self.repeated = op
        if is_new:
            self.index.note(sequence, op)

    def makers(self, place: Place, inputs: Sequence[Tensor]) -> tuple[str, ...]:
        """The modules that made the half values at this place, where its op is not one that makes half values itself.

        Without autograd the graph is not there; then the newest module that autocast ran in half stands for them.
        """
        if makes_half(place.aten):
            return ()
        node = current_node()
        if node is None and not torch.is_grad_enabled():
            return (self.newest_maker,) if self.newest_maker is not None else ()
        made = [node] if node is not None else [tensor.grad_fn for tensor in inputs]
        return makers_of(made, self.index)

    def place(self, facts: OpFacts, calls: TorchCalls) -> Place:
        """Where the op that is being dispatched in the thread of `calls` belongs."""
        node = current_node()
        here: FrameType | None = sys._getframe(1)
        frame = here
        if node is not None:
            frame = user_frame(frame, inside_backward=True)
            if not (torch.is_grad_enabled() and _repeats_forward(frame, self.stack)):
                return self._backward_place(facts, node, frame)
        else:
            frame = user_frame(frame)
        line = line_of(frame) if frame is not None else None
        module = self.stack.owner(here)
        if module is None and node is not None:
            module = self.index.modules.get(line)
        in_loss = module is None and self.outside == "loss"
        return Place(
            phase=self.phase or ("loss" if in_loss else "forward"),
            module=self.outside if module is None else module,
            op=facts.name,
            line=line,
            aten=facts.aten,
            api=calls.name,
            recomputed=node is not None,
            autocast=calls.autocast,
            home_thread=self.stack.at_home,
        )

    def _backward_place(self, facts: OpFacts, node: Any, frame: FrameType | None) -> Place:
        forward = self.index.find(node)
        module = forward.module if forward is not None else None
        line = forward.line if forward is not None else None
        op = forward.name if forward is not None else shown_name(node_stem(node.name()).lower())
        if frame is not None:  # the user's own `backward`, or a gradient hook: its op, its line
            op, line = facts.name, line_of(frame)
        elif forward is None and self.stack.current() is not None:  # a gradient taken inside a module's forward
            module, frame = self.stack.current(), user_frame(sys._getframe(1))
            line = line_of(frame) if frame is not None else None
        return Place(
            phase="backward",
            module=self.outside if module is None else module,
            op=op,
            line=line,
            aten=facts.aten,
            node=node.name(),
            autocast=autocast_dtype(self.device),
        )


def _repeats_forward(frame: FrameType | None, stack: ModuleStack) -> bool:
    """Whether Python code that runs inside backward with gradients on is a forward that is being repeated.

    With `create_graph=True` gradients are on in all of backward: then only a module call, torch's checkpointing, or
    code called by a custom function's `backward` is a repeated forward.
    """
    if frame is None:
        return False
    if stack.current() is not None:
        return True
    if frame.f_code.co_name == "backward":
        return False
    outer = frame.f_back
    while outer is not None:
        if is_checkpoint_code(outer.f_code) or outer.f_code.co_name == "backward":
            return True
        outer = outer.f_back
    return False
