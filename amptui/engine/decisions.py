"""Decisions as plain values: their margins, their ties, and whether the trial's stands."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

#: How Python shows an object that has no text of its own: by its address, which is another one every time.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+>")
_RETURN = "return a number, a text, a bool, or a list or mapping of them, such as outputs.argmax(-1).tolist()"


class DecisionRefused(TypeError):
    """What `decide` returned cannot be compared from one run to the next."""


def decided(result: Any) -> tuple[Any, float | None]:
    """The decision as plain values, and the margin where `decide` returned `(decision, margin)`.

    Raises DecisionRefused for objects that are told apart only by their address, and for fractions in a tensor, an
    array or a list: raw scores, which differ between any two dtypes. One number by itself is a decision.
    """
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
        if any(isinstance(item, float) and _is_fraction(item) for item in value):
            raise _fractions(f"a {type(value).__name__} with fractions")
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=repr)
    if isinstance(value, Tensor) and value.is_floating_point() and _has_fractions(value):
        raise _fractions(f"a tensor of {str(value.dtype).removeprefix('torch.')} fractions")
    if callable(getattr(value, "tolist", None)):  # tensors, NumPy's arrays and scalars
        listed = value.tolist()
        if getattr(getattr(value, "dtype", None), "kind", "") == "f" and _holds_fractions(listed):
            raise _fractions(f"{value.dtype} fractions in a NumPy {type(value).__name__}")
        return plain(listed) if type(listed) is not type(value) else repr(value)
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    shown = repr(value)
    if _ADDRESS.search(shown):
        raise DecisionRefused(
            f"decide returned {type(value).__name__}, which cannot be compared with that of another run: {_RETURN}"
        )
    return shown


def _fractions(returned: str) -> DecisionRefused:
    return DecisionRefused(f"decide returned {returned}, which any rounding changes: {_RETURN}")


def _has_fractions(value: Tensor) -> bool:
    """NaN and infinity are no fractions: a trial may bring them where FP32 decided."""
    finite = value.detach()[torch.isfinite(value.detach())]
    return bool((finite != finite.trunc()).any())


def _holds_fractions(listed: Any) -> bool:
    return any(map(_holds_fractions, listed)) if isinstance(listed, list) else _is_fraction(float(listed))


def _is_fraction(number: float) -> bool:
    """As for tensors: NaN and infinity are none."""
    return math.isfinite(number) and number != math.trunc(number)


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
