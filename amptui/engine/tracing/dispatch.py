"""The dispatch mode: sees every op below autograd and autocast, and hands what it did to the screening."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from amptui.engine.tracing.backward import current_node
from amptui.engine.tracing.calls import TorchCalls
from amptui.engine.tracing.recording import Failure, Recording
from amptui.engine.tracing.schema import Call, in_training, tensors_in
from amptui.engine.tracing.screening import Before, Screening
from amptui.engine.tracing.values import TensorFacts, dtype_name


class OpTracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches the ops of one thread. Values are read, none is changed: results keep their bits."""

    def __init__(self, recording: Recording, calls: TorchCalls) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recording = recording
        self._calls = calls
        self._screening = Screening(recording, calls)

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        recording = self._recording
        call = Call(func, recording.facts(func), args, kwargs or {})
        recording.tape.ops += 1
        if current_node() is None or torch.is_grad_enabled():
            recording.note(call.facts)
        if call.facts.passive:
            return self._run(call)
        written = call.written()
        statistics = call.statistics()
        looked_at = statistics if call.facts.overwrites else [*written, *statistics]
        before = [self._screening.look(call, t) for t in looked_at]
        out = self._run(call)
        results = tensors_in(out if isinstance(out, (list, tuple)) else [out])
        if call.facts.uninitialised:
            for tensor in results:
                recording.tape.unwritten.put(tensor, ())
        elif statistics:
            self._screen_batch_norm(call, results, statistics, before)
        elif written and "_foreach_" in call.facts.aten:
            for i, tensor in enumerate(written):  # one op for many tensors: each has its own past
                self._screening.screen(call, [tensor], call.row(i), before[i : i + 1])
        else:
            inputs = call.tensors()
            if call.facts.overwrites:
                inputs = _without(inputs, written)
            self._screening.screen(call, [*written, *_without(results, written)], inputs, before)
        return out

    def _run(self, call: Call) -> Any:
        try:
            return call.func(*call.args, **call.kwargs)
        except Exception as error:
            inputs = tuple(
                TensorFacts(dtype=dtype_name(t.dtype), shape=tuple(t.shape), low=None, high=None)
                for t in call.tensors()
            )
            place = self._recording.place(call.facts, self._calls)
            self._recording.failures.append(Failure(place, inputs, error))
            raise

    def _screen_batch_norm(
        self, call: Call, results: list[Tensor], statistics: list[Tensor], before: list[Before]
    ) -> None:
        """In training running statistics are written and not read; in evaluation it is the other way round."""
        inputs = _without(call.tensors(), statistics)
        if in_training(call.facts, call.args):
            self._screening.screen(call, results, inputs, [])
            self._screening.screen(call, statistics, [*inputs, *statistics], before)
        else:
            self._screening.screen(call, results, [*inputs, *statistics], before)


def _without(tensors: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    if not others:
        return tensors
    return [t for t in tensors if all(t is not other for other in others)]
