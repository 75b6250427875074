"""Cases: the model in eval mode under no_grad on fixed inputs, its outputs as named tensors, and the decision."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from amptui.engine import rng
from amptui.engine.failures import UserCodeError, user_code
from amptui.engine.live import LiveProject
from amptui.engine.nested import copied
from amptui.project import Case
from amptui.protocol.facts import CaseFigures, OutputFacts

Arithmetic = Callable[[], contextlib.AbstractContextManager[object]]


class OutputsRefused(TypeError):
    """The outputs of a case cannot be compared: no tensors, or no way to call the model."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """One case, evaluated once. `outputs` are detached copies by name; `decision` is plain.

    `single` says that the project's `outputs` gave one tensor and no mapping.
    """

    case: Case
    index: int
    outputs: Mapping[str, Tensor]
    decision: Any = None
    margin: float | None = None
    single: bool = False


@contextlib.contextmanager
def eval_mode(modules: Mapping[str, nn.Module]) -> Iterator[None]:
    """Every module in eval mode inside; each one's own flag is put back at the end."""
    flags = [(module, module.training) for root in modules.values() for module in root.modules()]
    try:
        for root in modules.values():
            root.eval()
        yield
    finally:
        for module, training in flags:
            if module.training != training:
                module.train(training)  # a module may do more there: merge weights, keep its statistics frozen
        for module, training in flags:
            module.training = training


def evaluate(
    live: LiveProject,
    arithmetic: Arithmetic,
    *,
    state: rng.RngState,
    on_case: Callable[[int], None] | None = None,
    on_failure: Callable[[UserCodeError], None] | None = None,
) -> list[Evaluated]:
    """All cases in order, each from the same RNG `state`.

    A case whose code raises is told to `on_failure` and left out; without `on_failure` its `UserCodeError` is raised.
    """
    results = []
    with eval_mode(live.modules), torch.no_grad():
        for index, case in enumerate(live.cases):
            rng.restore(state)
            try:
                results.append(_evaluate_one(live, case, index, arithmetic))
            except UserCodeError as failure:
                if on_failure is None:
                    raise
                on_failure(failure)
            if on_case is not None:
                on_case(index)
    return results


def _evaluate_one(live: LiveProject, case: Case, index: int, arithmetic: Arithmetic) -> Evaluated:
    with user_code("outputs", case=case.id), arithmetic():
        raw = call_outputs(live, copied(case.inputs, None))
        # copies: `decide` may edit what it gets
        named = {name: tensor.detach().clone() for name, tensor in named_outputs(raw).items()}
    decision, margin = None, None
    if live.project.decide is not None:
        with user_code("decide", case=case.id):
            decision, margin = _decided(live.project.decide(raw))
        if margin is None:
            margin = default_margin(named, decision)
    return Evaluated(case, index, named, decision, margin, single=isinstance(raw, Tensor))


def call_outputs(live: LiveProject, inputs: Any) -> Any:
    """What the project's `outputs` gives; by default the model is called, a dict as keywords, a tuple as positions."""
    if live.project.outputs is not None:
        return live.project.outputs(live.model, inputs)
    if isinstance(live.model, Mapping):
        raise OutputsRefused("the model is a mapping of modules: write outputs=lambda model, inputs: … for the cases")
    if isinstance(inputs, Mapping):
        return live.model(**inputs)
    return live.model(*inputs) if isinstance(inputs, tuple) else live.model(inputs)


def named_outputs(raw: Any) -> dict[str, Tensor]:
    """The tensors of what `outputs` returned: one tensor is `output`, entries of a mapping keep their names."""
    if isinstance(raw, Tensor):
        return {"output": raw}
    found = dict(_flattened(raw, ""))
    if not found:
        raise OutputsRefused(
            f"the outputs are {type(raw).__name__} without a tensor: return a tensor or a mapping of tensors"
        )
    return found


def _flattened(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name or "output", value if value.layout is torch.strided else value.to_dense()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flattened(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _flattened(item, f"{name or 'output'}.{index}")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _flattened(getattr(value, field.name), f"{name}.{field.name}" if name else field.name)


def _decided(result: Any) -> tuple[Any, float | None]:
    """The decision as plain values, and the margin where `decide` returned `(decision, margin)`."""
    if isinstance(result, tuple) and len(result) == 2:
        decision, margin = result
        if margin is None or isinstance(margin, float):
            return plain(decision), margin
        if isinstance(margin, Tensor) and margin.numel() == 1 and margin.is_floating_point():
            return plain(decision), float(margin)
        if getattr(getattr(margin, "dtype", None), "kind", "") == "f" and getattr(margin, "size", 0) == 1:  # NumPy's
            return plain(decision), float(margin)
    return plain(result), None


def plain(value: Any) -> Any:
    """`value` as numbers, texts, lists and mappings, so that two decisions can be compared and written down."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=repr)
    if callable(getattr(value, "tolist", None)):  # tensors, NumPy's arrays and scalars
        listed = value.tolist()
        return plain(listed) if type(listed) is not type(value) else repr(value)
    return value if isinstance(value, bool | int | float | str) or value is None else repr(value)


def default_margin(outputs: Mapping[str, Tensor], decision: Any) -> float | None:
    """The smallest gap of the two largest values where the decision is the argmax over the last dimension."""
    scores = argmax_scores(outputs, decision)
    if scores is None or scores.shape[-1] < 2 or not scores.numel():
        return None
    top = scores.topk(2, dim=-1).values
    gap = (top[..., 0] - top[..., 1]).min()
    return float(gap) if math.isfinite(float(gap)) else None


def argmax_scores(outputs: Mapping[str, Tensor], decision: Any) -> Tensor | None:
    """The output whose argmax over the last dimension is the decision, in float64; None where there is none."""
    flat = _flat_integers(decision)
    if flat is None:
        return None
    for output in outputs.values():
        if output.is_floating_point() and output.dim() >= 1 and output.shape[-1] and not bool(output.isnan().any()):
            scores = output.detach().double().cpu()
            if scores.argmax(-1).reshape(-1).tolist() == flat:
                return scores
    return None


def tied_choices(outputs: Mapping[str, Tensor], decision: Any) -> list[list[int]] | None:
    """Per row the candidates that share the largest value exactly, where the decision is an argmax."""
    scores = argmax_scores(outputs, decision)
    if scores is None:
        return None
    rows = scores.reshape(-1, scores.shape[-1])
    return [(row == row.max()).nonzero().reshape(-1).tolist() for row in rows]


def decisions_agree(baseline: Any, trial: Any, ties: Sequence[Sequence[int]] | None) -> bool:
    """Whether the trial's decision stands; with `ties`, any tied candidate of a row counts as the baseline's choice."""
    if same_decision(baseline, trial):
        return True
    flat_baseline, flat_trial = _flat_integers(baseline), _flat_integers(trial)
    if ties is None or flat_baseline is None or flat_trial is None or len(flat_baseline) != len(flat_trial):
        return False
    return len(ties) == len(flat_trial) and all(chosen in tied for chosen, tied in zip(flat_trial, ties, strict=True))


def same_decision(one: Any, other: Any) -> bool:
    """Whether two plain decisions are equal; NaN equals NaN."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_decision, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_decision(one[key], other[key]) for key in one)
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    return bool(one == other)


def _flat_integers(decision: Any) -> list[int] | None:
    if isinstance(decision, bool):
        return None
    if isinstance(decision, int):
        return [decision]
    if isinstance(decision, list):
        parts = [_flat_integers(item) for item in decision]
        return None if any(part is None for part in parts) else [n for part in parts if part for n in part]
    if isinstance(decision, dict) and len(decision) == 1:
        return _flat_integers(next(iter(decision.values())))
    return None


def figures(evaluated: Evaluated) -> CaseFigures:
    """Extremes, non-finite counts and errors against the target, without being asked for."""
    return CaseFigures(
        case=evaluated.case.id,
        index=evaluated.index,
        tag=evaluated.case.tag,
        outputs=tuple(_facts(name, output, evaluated.case) for name, output in evaluated.outputs.items()),
        decision=evaluated.decision,
        margin=evaluated.margin,
    )


def nonfinite_outputs(evaluated: Evaluated) -> tuple[str, ...]:
    return tuple(name for name, output in evaluated.outputs.items() if not bool(torch.isfinite(_real(output)).all()))


def _facts(name: str, output: Tensor, case: Case) -> OutputFacts:
    values = _real(output).cpu().double()
    finite = values[torch.isfinite(values)]
    mean, high, largest = _errors(name, values, case.target)
    return OutputFacts(
        name=name,
        dtype=str(output.dtype).removeprefix("torch."),
        shape=tuple(output.shape),
        nan=int(values.isnan().sum()),
        positive_inf=int((values == math.inf).sum()),
        negative_inf=int((values == -math.inf).sum()),
        lowest=float(finite.min()) if finite.numel() else None,
        highest=float(finite.max()) if finite.numel() else None,
        error_mean=mean,
        error_p99=high,
        error_max=largest,
    )


def _errors(name: str, values: Tensor, target: Any) -> tuple[float | None, float | None, float | None]:
    """|output − target| as mean, 99th percentile and largest, where the target is numbers of the output's size."""
    wanted = _numbers(target.get(name) if isinstance(target, Mapping) else target)
    if wanted is None or not values.numel() or wanted.numel() != values.numel():
        return None, None, None
    errors = (values.reshape(-1) - wanted).abs()
    ordered = errors.sort().values
    at = min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)
    return float(errors.mean()), float(ordered[at]), float(ordered[-1])


def _numbers(target: Any) -> Tensor | None:
    """The target as float64 in one dimension where it consists of floating-point numbers; labels are none."""
    if isinstance(target, float) or (isinstance(target, list | tuple) and _holds_floats(target)):
        target = torch.tensor(target, dtype=torch.float64)
    elif getattr(getattr(target, "dtype", None), "kind", "") == "f":  # NumPy's
        target = torch.tensor(target.tolist(), dtype=torch.float64)
    if not isinstance(target, Tensor) or not target.is_floating_point():
        return None
    return target.detach().cpu().double().reshape(-1)


def _holds_floats(values: Sequence[Any]) -> bool:
    return (
        bool(values)
        and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        and (any(isinstance(value, float) for value in values))
    )


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor.detach()


def quality(live: LiveProject, evaluated: Sequence[Evaluated]) -> float | None:
    """The project's own quality over all cases; raises `UserCodeError` where it fails or gives no number."""
    if live.project.quality is None or not evaluated:
        return None
    # copies: a quality may edit what it gets, and the outputs are still to be compared
    rows = [
        QualityRow(e.case.id, _as_given(e), copy.deepcopy(e.decision), copied(e.case.target, None), e.case.tag)
        for e in evaluated
    ]
    with user_code("quality"):
        return float(live.project.quality(rows))


@dataclass(frozen=True, eq=False)
class QualityRow:
    """What `quality` gets for each case; `outputs` is the tensor itself where there is only one."""

    id: str
    outputs: Any
    decision: Any
    target: Any
    tag: str


def _as_given(evaluated: Evaluated) -> Any:
    outputs = {name: output.clone() for name, output in evaluated.outputs.items()}
    return outputs["output"] if evaluated.single else outputs
