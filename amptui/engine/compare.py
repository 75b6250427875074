"""Trial against baseline, tensor by tensor, as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from amptui.findings.evidence import TensorDifference


def compare_outputs(name: str, baseline: Tensor, trial: Tensor, *, atol: float, rtol: float) -> TensorDifference:
    """The largest |trial − baseline| − rtol·|baseline| against `atol`, in float64.

    The same infinity on both sides is no difference; a NaN, or an infinity that the baseline does not have, is an
    infinite one. Another shape is an infinite difference of all elements.
    """
    if baseline.shape != trial.shape:
        return _other_shape(name, baseline, trial, atol)
    if baseline.is_complex() != trial.is_complex():
        baseline, trial = baseline.to(torch.complex128), trial.to(torch.complex128)
    expected, got = _flat(baseline), _flat(trial)
    if not expected.numel():
        return _difference(name, 0.0, atol, 0.0, None, None, (), 0, 0, 0)
    apart = (got - expected).abs()
    apart[expected == got] = 0.0  # the same infinity included
    if _whole(baseline) and _whole(trial):  # large whole numbers differ although float64 rounds them to one value
        unequal = baseline.cpu().reshape(-1) != trial.cpu().reshape(-1)
        apart[unequal & (apart == 0.0)] = 1.0
    bad = got.isnan() | (got.isinf() & (expected != got))
    apart[bad | apart.isnan()] = math.inf
    allowed = rtol * expected.abs()
    excess = torch.where(apart == 0.0, torch.zeros(()).double(), apart - torch.where(allowed.isfinite(), allowed, 0.0))
    worst = int(excess.argmax())
    place = tuple(int(i) for i in _unraveled(worst, baseline))
    return _difference(
        name,
        max(0.0, float(excess[worst])),
        atol,
        float(apart.max()),
        float(expected[worst]),
        float(got[worst]),
        place,
        expected.numel(),
        int((excess > atol).sum()),
        int(bad.sum()),
    )


def largest_difference(first: Tensor, second: Tensor) -> float:
    """The largest absolute difference of two runs; infinite where shapes or non-finite places differ.

    Here a NaN in the same place is no difference: two runs that fail alike are equal runs.
    """
    if first.shape == second.shape and first.dtype == second.dtype and first.is_floating_point():
        both = first.isnan() & second.isnan()
        first, second = first.masked_fill(both, 0.0), second.masked_fill(both, 0.0)
    return compare_outputs("", first, second, atol=0.0, rtol=0.0).largest


def _whole(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex()


def compare_gradients(
    names: Sequence[str],
    baseline: Sequence[Tensor | None],
    trial: Sequence[Tensor | None],
    *,
    limit: float,
    update: str,
) -> TensorDifference:
    """The layer whose gradient moved most: ‖trial − baseline‖ over its norm, or over 1 % of the whole norm if larger.

    A layer whose gradient is nearly zero beside the others (a bias in front of a normalisation) is all rounding; judged
    by its own norm alone it would fail every trial.
    """
    floor = 0.01 * math.hypot(*(_norm(g) for g in baseline if g is not None))
    worst = _difference("gradient", 0.0, limit, 0.0, 0.0, 0.0, (), 0, 0, 0, update)
    beyond = elements = nonfinite = 0
    for name, expected, got in zip(names, baseline, trial, strict=True):
        if expected is None and got is None:
            continue
        elements += 1
        own = _norm(expected) if expected is not None else 0.0
        apart = _apart(expected, got)
        reference = max(own, floor)
        measured = apart / reference if reference > 0.0 else (0.0 if apart == 0.0 else math.inf)
        measured = measured if not math.isnan(measured) else math.inf
        beyond += measured > limit
        nonfinite += not math.isfinite(apart)
        if measured > worst.measured or worst.elements == 0:
            shown = _norm(got) if got is not None else 0.0
            worst = _difference(f"gradient {name}", measured, limit, apart, own, shown, (), 1, 0, 0, update)
    return _difference(
        worst.name,
        worst.measured,
        limit,
        worst.largest,
        worst.baseline,
        worst.trial,
        (),
        elements,
        beyond,
        nonfinite,
        update,
    )


def _apart(expected: Tensor | None, got: Tensor | None) -> float:
    if expected is None or got is None:
        present = expected if expected is not None else got
        return _norm(present) if present is not None else 0.0
    return float(torch.linalg.vector_norm(_flat(got) - _flat(expected)))


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(_flat(tensor)))


def _flat(tensor: Tensor) -> Tensor:
    dense = tensor.detach() if tensor.layout is torch.strided else tensor.detach().to_dense()
    real = torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense
    return real.cpu().to(torch.float64).reshape(-1)


def _unraveled(index: int, tensor: Tensor) -> Sequence[int]:
    index = index // 2 if tensor.is_complex() else index
    return [int(i) for i in torch.unravel_index(torch.tensor(index), tensor.shape)] if tensor.dim() else []


def _other_shape(name: str, baseline: Tensor, trial: Tensor, atol: float) -> TensorDifference:
    count = max(baseline.numel(), trial.numel())
    return _difference(
        f"{name} (shape {tuple(baseline.shape)} became {tuple(trial.shape)})",
        math.inf, atol, math.inf, None, None, (), count, count, 0,
    )  # fmt: skip


def _difference(
    name: str,
    measured: float,
    limit: float,
    largest: float,
    baseline: float | None,
    trial: float | None,
    place: tuple[int, ...],
    elements: int,
    beyond: int,
    nonfinite: int,
    update: str | None = None,
) -> TensorDifference:
    return TensorDifference(
        name=name,
        measured=measured,
        limit=limit,
        largest=largest,
        baseline=baseline,
        trial=trial,
        place=place,
        elements=elements,
        beyond=beyond,
        nonfinite=nonfinite,
        update=update,
    )
