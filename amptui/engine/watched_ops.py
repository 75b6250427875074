"""Every op of a run as it happens, with its place: what the forecast and the map of precision are made of.

Nothing is changed and nothing is kept; unlike a tracer it asks no value of any tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from amptui.engine.tracing.backward import current_node
from amptui.engine.tracing.calls import TorchCalls
from amptui.engine.tracing.modules import ModulePaths, ModuleStack
from amptui.engine.tracing.recording import Recording
from amptui.engine.tracing.schema import OpFacts, tensors_in
from amptui.engine.tracing.tape import KnownTensors, Place


@dataclass(frozen=True, slots=True)
class WatchedOp:
    """One op that has just run. Views, reads and memory that nobody has written are left out."""

    facts: OpFacts
    place: Place
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: list[Tensor]

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that went in."""
        return [] if self.facts.shape_only else tensors_in((*self.args, *self.kwargs.values()))

    @property
    def floats(self) -> list[Tensor]:
        """The floating results that count (tables for an op's own backward do not)."""
        return [t for t in self.results[: self.facts.scratch_from] if t.is_floating_point()]

    @property
    def key(self) -> OpKey:
        backward = self.place.phase == "backward"
        # In backward the place has the forward op's name; several ops make up its gradient.
        name = self.facts.aten if backward else self.facts.name
        return OpKey("backward" if backward else "forward", self.place.module, name, _text(self.place.line))


@dataclass(frozen=True, slots=True)
class OpKey:
    """What identifies an op across runs of the same code, up to how often it ran there before."""

    phase: str
    module: str
    op: str
    line: str | None


def _text(line: object) -> str | None:
    return None if line is None else str(line)


@contextmanager
def watched_ops(
    modules: nn.Module | Mapping[str, nn.Module], *, device: str, outside: str, seen: Callable[[WatchedOp], None]
) -> Iterator[None]:
    """Calls `seen` after every op of this thread inside the context.

    `outside` (`loss`, `outputs`) is what code outside of all modules is called. Compiled code runs eagerly.
    """
    paths = ModulePaths(modules)
    stack = ModuleStack(paths)
    calls = TorchCalls(device)
    recording = Recording(stack=stack, known=KnownTensors(paths), outside=outside, device=device)
    with ExitStack() as contexts:
        contexts.enter_context(torch.compiler.set_stance("force_eager"))
        contexts.enter_context(stack)
        contexts.enter_context(calls)
        contexts.enter_context(_Watch(recording, calls, seen))
        yield


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, recording: Recording, calls: TorchCalls, seen: Callable[[WatchedOp], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recording, self._calls, self._seen = recording, calls, seen

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        recording, kwargs = self._recording, kwargs or {}
        facts = recording.facts(func)
        if current_node() is None or torch.is_grad_enabled():
            recording.note(facts)
        out = func(*args, **kwargs)
        if not facts.passive and not facts.uninitialised:
            results = tensors_in(out if isinstance(out, list | tuple) else [out])
            self._seen(WatchedOp(facts, recording.place(facts, self._calls), args, kwargs, results))
        return out
