"""How far two results of the same code are apart, relative to the size of the first."""

from __future__ import annotations

import math
from typing import Any

import torch

from amptui.engine.nested import tensors_in


def outputs_apart(expected: Any, got: Any) -> float:
    """The largest |got − expected| over the largest |expected| of all floating tensors; infinite for other shapes."""
    largest = 0.0
    ours, theirs = list(tensors_in(expected)), list(tensors_in(got))
    if len(ours) != len(theirs):
        return math.inf
    for one, other in zip(ours, theirs, strict=True):
        if not one.is_floating_point() or not one.numel():
            continue
        if one.shape != other.shape:
            return math.inf
        a, b = one.detach().double(), other.detach().to(one.device, torch.float64)
        size = float(a.abs().max())
        apart = float((a - b).abs().max())
        largest = max(largest, apart / size if size > 0.0 else (0.0 if apart == 0.0 else math.inf))
    return largest if not math.isnan(largest) else math.inf
