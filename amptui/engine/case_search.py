"""Inputs worth being a case, found in the training batches by running them in FP32.

The smallest margins are where a dtype may change a decision (`boundary`); the largest activations, the longest, the
empty and the wholly masked input are where it may break (`edge`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from amptui.engine.bench import Bench
from amptui.engine.case_inputs import InputForm, input_form, is_mask, sample_of, samples_in
from amptui.engine.evaluate import Evaluated, evaluate, nonfinite_outputs
from amptui.engine.failures import UserCodeError
from amptui.engine.nested import copied, map_tensors, tensors_in
from amptui.engine.precision import true_fp32
from amptui.engine.refusals import Refusal
from amptui.engine.tracing.modules import global_hooks
from amptui.engine.tracing.values import extent, is_finite
from amptui.project import Case
from amptui.protocol.events import CasesFound
from amptui.protocol.measuring import FoundCase
from amptui.session.named_file import written

#: So many samples are looked at, in the order of the batches.
SAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Candidate:
    """One sample with what FP32 makes of it."""

    inputs: Any
    batch: int | None
    sample: int | None
    decision: object
    margin: float | None
    #: The largest activation of any module.
    largest: float
    #: Elements of all its tensors that are not masked out.
    length: int
    finite: bool


Proposed = tuple[FoundCase, Any]


@dataclass(frozen=True, eq=False)
class Search:
    """What one look through the batches proposed."""

    boundary: int
    samples: int
    proposed: Sequence[Proposed]
    remarks: tuple[str, ...]

    def told(self, path: str | None) -> CasesFound:
        """The event; with `path` the cases are written there, for `torch.load`. Raises `Refusal` if they cannot be."""
        if path is not None:
            _write(Path(path), self.proposed)
        found = tuple(case for case, _inputs in self.proposed)
        return CasesFound(samples=self.samples, found=found, remarks=self.remarks, path=path)


def search(bench: Bench, boundary: int) -> Search:
    """Looks through the frozen batches for at most `boundary` small margins, and for the extremes.

    Raises `Refusal` where no inputs can be made of the batches; the checkpoint's state is restored afterwards.
    """
    if not bench.live.batches.batches:
        raise Refusal("no-batches", "the project has no batches to look through", hint="give Project(batches=…)")
    remarks: list[str] = []
    try:
        with true_fp32():
            form = _form(bench)
            candidates = list(_candidates(bench, form))
            proposed = [*_boundary(bench, candidates, boundary, remarks), *_edges(bench, candidates, remarks)]
    finally:
        bench.start.restore()
    return Search(boundary=boundary, samples=len(candidates), proposed=proposed, remarks=tuple(remarks))


def _form(bench: Bench) -> InputForm:
    form = input_form(bench)
    if form is None:
        raise Refusal(
            "case-inputs",
            "no inputs for cases can be made of the batches: neither what the loss gives to the model, nor the batch "
            "or a part of it, can be evaluated",
            hint="write the cases by hand: Case(id=…, inputs=…) with what outputs(model, inputs) takes",
        )
    return form


def _candidates(bench: Bench, form: InputForm) -> Iterator[Candidate]:
    done = 0
    batches = bench.live.batches
    for step in range(batches.iterations):
        for within, batch in enumerate(batches.window(step)):
            inputs = form.inputs_of(batch)
            for sample in range(samples_in(inputs)):
                if done >= SAMPLES:
                    return
                yield _evaluated(bench, sample_of(inputs, sample), step * batches.accumulate + within, sample)
                done += 1
            bench.progress("measure", "batches", step + 1, batches.iterations)
            bench.between()


def _evaluated(bench: Bench, inputs: Any, batch: int | None, sample: int | None) -> Candidate:
    largest = 0.0

    def after(_module: nn.Module, _inputs: object, output: object) -> None:
        nonlocal largest
        for tensor in tensors_in(output):
            span = extent(tensor)
            if span is not None and is_finite(span):
                largest = max(largest, abs(span[0]), abs(span[1]))

    with global_hooks(lambda _module, _inputs: None, after):
        evaluated = _evaluate(bench, inputs)
    return Candidate(
        inputs=inputs,
        batch=batch,
        sample=sample,
        decision=evaluated.decision,
        margin=evaluated.margin,
        largest=largest,
        length=_length(inputs),
        finite=not nonfinite_outputs(evaluated),
    )


def _evaluate(bench: Bench, inputs: Any) -> Evaluated:
    live = replace(bench.live, cases=(Case(id="candidate", inputs=inputs),))
    return evaluate(live, nullcontext, state=bench.rng)[0]


def _length(inputs: Any) -> int:
    """Elements that count: those of the masks that are on, where there is a mask; else all."""
    tensors = list(tensors_in(inputs))
    masks = [tensor for tensor in tensors if is_mask(tensor)]
    return sum(int(mask.count_nonzero()) for mask in masks) if masks else sum(tensor.numel() for tensor in tensors)


def _boundary(bench: Bench, candidates: Sequence[Candidate], most: int, remarks: list[str]) -> list[Proposed]:
    """The smallest margins, one decision not more often than it must be."""
    if bench.live.project.decide is None:
        remarks.append("no boundary cases: without decide=… there is no decision that could change")
        return []
    known = sorted((c for c in candidates if c.margin is not None and c.finite), key=lambda c: c.margin or 0.0)
    if not known:
        remarks.append("no boundary cases: decide=… tells no margin; return (decision, margin)")
        return []
    return [
        _proposed(c, f"boundary-{number}", "boundary", f"the decision is {c.margin:.4g} from another one")
        for number, c in enumerate(known[:most], start=1)
    ]


def _edges(bench: Bench, candidates: Sequence[Candidate], remarks: list[str]) -> list[Proposed]:
    """Extremes among the samples, and the empty and the wholly masked input, made where the batches have none."""
    finite = [candidate for candidate in candidates if candidate.finite]
    if len(finite) < len(candidates):
        remarks.append(f"{len(candidates) - len(finite)} samples are not finite in FP32 and are left out")
    if not finite:
        return []
    largest = max(finite, key=lambda c: c.largest)
    found = [_proposed(largest, "largest-activation", "edge", f"its activations reach {largest.largest:.4g}")]
    lengths = {candidate.length for candidate in finite}
    if len(lengths) > 1:
        longest, shortest = max(finite, key=lambda c: c.length), min(finite, key=lambda c: c.length)
        found.append(_proposed(longest, "longest", "edge", f"the longest input ({longest.length} elements)"))
        found.append(_proposed(shortest, "shortest", "edge", f"the shortest input ({shortest.length} elements)"))
    made: tuple[tuple[str, str, Callable[[Tensor], bool], Callable[[Any], Any]], ...] = (
        ("empty", "all its numbers are zero", _is_value, _emptied),
        ("fully-masked", "its mask hides everything", is_mask, _masked),
    )
    for name, why, applies, make in made:
        if not any(applies(tensor) for tensor in tensors_in(largest.inputs)):
            continue
        existing = next((c for c in finite if _all_zero(c.inputs, applies)), None)
        if existing is not None:
            found.append(_proposed(existing, name, "edge", why))
            continue
        try:
            candidate = _evaluated(bench, make(largest.inputs), None, None)
        except UserCodeError as error:
            remarks.append(f"no case {name!r}: FP32 fails on it: {error.exception}: {error.message}")
            continue
        if candidate.finite:
            found.append(_proposed(candidate, name, "edge", f"{why} (made, not from the batches)"))
        else:
            remarks.append(f"no case {name!r}: FP32 is not finite on it, so nothing could be held against it")
    return found


def _is_value(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and not is_mask(tensor)


def _all_zero(inputs: Any, applies: Callable[[Tensor], bool]) -> bool:
    return all(not bool(tensor.any()) for tensor in tensors_in(inputs) if applies(tensor))


def _emptied(inputs: Any) -> Any:
    return map_tensors(inputs, lambda tensor: torch.zeros_like(tensor) if _is_value(tensor) else tensor.clone())


def _masked(inputs: Any) -> Any:
    return map_tensors(inputs, lambda tensor: torch.zeros_like(tensor) if is_mask(tensor) else tensor.clone())


def _proposed(candidate: Candidate, name: str, tag: Any, why: str) -> Proposed:
    told = FoundCase(
        id=name,
        tag=tag,
        why=why,
        batch=candidate.batch,
        sample=candidate.sample,
        decision=candidate.decision,
        margin=candidate.margin,
        largest=candidate.largest,
    )
    return told, candidate.inputs


def _write(path: Path, proposed: Iterable[Proposed]) -> None:
    """A list of the keywords of `Case`, on the CPU."""
    cases = [
        {"id": told.id, "inputs": copied(inputs, torch.device("cpu")), "tag": told.tag} for told, inputs in proposed
    ]
    try:
        with written(path) as file:
            torch.save(cases, file)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise Refusal("write", f"{path} cannot be written: {reason}", hint="name another file with -o") from error
