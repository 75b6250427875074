"""Norm, largest magnitude, share of zeros and dtype of each layer's gradient, with one transfer for all of them."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from amptui.engine.live import LiveUpdate
from amptui.protocol.codec import Floats
from amptui.protocol.facts import UpdateRecord
from amptui.protocol.layers import LayersMeasured


@torch.no_grad()
def layer_figures(update: LiveUpdate, step: int) -> LayersMeasured:
    """The gradients of `update` as they are now, read only. Costs a pass over them."""
    gradients = [parameter.grad for parameter in update.parameters]
    figures: list[Tensor] = []
    device = next((g.device for g in gradients if g is not None), torch.device("cpu"))
    for gradient in gradients:
        if gradient is not None:
            figures += [one.to(device, torch.float32) for one in _figures(gradient)]
    read = iter(torch.stack(figures).tolist() if figures else [])
    rows = [[next(read) for _ in range(3)] if gradient is not None else [-1.0] * 3 for gradient in gradients]
    return LayersMeasured(
        step=step,
        update=update.name,
        norms=Floats.of(norm for norm, _, _ in rows),
        highest=Floats.of(highest for _, highest, _ in rows),
        zeros=Floats.of(zeros for _, _, zeros in rows),
        dtypes=tuple("" if g is None else str(g.dtype).removeprefix("torch.") for g in gradients),
    )


def before_clipping(measured: LayersMeasured, record: UpdateRecord, *, by_value: bool) -> LayersMeasured:
    """What was `measured` after the update's clipping, as it was before: divided by the factor of `record`.

    A layer whose norm is then not the one that the guard had read was clipped by value, or changed by a later update's
    backward: its largest magnitude is not known. Zeros stay zeros in either clipping.
    """
    norms, highest, zeros = [], [], []
    for layer, norm in enumerate(measured.norms):
        read = record.norms[layer] if layer < len(record.norms) else -1.0
        known = _same(_divided(norm, record.clipped_to), read)
        largest = measured.highest[layer]
        norms.append(read)
        highest.append(_divided(largest, record.clipped_to) if known or not math.isfinite(largest) else -1.0)
        zeros.append(measured.zeros[layer] if known or by_value else -1.0)
    return replace(measured, norms=Floats.of(norms), highest=Floats.of(highest), zeros=Floats.of(zeros))


def _divided(value: float, factor: float) -> float:
    return value / factor if value > 0.0 and factor > 0.0 else value


def _same(norm: float, read: float) -> bool:
    """Equal as far as two ways to sum up a norm go."""
    return norm == read or (math.isnan(norm) and math.isnan(read)) or math.isclose(norm, read, rel_tol=1e-4)


def _figures(gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Norm, largest magnitude and share of zeros, without dimensions; of an empty gradient all are 0."""
    if gradient.numel() == 0:
        nothing = torch.zeros((), device=gradient.device)
        return nothing, nothing, nothing
    share = (gradient == 0).mean(dtype=torch.float32)
    return torch.linalg.vector_norm(gradient), torch.linalg.vector_norm(gradient, torch.inf), share
