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
from amptui.engine.decisions import decided, default_margin
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
            decision, margin = decided(live.project.decide(raw))
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
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for key, item in zip(value._fields, value, strict=True):
            yield from _flattened(item, f"{name}.{key}" if name else key)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _flattened(item, f"{name or 'output'}.{index}")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _flattened(getattr(value, field.name), f"{name}.{field.name}" if name else field.name)


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
