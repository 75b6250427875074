"""Op level where possible; module level and names where it is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor, nn

from amptui.engine.tracing.backward import available
from amptui.engine.tracing.blame import Blame, Site
from amptui.engine.tracing.errors import ErrorPlace, locate_error
from amptui.engine.tracing.module_level import ModuleTracer, origins_by_name
from amptui.engine.tracing.origin import Origin
from amptui.engine.tracing.tape import named_tensors
from amptui.engine.tracing.trace import Tracer
from amptui.text import text_of

Level = Literal["op", "module", "name"]
Results = Mapping[str, Tensor | None]
#: Whether a run (what it returned, what it raised) shows the failure that is being looked for.
Reproduced = Callable[[object, BaseException | None], bool]

_NOT_UNDER_A_MODE = ("HigherOrderOperator", "higher order", "dispatch mode", "__torch_dispatch__", "TorchDispatchMode")


@dataclass(frozen=True)
class Trace:
    """A run and what was seen of it. Hold it only as long as needed: it keeps the run's value alive."""

    level: Level
    #: What `run` returned; None if it raised.
    value: object
    error: BaseException | None
    error_place: ErrorPlace | None
    #: False if the last level tried did not show the failure either: its origins then mean nothing.
    reproduced: bool
    #: Why finer levels were left.
    notes: tuple[str, ...]
    #: Number of ops seen; 0 above op level.
    ops: int
    #: The user function that code outside of all modules belongs to.
    outside: str
    _tracer: Tracer | ModuleTracer | None

    def blame(
        self,
        *,
        loss: Tensor | None = None,
        outputs: object = None,
        gradients: Results | None = None,
        buffers: Results | None = None,
        accepted: frozenset[Site] = frozenset(),
    ) -> tuple[Origin, ...]:
        """The origins of what is not finite in loss, outputs (any nesting), gradients and buffers (by name).

        Earliest first; empty where all is finite. `accepted` are infinities that a healthy run has too (`sites`).
        """
        results = results_by_name(loss, outputs, gradients, buffers)
        if isinstance(self._tracer, Tracer):
            found = self._tracer.blame(accepted).origins(results)
            return found or origins_by_name(results, outside=self.outside)
        if isinstance(self._tracer, ModuleTracer):
            return self._tracer.origins(results)
        return origins_by_name(results, outside=self.outside)

    def healed(
        self,
        *,
        loss: Tensor | None = None,
        outputs: object = None,
        gradients: Results | None = None,
        accepted: frozenset[Site] = frozenset(),
    ) -> tuple[Origin, ...]:
        """Overflows that no result shows because a later op made them finite again. Op level only."""
        blame = self._blame(accepted)
        return blame.healed(results_by_name(loss, outputs, gradients)) if blame is not None else ()

    def standing(self, *, accepted: frozenset[Site] = frozenset()) -> tuple[Origin, ...]:
        """What was not finite when the run stopped early, before there were results. Op level only."""
        blame = self._blame(accepted)
        return blame.standing() if blame is not None else ()

    def vanished(self, gradients: Results) -> tuple[Origin, ...]:
        """Where gradients that are zero everywhere were rounded to zero. Op level only."""
        blame = self._blame()
        return blame.vanished(gradients) if blame is not None else ()

    def sites(self) -> frozenset[Site]:
        """Where non-finite values were born; of a healthy run, what to accept in others. Op level only."""
        blame = self._blame()
        return blame.sites() if blame is not None else frozenset()

    def _blame(self, accepted: frozenset[Site] = frozenset()) -> Blame | None:
        return self._tracer.blame(accepted) if isinstance(self._tracer, Tracer) else None


def trace(
    run: Callable[[], object],
    *,
    modules: nn.Module | Mapping[str, nn.Module],
    inputs: object = None,
    outside: str = "loss",
    device: str = "cpu",
    reproduced: Reproduced | None = None,
    levels: tuple[Level, ...] = ("op", "module", "name"),
) -> Trace:
    """Run under the finest level that works.

    `run` does forward, loss and backward exactly as the engine does, and starts from the same state each time (it puts
    weights, buffers, random state and gradients back itself): it runs once per level tried. An exception that it
    raises is kept and located, not passed on. A level is left when torch cannot run this code under it, or when
    `reproduced` says that the failure did not show: compiled code, for one, runs eagerly at op level and may be finite
    there.
    """
    notes: list[str] = []
    result: Trace | None = None
    for level in levels:
        if level == "op" and not available():
            notes.append("not at op level: this torch does not tell which autograd node is running")
            continue
        result = _trace_at(level, run, modules, inputs, outside, device, tuple(notes))
        refused = level == "op" and result.error is not None and _is_refusal(result.error)
        shows = not refused and (reproduced is None or reproduced(result.value, result.error))
        if shows:
            return result
        refusal = str(result.error).split(" and mode ")[0].strip().splitlines()
        reason = refusal[0] if refused else "the failure did not show"
        notes.append(f"not at {level} level: {reason}")
    assert result is not None
    return replace(result, reproduced=False, notes=tuple(notes))


def _trace_at(
    level: Level,
    run: Callable[[], object],
    modules: nn.Module | Mapping[str, nn.Module],
    inputs: object,
    outside: str,
    device: str,
    notes: tuple[str, ...],
) -> Trace:
    tracer: Tracer | ModuleTracer | None = None
    value: object = None
    error: BaseException | None = None
    place: ErrorPlace | None = None
    try:
        if level == "op":
            tracer = Tracer(modules, inputs=inputs, outside=outside, device=device)
        elif level == "module":
            tracer = ModuleTracer(modules, outside=outside)
        if tracer is None:
            value = run()
        else:
            with tracer:
                value = run()
    except Exception as raised:
        error = raised
        if isinstance(tracer, Tracer):
            place = tracer.locate(raised)
        else:
            place = locate_error(raised, dict(modules) if isinstance(modules, Mapping) else modules, outside=outside)
    ops = tracer.ops if isinstance(tracer, Tracer) else 0
    return Trace(level, value, error, place, True, notes, ops, outside, tracer)


def _is_refusal(error: BaseException) -> bool:
    """Whether torch refused to run this under a dispatch mode (rather than the user's code failing)."""
    text = text_of(error)
    return any(words in text for words in _NOT_UNDER_A_MODE)


def results_by_name(
    loss: Tensor | None, outputs: object, gradients: Results | None, buffers: Results | None = None
) -> dict[str, Tensor | None]:
    """One mapping: `loss`, `output logits`, `gradient fc.weight`, `buffer bn.running_var`."""
    results: dict[str, Tensor | None] = {"loss": loss}
    results.update({f"output {name}".strip(): tensor for name, tensor in named_tensors(outputs)})
    results.update({f"gradient {name}": tensor for name, tensor in (gradients or {}).items()})
    results.update({f"buffer {name}": tensor for name, tensor in (buffers or {}).items()})
    return results
