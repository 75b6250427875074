"""Reads what FP32 computes as what it will be in a smaller dtype."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from amptui.engine.precision_map import OpDtypes
from amptui.engine.tracing.schema import is_sentinel_cast, makes_half
from amptui.engine.tracing.taint import StorageMarks
from amptui.engine.tracing.values import extent, is_finite, real_values
from amptui.engine.watched_ops import OpKey, WatchedOp
from amptui.findings import foreseen
from amptui.findings.foreseen import EXPONENTS, LOWEST_EXPONENT, RANGES, Gradients, PlaceForecast, Why

#: So many values of a result are counted, evenly spread; its extremes are exact.
SAMPLE = 1024
_SOFTMAX = ("_softmax", "_log_softmax", "_safe_softmax")


@dataclass(frozen=True)
class Moment:
    """A forward of the training step, or an evaluation case."""

    step: int | None = None
    #: Index among the cases, and its id.
    index: int | None = None
    case: str | None = None


class Values:
    """A result's values, read once for all dtypes."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @functools.cached_property
    def finite(self) -> Tensor | None:
        """Real values with zeros for what is not finite in FP32 itself; None where there is nothing to read."""
        values = real_values(self.tensor)
        span = extent(self.tensor) if values is not None else None
        if values is None or span is None:
            return None
        return values if is_finite(span) else torch.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)

    @functools.cached_property
    def span(self) -> tuple[float, float]:
        return (extent(self.finite) if self.finite is not None else None) or (0.0, 0.0)

    @functools.cached_property
    def exponents(self) -> Tensor:
        """How many values lie at each power of two, by a sample that stands for all of them."""
        assert self.finite is not None
        flat = self.finite.detach().reshape(-1)
        stride = max(1, flat.numel() // SAMPLE)
        sample = flat[::stride].to("cpu", torch.float64).abs()
        bins = (torch.log2(sample[sample > 0.0]).floor().long() - LOWEST_EXPONENT).clamp(0, EXPONENTS - 1)
        return torch.bincount(bins, minlength=EXPONENTS).double() * stride

    def largest_in(self, dtype: str) -> float:
        """The largest magnitude; a mask's constant that becomes -inf on purpose does not count."""
        span, end = self.span, RANGES[dtype].largest
        if span[0] < -end and self.finite is not None and is_sentinel_cast(self.finite, -end):
            kept = torch.where(self.finite < -end, torch.zeros_like(self.finite), self.finite)
            span = extent(kept) or (0.0, 0.0)
        return max(abs(span[0]), abs(span[1]))


@dataclass(eq=False)
class _Place:
    """What was read at one op and place."""

    key: OpKey
    why: Why
    dtype: str
    results: int = 0
    largest: float = 0.0
    #: Of the first overflow, else of the largest value.
    moment: Moment = field(default_factory=Moment)
    #: Rises with every first overflow.
    order: int | None = None
    #: In backward: the largest magnitude of every moment.
    by_moment: dict[Moment, float] = field(default_factory=dict)
    #: In forward: the moments at which it overflows.
    overflowing: set[Moment] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.exponents = torch.zeros(EXPONENTS, dtype=torch.float64)

    def told(self) -> PlaceForecast:
        return PlaceForecast(
            phase="backward" if self.key.phase == "backward" else "forward",
            module=self.key.module,
            op=self.key.op,
            line=self.key.line,
            dtype=self.dtype,
            why=self.why,
            results=self.results,
            largest=self.largest,
            headroom=foreseen.headroom(self.largest, self.dtype),
            lost=foreseen.lost_share(self.exponents.tolist(), self.dtype),
            step=self.moment.step,
            case=self.moment.case,
        )


@dataclass(frozen=True, kw_only=True)
class GradientForecast:
    """What was read of backward.

    `overflowing` iterations are skipped at any loss scale because of their forward, and of the others `beyond` because
    their gradients overflow at scale 1 already. `gradients` are those of the rest: None where nothing of backward is
    computed in the dtype, or nothing is left. `limited_by` is the place of the largest, where that is what limits.
    """

    overflowing: int
    beyond: int
    gradients: Gradients | None = None
    limited_by: PlaceForecast | None = None


class Reader:
    """Gathers, op by op, what FP32's values will be in `dtype`.

    `training` and `cases` are what one run of each under the policy showed. An op that did not run there (a branch that
    another batch takes) is read as half for now; `settle` asks for the moment at which it ran.
    """

    def __init__(self, dtype: str, training: OpDtypes, cases: OpDtypes) -> None:
        self.dtype = dtype
        self._training, self._cases = training, cases
        self._places: dict[tuple[OpKey, Why, str], _Place] = {}
        self._unknown: dict[OpKey, Moment] = {}
        self._ordinals: Counter[OpKey] = Counter()
        #: Memory that will hold half values; that of gradients; that of the one which backward begins with.
        self._half, self._gradients, self._root = StorageMarks(), StorageMarks(), StorageMarks()
        #: What the half ops of backward get of the gradient that backward begins with: the loss scale itself.
        self._seed = 0.0
        self._moment = Moment()
        self._overflows = 0

    def begin(self, moment: Moment) -> None:
        self._moment = moment
        self._ordinals.clear()
        self._half, self._gradients, self._root = StorageMarks(), StorageMarks(), StorageMarks()

    def note(self, op: WatchedOp, values: Callable[[Tensor], Values]) -> None:
        results = op.floats
        if not results or results[0].dtype not in (torch.float32, torch.float64):
            return
        dtype = self._dtype_of(op)
        self._check_rows(op)
        if op.key.phase == "backward":
            for tensor in results:
                self._gradients.put(tensor, ())
        elif op.facts.aten == "ones_like" and results[0].dim() == 0:
            self._root.put(results[0], ())
        if dtype is None or dtype not in RANGES:
            return
        for tensor in self._cast_by(op):
            self._read(replace(op.key, op="to"), "cast", dtype, values(tensor))
        for tensor in results:
            self._half.put(tensor, ())
            self._read(op.key, "result", dtype, values(tensor))

    def _cast_by(self, op: WatchedOp) -> list[Tensor]:
        """What goes into a half op as float32: all that autocast casts, and in backward the gradients."""
        fresh = [t for t in op.tensors if t.dtype == torch.float32 and self._half.get(t) is None]
        if op.key.phase == "forward":
            return fresh if makes_half(op.facts.aten) else []
        if any(self._root.get(tensor) is not None for tensor in fresh):
            self._seed = 1.0
        return [tensor for tensor in fresh if self._gradients.get(tensor) is not None]

    def _dtype_of(self, op: WatchedOp) -> str | None:
        key, in_case = op.key, self._moment.case is not None
        ordinal = self._ordinals[key]
        self._ordinals[key] += 1
        first, second = (self._cases, self._training) if in_case else (self._training, self._cases)
        known = first.dtype_of(key, ordinal) or second.dtype_of(key, ordinal)
        if known is not None or key.line is None:
            return known
        # A branch that the watched run did not take: half if what goes in is half, to be settled later.
        floats = [t for t in op.tensors if t.is_floating_point() and t.dim()]
        if not makes_half(op.facts.aten) and not (floats and all(self._half.get(t) is not None for t in floats)):
            return None
        self._unknown.setdefault(key, self._moment)
        return self.dtype

    def _read(self, key: OpKey, why: Why, dtype: str, values: Values) -> None:
        if values.finite is None:
            return
        largest = values.largest_in(dtype)
        place = self._place(key, why, dtype)
        place.results += 1
        if foreseen.overflows(largest, dtype):
            self._note_overflow(place)
        if largest > place.largest:
            place.largest = largest
            if place.order is None:
                place.moment = self._moment
        if key.phase == "backward":
            place.by_moment[self._moment] = max(largest, place.by_moment.get(self._moment, 0.0))
        place.exponents += values.exponents

    def _check_rows(self, op: WatchedOp) -> None:
        """A softmax over a row of which nothing will be left: each value of it lies below the dtype's range."""
        if op.facts.aten not in _SOFTMAX or self._half.get(op.args[0]) is None:
            return
        scores, end = op.args[0], RANGES[self.dtype].largest
        span = extent(scores)
        if span is None or span[0] >= -end:
            return
        finite = torch.isfinite(scores)
        if bool(((scores < -end).all(op.args[1]) & finite.any(op.args[1])).any()):
            place = self._place(op.key, "row", self.dtype)
            place.results += 1
            place.largest = max(place.largest, float(scores[finite].abs().max()))
            self._note_overflow(place)

    def _place(self, key: OpKey, why: Why, dtype: str) -> _Place:
        return self._places.setdefault((key, why, dtype), _Place(key, why, dtype))

    def _note_overflow(self, place: _Place) -> None:
        if place.key.phase != "forward":
            return
        place.overflowing.add(self._moment)
        if place.order is None:
            self._overflows += 1
            place.order, place.moment = self._overflows, self._moment

    # What was not known at first.

    def unknown(self, most: int) -> list[Moment]:
        """The moments at which ops ran whose dtype is not known, those that overflow first."""
        over = [place.key for place in self._places.values() if place.order is not None]
        keys = sorted(self._unknown, key=lambda key: key not in over)
        return list(dict.fromkeys(self._unknown[key] for key in keys))[:most]

    def settle(self, shown: list[OpDtypes]) -> None:
        """Keeps of the ops that were not known those that these runs show to be half."""
        for (key, why, dtype), place in list(self._places.items()):
            asked = key if why == "result" else None
            if asked in self._unknown and not any(dtypes.dtype_of(key, 0) == place.dtype for dtypes in shown):
                del self._places[key, why, dtype]

    # The results.

    def overflows(self) -> tuple[PlaceForecast, ...]:
        """In the order in which a trial meets them."""
        over = [place for place in self._places.values() if place.order is not None]
        return tuple(place.told() for place in sorted(over, key=lambda place: place.order or 0))

    def places(self, most: int) -> tuple[PlaceForecast, ...]:
        """The smallest headroom first."""
        told = sorted((place.told() for place in self._places.values()), key=lambda place: place.headroom)
        return tuple(told[:most])

    def gradients(self, *, half_loss: bool) -> GradientForecast:
        """The gradients that will be computed in this dtype, of the iterations that a loss scale can save.

        With `half_loss` the gradient that backward begins with, which is the scale itself, has to fit as well.
        """
        seed = 1.0 if half_loss else self._seed
        backward = [p for p in self._places.values() if p.key.phase == "backward" and p.dtype == self.dtype]
        ran = {moment for place in backward for moment in place.by_moment}
        overflowing = {m for place in self._places.values() for m in place.overflowing if m.step is not None}
        beyond = {
            moment
            for place in backward
            for moment, reached in place.by_moment.items()
            if foreseen.overflows(reached, self.dtype) and moment not in overflowing
        }
        told = GradientForecast(overflowing=len(overflowing), beyond=len(beyond))
        if not (backward or seed) or (ran and ran <= overflowing | beyond):
            return told
        counts = torch.stack([place.exponents for place in backward]).sum(0).tolist() if backward else []
        reaches = (
            (reached, place)
            for place in backward
            for moment, reached in place.by_moment.items()
            if moment not in beyond and moment not in overflowing
        )
        largest, top = max(reaches, key=lambda reach: reach[0], default=(0.0, None))
        limits = top is not None and largest > 0.0 and largest * foreseen.RESERVE >= seed
        return replace(
            told,
            gradients=Gradients(largest=largest, exponents=counts, seed=seed),
            limited_by=top.told() if top is not None and limits else None,
        )
