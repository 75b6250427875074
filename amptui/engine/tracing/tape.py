"""What a traced run leaves behind: the non-finite results in the order they appeared, and how they hang together."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from amptui.engine.tracing.modules import ModulePaths, plain_path
from amptui.engine.tracing.source import Line
from amptui.engine.tracing.taint import StorageMarks, storage_key
from amptui.engine.tracing.values import Kind, TensorFacts

#: Where an event belongs. `input`, `weights`, `buffer`, `constant` and `memory` (never written) are sources: the
#: value was there before any traced op. Others are the phase that was running; callers may name phases of their own.
Phase = str
#: Why a non-finite value was born.
#: `overflow`: the same op on the same inputs in float64 is finite; `pole`: its inputs are finite and float64 fails as
#: well (log of zero, division by zero, root of a negative number); `invalid`: made of infinities (inf - inf, 0 * inf);
#: `deliberate`: a literal or a mask constant; `source`: it was there before; `carried`: not born here.
Cause = Literal["overflow", "pole", "invalid", "deliberate", "source", "carried"]

SOURCES = ("input", "weights", "buffer", "constant", "memory")


@dataclass(frozen=True, slots=True)
class Place:
    """Where an op ran. In backward, `op`, `module` and `line` are those of the forward op whose gradient this is."""

    phase: Phase
    module: str
    op: str
    line: Line | None
    #: The ATen op that ran.
    aten: str = ""
    #: The torch function or tensor method that was called, which may be made of several ops.
    api: str | None = None
    #: Name of the autograd node in backward.
    node: str | None = None
    #: Part of a forward that backward repeated (activation checkpointing).
    recomputed: bool = False
    #: dtype of the autocast that was on, or None.
    autocast: str | None = None
    #: False in a thread of the user's own.
    home_thread: bool = True

    @property
    def site(self) -> tuple[Phase, str, str, str]:
        """What identifies the place across runs of the same code."""
        return self.phase, self.module, self.op, str(self.line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A non-finite result, or a non-finite tensor that was there before."""

    #: Position on the tape.
    id: int = -1
    place: Place
    kinds: frozenset[Kind]
    cause: Cause
    #: Events whose values went in.
    parents: tuple[int, ...] = ()
    inputs: tuple[TensorFacts, ...] = ()
    output: TensorFacts | None = None
    #: The largest magnitude of the result in float64, where that is finite.
    exact: float | None = None
    #: The modules that made the half values that went in; empty where the op makes half values itself.
    makers: tuple[str, ...] = ()
    #: Values rounded to zero (ids in `Tape.flushes`) that a pole was hit through.
    flushes: tuple[int, ...] = ()

    @property
    def born(self) -> bool:
        """Whether a kind of non-finite value appeared here that no input had."""
        return self.cause != "carried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """A result that is exactly 0 (or exactly 1) only because the dtype is too coarse.

    `how`: `all` every entry became zero, `some` some did, `scalar` a small literal such as an eps is zero in this
    dtype, `one` a probability became exactly 1.
    """

    #: Position on the tape.
    id: int = -1
    place: Place
    how: Literal["all", "some", "scalar", "one"]
    dtype: str
    scalar: float | None = None


@dataclass
class Tape:
    """The record of one traced run. Filled by `dispatch`, read by `blame`."""

    events: list[Event] = field(default_factory=list)
    flushes: list[Flush] = field(default_factory=list)
    #: Which storages hold non-finite values, and from which events.
    taints: StorageMarks = field(default_factory=StorageMarks)
    #: Which storages hold zeros that came out of a flush.
    zeros: StorageMarks = field(default_factory=StorageMarks)
    #: Memory from `empty` and its kin.
    unwritten: StorageMarks = field(default_factory=StorageMarks)
    #: Event id to the first place where a finite result came out although this event's values went in.
    healed: dict[int, Place] = field(default_factory=dict)
    #: Number of ops seen.
    ops: int = 0
    #: Events that are or come from a birth that nobody meant.
    faulty: set[int] = field(default_factory=set)

    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, event: Event) -> Event:
        """Append, from any thread; returns the event with its id."""
        with self._lock:
            event = replace(event, id=len(self.events))
            self.events.append(event)
        if event.cause not in ("carried", "deliberate") or not self.faulty.isdisjoint(event.parents):
            self.faulty.add(event.id)
        return event

    def add_flush(self, flush: Flush) -> int:
        """Append, from any thread; returns the id."""
        with self._lock:
            flush = replace(flush, id=len(self.flushes))
            self.flushes.append(flush)
        return flush.id


class KnownTensors:
    """Names of the tensors that exist before the run: parameters, buffers and whatever the caller calls inputs."""

    def __init__(self, paths: ModulePaths, inputs: object = None) -> None:
        self._names: dict[int, tuple[Phase, str, Tensor]] = {}
        for prefix, root in paths.roots.items():
            for name, parameter in root.named_parameters(prefix=prefix):
                self._add("weights", plain_path(name), parameter)
            for name, buffer in root.named_buffers(prefix=prefix):
                self._add("buffer", plain_path(name), buffer)
        for name, tensor in named_tensors(inputs):
            self._add("input", name, tensor)

    def _add(self, phase: Phase, name: str, tensor: Tensor) -> None:
        key = storage_key(tensor)
        if key is not None:
            self._names.setdefault(key, (phase, name, tensor))

    def find(self, tensor: Tensor) -> tuple[Phase, str] | None:
        """Phase and name, or None for a tensor made by the run or kept elsewhere."""
        key = storage_key(tensor)
        found = self._names.get(key) if key is not None else None
        return None if found is None else found[:2]


def named_tensors(value: object, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors in nested containers with a readable path: `x`, `images.0`.

    Mappings, sequences, named tuples and dataclasses are entered, as `nested.map_tensors` does.
    """
    if isinstance(value, Tensor):
        yield name, value
        return
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = zip(value._fields, value, strict=True)
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = enumerate(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    for key, part in parts:
        yield from named_tensors(part, f"{name}.{key}" if name else str(key))
