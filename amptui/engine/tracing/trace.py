"""One traced run: forward, loss and backward as the caller does them, with every op watched."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

import torch
from torch import Tensor, nn

from amptui.engine.tracing.backward import current_node
from amptui.engine.tracing.blame import Blame, Site
from amptui.engine.tracing.calls import TorchCalls
from amptui.engine.tracing.dispatch import OpTracer
from amptui.engine.tracing.errors import ErrorPlace, locate_error
from amptui.engine.tracing.modules import ModulePaths, ModuleStack
from amptui.engine.tracing.recording import Recording
from amptui.engine.tracing.tape import KnownTensors

Results = Mapping[str, Tensor | None]


class Tracer:
    """A context in which every op of this thread, and of module calls in other threads, is watched.

    `modules` is the model, or a mapping whose keys begin the module paths. `inputs` (any nesting of dicts and lists)
    names the tensors that come from outside. `outside` is the user function that code outside of all modules belongs
    to. Values are read, never changed; random state, gradients and buffers are as without it.
    """

    def __init__(
        self,
        modules: nn.Module | Mapping[str, nn.Module],
        *,
        inputs: object = None,
        outside: str = "loss",
        device: str = "cpu",
    ) -> None:
        self._paths = ModulePaths(modules)
        stack = ModuleStack(self._paths, entered=self._enter_thread, left=self._leave_thread)
        known = KnownTensors(self._paths, inputs)
        self._recording = Recording(stack=stack, known=known, outside=outside, device=device)
        self._calls = TorchCalls(device)
        self._threads = threading.local()
        self._seen_in_threads: list[TorchCalls] = []
        self._exit = ExitStack()

    def __enter__(self) -> Tracer:
        with ExitStack() as stack:
            # Under a dispatch mode Dynamo would run compiled code eagerly anyway, after compiling in vain.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(self._recording.stack)
            stack.enter_context(self._calls)
            stack.enter_context(OpTracer(self._recording, self._calls))
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def phase(self, name: str | None) -> None:
        """Name what runs from now on outside of backward (`unscale`, `clip`); None: forward and loss again."""
        self._recording.phase = name

    @property
    def autocast_seen(self) -> bool:
        """Whether anything ran under autocast so far."""
        return any(calls.autocast_seen for calls in (self._calls, *self._seen_in_threads))

    def blame(self, accepted: frozenset[Site] = frozenset()) -> Blame:
        """The reading of what was recorded."""
        return Blame(self._recording.tape, device=self._recording.device, accepted=accepted)

    def locate(self, error: BaseException) -> ErrorPlace:
        """Where an exception that left the context came from."""
        place = locate_error(
            error,
            self._paths,
            failures=self._recording.failures,
            api=self._calls.failed,
            autocast_seen=self.autocast_seen,
            outside=self._recording.outside,
        )
        repeated = self._recording.repeated
        if place.problem == "recompute_without_autocast" and not place.traced and repeated is not None:
            # torch compares what was saved after the repetition: the traceback ends in its own code.
            line = str(repeated.line) if repeated.line is not None else place.line
            source = repeated.line.text if repeated.line is not None else place.source
            module = repeated.module if repeated.module is not None else place.module
            place = replace(place, phase="forward", module=module, op=None, line=line, source=source, recomputed=True)
        return place

    @property
    def ops(self) -> int:
        """Number of ops seen."""
        return self._recording.tape.ops

    # Threads of the user's own have neither mode; they get both for the length of their outermost module call. The
    # autograd engine's threads (one per GPU) inherit both.

    def _enter_thread(self) -> None:
        if current_node() is not None:
            return
        calls = TorchCalls(self._recording.device)
        modes = ExitStack()
        modes.enter_context(calls)
        modes.enter_context(OpTracer(self._recording, calls))
        self._threads.modes = modes
        self._seen_in_threads.append(calls)

    def _leave_thread(self) -> None:
        modes: ExitStack | None = getattr(self._threads, "modes", None)
        if modes is not None:
            self._threads.modes = None
            modes.close()
