"""The coarser way, for what cannot run under a dispatch mode: module inputs, outputs and their gradients.

Used for compiled models whose eager run does not fail, and for higher-order ops. Names the module and the line that
called it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from amptui.engine.nested import tensors_in
from amptui.engine.tracing.modules import ModulePaths, global_hooks
from amptui.engine.tracing.origin import Origin
from amptui.engine.tracing.source import Line, line_of, user_frame
from amptui.engine.tracing.values import TensorFacts, extent, facts_of, is_finite


@dataclass
class _ModuleCall:
    path: str
    line: Line | None
    inputs: tuple[TensorFacts, ...]
    #: Of outputs and gradients; None until known.
    output: TensorFacts | None = None
    output_gradient_bad: bool = False
    input_gradient_bad: bool = False
    #: Modules called from within, by their index in the list of calls.
    children: list[int] = field(default_factory=list)


class ModuleTracer:
    """A context that looks at what goes into and comes out of every module call, forward and backward."""

    def __init__(self, modules: nn.Module | Mapping[str, nn.Module], *, outside: str = "loss") -> None:
        self._paths = ModulePaths(modules)
        self._outside = outside
        self._calls: list[_ModuleCall] = []
        self._open: list[tuple[nn.Module, int]] = []
        #: Indices of calls in the order in which their input gradients turned bad.
        self._bad_backward: list[int] = []
        self._hooks = global_hooks(self._before, self._after)

    def __enter__(self) -> ModuleTracer:
        self._hooks.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._hooks.__exit__(None, None, None)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _before(self, module: nn.Module, inputs: object) -> None:
        path = self._paths.path_of(module)
        if path is None:
            return
        frame = user_frame(sys._getframe(1))
        tensors = [t.detach() for t in tensors_in(inputs)]
        call = _ModuleCall(path, line_of(frame) if frame else None, tuple(facts_of(t) for t in tensors))
        index = len(self._calls)
        self._calls.append(call)
        if self._open:
            self._calls[self._open[-1][1]].children.append(index)
        self._open.append((module, index))
        for tensor in tensors_in(inputs):
            if tensor.requires_grad:
                tensor.register_hook(partial(self._input_gradient, index))  # type: ignore[no-untyped-call]

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _after(self, module: nn.Module, _inputs: object, output: object) -> None:
        if all(opened is not module for opened, _ in self._open):
            return
        while True:
            opened, index = self._open.pop()
            if opened is module:
                break
        call = self._calls[index]
        facts = [facts_of(t.detach()) for t in tensors_in(output)]
        call.output = next((f for f in facts if f.kinds), facts[0] if facts else None)
        for tensor in tensors_in(output):
            if tensor.requires_grad and tensor.grad_fn is not None:
                tensor.register_hook(partial(self._output_gradient, index))  # type: ignore[no-untyped-call]

    def _output_gradient(self, index: int, gradient: Tensor) -> None:
        self._calls[index].output_gradient_bad |= _bad(gradient)

    def _input_gradient(self, index: int, gradient: Tensor) -> None:
        if _bad(gradient):
            self._calls[index].input_gradient_bad = True
            self._bad_backward.append(index)

    def origins(self, results: Mapping[str, Tensor | None]) -> tuple[Origin, ...]:
        """The innermost module that took finite values and gave others; failing that, what the results tell."""
        bad = tuple(name for name, tensor in results.items() if tensor is not None and _bad(tensor))
        if not bad:
            return ()
        for call in self._calls:  # a call is listed before its children
            if _turns_bad(call) and not any(_turns_bad(self._calls[i]) for i in call.children):
                return (self._origin(call, "forward", bad),)
        for index in self._bad_backward:
            call = self._calls[index]
            if not call.output_gradient_bad:
                return (self._origin(call, "backward", bad),)
        return origins_by_name(results, outside=self._outside)

    def _origin(self, call: _ModuleCall, phase: str, reaches: tuple[str, ...]) -> Origin:
        output = call.output
        return Origin(
            phase=phase,
            module=call.path,
            op="",
            line=str(call.line) if call.line is not None else None,
            source=call.line.text if call.line is not None else "",
            cause="unknown",
            kinds=output.kinds if output is not None and phase == "forward" else (),
            dtype=output.dtype if output is not None else None,
            inputs=call.inputs,
            output=output,
            reaches=reaches,
        )


def origins_by_name(results: Mapping[str, Tensor | None], *, outside: str = "loss") -> tuple[Origin, ...]:
    """The coarsest answer: the loss, or the parameter nearest to it, among the results that are not finite."""
    bad = {name: tensor for name, tensor in results.items() if tensor is not None and _bad(tensor)}
    if not bad:
        return ()
    name = next((n for n in bad if not n.startswith("gradient ")), list(bad)[-1])
    of_gradient = name.startswith("gradient ")
    facts = facts_of(bad[name].detach(), name)
    return (
        Origin(
            phase="backward" if of_gradient else "forward",
            module=name.removeprefix("gradient ").rpartition(".")[0] if of_gradient else outside,
            op="",
            line=None,
            cause="unknown",
            kinds=facts.kinds,
            dtype=facts.dtype,
            output=facts,
            tensor=name,
            reaches=tuple(bad),
        ),
    )


def _turns_bad(call: _ModuleCall) -> bool:
    return call.output is not None and bool(call.output.kinds) and not any(f.kinds for f in call.inputs)


def _bad(tensor: Tensor) -> bool:
    span = extent(tensor.detach())
    return span is not None and not is_finite(span)
