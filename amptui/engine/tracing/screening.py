"""Looks at what one op took and gave: births, carriage and healing of non-finite values, and values lost to zero."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from amptui.engine.tracing import underflow
from amptui.engine.tracing.calls import TorchCalls
from amptui.engine.tracing.exact import in_float64
from amptui.engine.tracing.recording import Recording
from amptui.engine.tracing.schema import Call, is_sentinel_cast, literal_kinds
from amptui.engine.tracing.tape import Cause, Event, Flush, Place
from amptui.engine.tracing.values import Extent, Kind, TensorFacts, dtype_name, extent, facts_of, is_finite, kinds_of

#: Adding is the one family where an infinity of the other sign is news: a fresh overflow on top of a -inf mask.
_KEEPS_SIGN = {"add", "add_", "baddbmm", "cat", "stack", "where", "clamp", "maximum", "minimum"}
#: In-place ops whose infinity from finite inputs is a pole, not a range that was left.
_POLES = ("div", "log", "reciprocal", "rsqrt", "pow")
#: Ops whose integers are numbers made of what went in; an infinity is one as good as any other then.
_MAKES_INTEGERS = {"_to_copy", "copy_"}
#: Ops without poles that leave even float64's range for inputs that float16 can hold.
_BOUNDLESS = {"exp", "exp2", "expm1", "cosh", "sinh", "prod", "cumprod"}


@dataclass(frozen=True, slots=True)
class Before:
    """A written argument as it was before the op wrote it."""

    tensor: Tensor
    span: Extent | None
    kinds: frozenset[Kind]
    ids: frozenset[int]


class Screening:
    """Reads results of ops and keeps the tape."""

    def __init__(self, recording: Recording, calls: TorchCalls) -> None:
        self._recording = recording
        self._calls = calls
        self._tape = recording.tape

    def look(self, call: Call, tensor: Tensor) -> Before:
        """An argument that is about to be written."""
        span = extent(tensor)
        if span is None or is_finite(span):
            return Before(tensor, span, frozenset(), frozenset())
        kinds, ids = self._provenance(call, tensor, span)
        return Before(tensor, span, kinds, ids)

    def screen(self, call: Call, results: list[Tensor], inputs: list[Tensor], before: list[Before]) -> None:
        """Look at what an op gave. `before` are those of its inputs that it has overwritten, as they were."""
        event: Event | None = None
        for position, out in enumerate(results):
            span = extent(out)
            if span is None:
                if call.facts.aten in _MAKES_INTEGERS and self._tape.taints:
                    self._heal(call, inputs, before)
                continue
            if is_finite(span):
                lost = self._finite(call, out, span, inputs, before) if position == 0 else ()
                if call.facts.written:
                    self._tape.taints.clear(out)
                    self._tape.zeros.clear(out)
                if lost:
                    self._tape.zeros.put(out, lost)
                continue
            kinds = kinds_of(out, span)
            if event is None or position >= call.facts.scratch_from:
                event = self._non_finite(call, out, kinds, inputs, before, position)
            self._tape.taints.put(out, [event.id], kinds)

    def _provenance(
        self, call: Call, tensor: Tensor, span: Extent | None = None
    ) -> tuple[frozenset[Kind], frozenset[int]]:
        """The non-finite kinds in a tensor and the events they come from."""
        mark = self._tape.taints.get(tensor)
        if mark is not None and mark.covers(tensor):
            return mark.kinds, mark.ids
        kinds = kinds_of(tensor, span)
        if not kinds:
            return kinds, frozenset()
        if mark is not None:
            return kinds, mark.ids
        event = self._source(call, tensor, kinds)
        self._tape.taints.put(tensor, [event.id], kinds)
        return kinds, frozenset([event.id])

    def _source(self, call: Call, tensor: Tensor, kinds: frozenset[Kind]) -> Event:
        """A non-finite tensor that no traced op made. One without a name has the place of the op that took it in."""
        known = self._recording.known.find(tensor)
        if known is None:
            known = ("constant" if self._tape.unwritten.get(tensor) is None else "memory"), ""
        phase, name = known
        only_minus_inf = kinds == {"-inf"}
        meant = (phase in ("input", "buffer") and only_minus_inf) or (phase == "constant" and "nan" not in kinds)
        place = Place(phase=phase, module="" if phase == "input" else name.rpartition(".")[0], op="", line=None)
        if not name:
            taken = self._recording.place(call.facts, self._calls)
            place = replace(place, module=taken.module, op=taken.op, line=taken.line)
        return self._tape.add(
            Event(
                place=place,
                kinds=kinds,
                cause="deliberate" if meant else "source",
                output=facts_of(tensor, f"{phase} {name}".strip()),
            )
        )

    def _finite(
        self, call: Call, out: Tensor, span: Extent, inputs: list[Tensor], before: list[Before]
    ) -> Collection[int]:
        """Note what was healed; returns the flushes that zeros in this finite result come from."""
        tape = self._tape
        if tape.taints:
            self._heal(call, inputs, before)
        touches = underflow.touches_zero(span)
        if not touches and span[1] != 1.0:
            return ()
        ids: set[int] = self._zeros_in(inputs) if touches and tape.zeros else set()
        lost = underflow.rounding(call, out, span)
        if lost is not None:
            how, scalar = lost
            place = self._recording.place(call.facts, self._calls)
            ids.add(tape.add_flush(Flush(place=place, how=how, dtype=dtype_name(out.dtype), scalar=scalar)))
        return ids

    def _heal(self, call: Call, inputs: list[Tensor], before: list[Before]) -> None:
        healed = self._tape.healed
        overwritten = {id(was.tensor): was for was in before}
        gone: set[int] = set()
        for tensor in inputs:
            was = overwritten.get(id(tensor))
            if was is not None:
                gone |= was.ids
                continue
            mark = self._tape.taints.get(tensor)
            if mark is not None and any(i not in healed for i in mark.ids) and self._provenance(call, tensor)[0]:
                gone |= mark.ids
        gone.difference_update(healed)
        if gone:
            place = self._recording.place(call.facts, self._calls)
            healed.update(dict.fromkeys(gone, place))

    def _zeros_in(self, inputs: list[Tensor]) -> set[int]:
        marks = (self._tape.zeros.get(tensor) for tensor in inputs)
        return {i for mark in marks if mark is not None for i in mark.ids}

    def _non_finite(
        self,
        call: Call,
        out: Tensor,
        kinds: frozenset[Kind],
        inputs: list[Tensor],
        before: list[Before],
        position: int,
    ) -> Event:
        tape = self._tape
        overwritten = {id(was.tensor): was for was in before}
        went_in: set[Kind] = set()
        parents: set[int] = set()
        for tensor in inputs:
            was = overwritten.get(id(tensor))
            of_input, ids = (was.kinds, was.ids) if was is not None else self._provenance(call, tensor)
            went_in |= of_input
            parents |= ids
        new = kinds - went_in
        if "nan" not in new and went_in & {"inf", "-inf"} and call.facts.aten not in _KEEPS_SIGN:
            new = frozenset()  # a sign that changed is no birth
        cause: Cause = "carried"
        exact: float | None = None
        if new:
            cause, exact = self._cause(call, out, new, bool(parents), position)
        detailed = cause in ("overflow", "pole", "invalid")
        place = self._recording.place(call.facts, self._calls)
        event = Event(
            place=place,
            kinds=kinds,
            cause=cause,
            parents=tuple(sorted(parents)),
            inputs=tuple(self._facts(t, overwritten.get(id(t))) for t in inputs) if detailed else (),
            output=facts_of(out) if detailed else _outline(out, kinds),
            exact=exact,
            makers=self._recording.makers(place, inputs) if detailed and tape.faulty.isdisjoint(parents) else (),
            flushes=tuple(sorted(self._zeros_in(inputs))) if cause == "pole" and tape.zeros else (),
        )
        return tape.add(event)

    def _facts(self, tensor: Tensor, was: Before | None) -> TensorFacts:
        known = self._recording.known.find(tensor)
        name = " ".join(known) if known is not None else None
        if was is None:
            return facts_of(tensor, name)
        low, high = was.span if was.span is not None and not was.kinds else (None, None)
        kinds = tuple(sorted(was.kinds))
        return TensorFacts(
            dtype=dtype_name(tensor.dtype), shape=tuple(tensor.shape), low=low, high=high, kinds=kinds, name=name
        )

    def _cause(
        self, call: Call, out: Tensor, new: frozenset[Kind], from_bad: bool, position: int
    ) -> tuple[Cause, float | None]:
        if position >= call.facts.scratch_from or new <= literal_kinds(call.args, call.kwargs):
            return "deliberate", None
        if _casts_sentinel(call, out, new):
            return "deliberate", None
        wide = in_float64(call)
        if wide and position < len(wide):
            span = extent(wide[position])
            if span is not None and is_finite(span):
                return "overflow", max(abs(span[0]), abs(span[1]))
            if from_bad:
                return "invalid", None
            return ("overflow" if "nan" not in new and call.facts.aten in _BOUNDLESS else "pole"), None
        if from_bad:
            return "invalid", None
        is_pole = "nan" in new or call.facts.aten.startswith(_POLES)
        return ("pole" if is_pole else "overflow"), None


def _outline(tensor: Tensor, kinds: frozenset[Kind]) -> TensorFacts:
    """The facts that cost nothing."""
    return TensorFacts(
        dtype=dtype_name(tensor.dtype), shape=tuple(tensor.shape), low=None, high=None, kinds=tuple(sorted(kinds))
    )


def _casts_sentinel(call: Call, out: Tensor, new: frozenset[Kind]) -> bool:
    if new != {"-inf"} or call.facts.aten not in ("_to_copy", "copy_"):
        return False
    source = call.args[0] if call.facts.aten == "_to_copy" else call.args[1]
    return isinstance(source, Tensor) and is_sentinel_cast(source, float(torch.finfo(out.dtype).min))
