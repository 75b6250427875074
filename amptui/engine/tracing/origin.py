"""The answer to "where did it begin?": plain values that can be kept, compared and shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from amptui.engine.tracing.tape import Cause, Event, Flush, Phase, Place
from amptui.engine.tracing.values import Kind, TensorFacts


@dataclass(frozen=True, kw_only=True)
class Link:
    """One station on the way from an origin to a result."""

    phase: Phase
    module: str
    op: str
    line: str | None
    kinds: tuple[Kind, ...]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A place where something became non-finite (or was rounded to zero) that then reached a result."""

    #: `forward`, `loss`, `backward`, a phase named by the caller, or a source: `input`, `weights`, `buffer`,
    #: `constant` (a tensor from outside of the run), `memory` (never written).
    phase: Phase
    #: Dotted path; "" is the root; the name of the user function (`loss`) outside of all modules.
    module: str
    #: The op's torch name, in backward that of the forward op; "" for a source.
    op: str
    #: `file:line` of the user's code, in backward that of the forward op.
    line: str | None
    #: The text of that line.
    source: str = ""
    #: `unknown` above op level.
    cause: Cause | Literal["underflow", "unknown"]
    kinds: tuple[Kind, ...] = ()
    #: Of the result.
    dtype: str | None = None
    inputs: tuple[TensorFacts, ...] = ()
    output: TensorFacts | None = None
    #: For a source: `input x`, `weights fc.bias`, `buffer bn.running_var`.
    tensor: str | None = None
    #: Largest magnitude of the result in float64, where the dtype alone is at fault.
    exact: float | None = None
    #: The ATen op that ran (in backward: one of those that compute the gradient of `op`).
    aten: str = ""
    #: The torch function or method that was called, which may be made of several ops.
    api: str | None = None
    #: The autograd node, in backward.
    node: str | None = None
    #: Part of a forward that backward repeated.
    recomputed: bool = False
    #: dtype of the autocast that was on, or None.
    autocast: str | None = None
    #: The dtype that CUDA's autocast would run the op in, if another one than here.
    cuda: str | None = None
    #: The modules that made the half values that went in, nearest first: with these in FP32 the op runs in float32.
    #: Empty where autocast runs the op itself in half.
    makers: tuple[str, ...] = ()
    #: What led here: a value rounded to zero before a log or division, a deliberate infinity before a softmax.
    root: Origin | None = None
    #: For `underflow`: how values were lost (`all`, `some`, `scalar`, `one`), and the literal that is zero here.
    how: str | None = None
    scalar: float | None = None
    #: From here to the result: conversions (inf to NaN) and the last op.
    chain: tuple[Link, ...] = ()
    #: Names of the results that it reaches.
    reaches: tuple[str, ...] = ()
    #: Where it turned finite again, for a hidden one.
    healed_by: Link | None = None

    @property
    def deliberate(self) -> bool:
        """Whether somebody wrote the infinity on purpose (and it reached a result all the same)."""
        return self.cause == "deliberate"

    @property
    def is_source(self) -> bool:
        """Whether the value was there before any traced op."""
        return self.tensor is not None


def link_of(place: Place, kinds: frozenset[Kind] = frozenset()) -> Link:
    """The place as a station of a chain."""
    line = str(place.line) if place.line is not None else None
    return Link(phase=place.phase, module=place.module, op=place.op, line=line, kinds=tuple(sorted(kinds)))


def origin_of_flush(flush: Flush) -> Origin:
    """The loss of small values as an origin of what follows from it."""
    origin = _origin_at(flush.place, "underflow")
    return replace(origin, dtype=flush.dtype, how=flush.how, scalar=flush.scalar)


def origin_of_event(
    event: Event,
    *,
    cause: Cause | None = None,
    cuda: str | None = None,
    root: Origin | None = None,
    chain: tuple[Link, ...] = (),
    reaches: tuple[str, ...] = (),
    healed_by: Link | None = None,
) -> Origin:
    """The event in plain values."""
    output = event.output
    return replace(
        _origin_at(event.place, cause or event.cause),
        kinds=tuple(sorted(event.kinds)),
        dtype=output.dtype if output is not None else None,
        inputs=event.inputs,
        output=output,
        tensor=output.name if output is not None else None,
        exact=event.exact,
        makers=event.makers,
        cuda=cuda,
        root=root,
        chain=chain,
        reaches=reaches,
        healed_by=healed_by,
    )


def _origin_at(place: Place, cause: Cause | Literal["underflow"]) -> Origin:
    return Origin(
        phase=place.phase,
        module=place.module,
        op=place.op,
        line=str(place.line) if place.line is not None else None,
        source=place.line.text if place.line is not None else "",
        cause=cause,
        aten=place.aten,
        api=place.api,
        node=place.node,
        recomputed=place.recomputed,
        autocast=place.autocast,
    )
