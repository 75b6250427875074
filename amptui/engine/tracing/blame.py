"""From a tape to origins: which births reach a result, what led to them, and which turned finite again unseen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from torch import Tensor

from amptui.engine.tracing.cuda_rules import cuda_difference
from amptui.engine.tracing.origin import Link, Origin, link_of, origin_of_event, origin_of_flush
from amptui.engine.tracing.tape import SOURCES, Event, Tape
from amptui.engine.tracing.values import Kind, extent, is_finite

#: A place (for a source also the tensor) and what was born there, comparable across runs.
Site = tuple[tuple[str, str, str, str], str | None, tuple[Kind, ...]]

#: exp(-inf) is 0 and max(-inf, x) is x: what a masked value is for.
_TAKES_MINUS_INF = {
    "softmax", "log_softmax", "exp", "exp2", "sigmoid", "logsumexp", "relu", "relu_", "maximum", "max", "amax",
    "clamp", "clamp_", "clamp_min", "clamp_min_", "topk", "sort", "argmax", "scaled_dot_product_attention", "tanh",
    "gelu", "silu", "elu", "softplus", "log_sigmoid_forward", "multinomial", "gt", "lt", "ge", "le", "eq", "ne",
}  # fmt: skip
#: Ops that choose entries: what they leave behind was not wanted.
_CHOOSES = {
    "where", "masked_fill", "masked_fill_", "nan_to_num", "nan_to_num_", "index", "index_select", "gather",
    "masked_select", "nansum", "nanmean", "nanmedian", "index_put_", "index_copy_", "masked_scatter", "slice_scatter",
    "select_scatter", "scatter",
}  # fmt: skip


class Blame:
    """Reads one tape. `accepted` are sites of infinities that a healthy run has as well."""

    def __init__(self, tape: Tape, *, device: str = "cpu", accepted: frozenset[Site] = frozenset()) -> None:
        self._tape = tape
        self._device = device
        self._accepted = accepted
        #: By event: whether a fault, or any birth, lies behind it. Parents come before their children.
        self._fault_behind: list[bool] = []
        self._birth_behind: list[bool] = []
        for event in tape.events:
            parents = [tape.events[i] for i in event.parents]
            self._fault_behind.append(any(self._is_fault(e) or self._fault_behind[e.id] for e in parents))
            self._birth_behind.append(any(e.born or self._birth_behind[e.id] for e in parents))

    def origins(self, results: Mapping[str, Tensor | None]) -> tuple[Origin, ...]:
        """The origins of what is non-finite in `results`, in the order in which they appeared.

        A birth with another birth behind it is a symptom (the softmax that turns inf into NaN). Deliberate infinities
        are looked through; one is blamed only where nothing else reaches the result.
        """
        blamed: dict[int, list[str]] = {}
        paths: dict[int, tuple[Link, ...]] = {}
        for name, tensor in results.items():
            start = self._start(tensor)
            for event in self._blamed(start):
                blamed.setdefault(event.id, []).append(name)
                paths.setdefault(event.id, self._chain(event, start))
        found: dict[object, Origin] = {}
        for i, names in sorted(blamed.items()):
            event = self._tape.events[i]
            origin = self._origin(event, chain=paths[i], reaches=tuple(names))
            key = (event.place.site, origin.tensor)
            if key in found:  # the same line again: a recomputed block, another micro-batch, a loop
                more = tuple(n for n in names if n not in found[key].reaches)
                found[key] = replace(found[key], reaches=found[key].reaches + more)
            else:
                found[key] = origin
        return tuple(found.values())

    def healed(self, results: Mapping[str, Tensor | None]) -> tuple[Origin, ...]:
        """Births that reach no result because a later op made them finite: x / inf is 0, tanh(inf) is 1.

        Masks that a softmax takes, and entries that a `where` or an index leaves out, are no such thing.
        """
        reached = set()
        for tensor in results.values():
            reached |= self._ancestors(self._start(tensor))
        found: dict[object, Origin] = {}
        for event in self._tape.events:
            if event.id in reached or not self._is_fault(event) or event.cause == "source":
                continue
            if self._fault_behind[event.id]:
                continue
            where = self._healed_at(event)
            if where is not None:
                found.setdefault(event.place.site, self._origin(event, healed_by=where))
        return tuple(found.values())

    def standing(self) -> tuple[Origin, ...]:
        """Births, earliest first, whose values or what came of them were not yet made finite when the run stopped."""
        found: dict[object, Origin] = {}
        for event in self._tape.events:
            if not self._is_fault(event) or event.cause == "source" or self._fault_behind[event.id]:
                continue
            if any(i not in self._tape.healed for i in self._line_of_descent(event)):
                found.setdefault(event.place.site, self._origin(event))
        return tuple(found.values())

    def vanished(self, gradients: Mapping[str, Tensor | None]) -> tuple[Origin, ...]:
        """For gradients that are zero everywhere: the first ops that rounded all of a gradient to zero."""
        flushes = self._tape.flushes
        firsts: dict[object, int] = {}
        names: dict[object, list[str]] = {}
        for name, tensor in gradients.items():
            if tensor is None or extent(tensor) != (0.0, 0.0):
                continue
            mark = self._tape.zeros.get(tensor)
            ids = [i for i in mark.ids if flushes[i].place.phase == "backward"] if mark is not None else []
            if ids:
                site = flushes[min(ids)].place.site
                firsts[site] = min(*ids, firsts.get(site, ids[0]))
                names.setdefault(site, []).append(name)
        return tuple(
            replace(origin_of_flush(flushes[i]), reaches=tuple(names[site]))
            for site, i in sorted(firsts.items(), key=lambda item: item[1])
        )

    def sites(self) -> frozenset[Site]:
        """All births of this run: taken from a healthy one, they are what its author meant or can live with."""
        return frozenset(_site(event) for event in self._tape.events if event.born)

    def unexplained(self, results: Mapping[str, Tensor | None]) -> tuple[str, ...]:
        """Names of non-finite results that no traced op accounts for."""
        return tuple(name for name, t in results.items() if _is_bad(t) and not self._start(t))

    # One event

    def _is_fault(self, event: Event) -> bool:
        return event.born and event.cause != "deliberate" and _site(event) not in self._accepted

    def _origin(self, event: Event, **more: object) -> Origin:
        place = event.place
        dtypes = tuple(facts.dtype for facts in event.inputs)
        cuda = cuda_difference(place.aten, place.autocast, self._device, dtypes) if place.phase not in SOURCES else None
        return origin_of_event(event, cuda=cuda, root=self._root(event), **more)  # type: ignore[arg-type]

    def _root(self, event: Event) -> Origin | None:
        """What led to the birth without being at fault by itself."""
        if event.flushes:
            return origin_of_flush(self._tape.flushes[event.flushes[0]])
        behind = [self._tape.events[i] for i in self._ancestors(event.parents)]
        births = [e for e in behind if e.born]
        return origin_of_event(min(births, key=lambda e: e.id)) if births else None

    # The graph

    def _start(self, tensor: Tensor | None) -> frozenset[int]:
        if not _is_bad(tensor):
            return frozenset()
        assert tensor is not None
        mark = self._tape.taints.get(tensor)
        return mark.ids if mark is not None else frozenset()

    def _ancestors(self, ids: Iterable[int]) -> set[int]:
        """These events and all that went into them."""
        found: set[int] = set()
        waiting = list(ids)
        while waiting:
            i = waiting.pop()
            if i not in found:
                found.add(i)
                waiting.extend(self._tape.events[i].parents)
        return found

    def _blamed(self, start: frozenset[int]) -> list[Event]:
        reachable = [self._tape.events[i] for i in sorted(self._ancestors(start))]
        faults = [e for e in reachable if self._is_fault(e) and not self._fault_behind[e.id]]
        return faults or [e for e in reachable if e.born and not self._birth_behind[e.id]]

    def _chain(self, event: Event, start: frozenset[int]) -> tuple[Link, ...]:
        """The shortest way from the event to the result: its births, and the op that gave the result.

        For what was there before the run it begins with the op that took it in.
        """
        came_from: dict[int, int | None] = dict.fromkeys(sorted(start))
        waiting = sorted(start)
        for i in waiting:
            if i == event.id:
                break
            for parent in self._tape.events[i].parents:
                if parent not in came_from:
                    came_from[parent] = i
                    waiting.append(parent)
        path: list[Event] = []
        step: int | None = event.id
        while step is not None:
            path.append(self._tape.events[step])
            step = came_from[step]
        enters = event.cause in ("source", "deliberate")
        kept = [e for i, e in enumerate(path[1:-1]) if e.born or (enters and i == 0)] + path[1:][-1:]
        return tuple(link_of(e.place, e.kinds) for e in kept)

    def _line_of_descent(self, event: Event) -> set[int]:
        """This event and all that its values went into."""
        found = {event.id}
        for later in self._tape.events[event.id + 1 :]:
            if found.intersection(later.parents):
                found.add(later.id)
        return found

    def _healed_at(self, event: Event) -> Link | None:
        """Where this event or what came of it turned finite in a way that nobody asked for."""
        for i in sorted(self._line_of_descent(event)):
            place = self._tape.healed.get(i)
            if place is None or place.op in _CHOOSES:
                continue
            if place.node is not None and place.site == event.place.site:
                continue  # an intermediate inside the gradient of one op
            kinds = self._tape.events[i].kinds
            if kinds == {"-inf"} and place.op in _TAKES_MINUS_INF:
                continue
            return link_of(place, kinds)
        return None


def _site(event: Event) -> Site:
    name = event.output.name if event.output is not None else None
    return event.place.site, name, tuple(sorted(event.kinds))


def _is_bad(tensor: Tensor | None) -> bool:
    span = extent(tensor) if tensor is not None else None
    return span is not None and not is_finite(span)
