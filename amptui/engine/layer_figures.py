"""Largest magnitude, share of zeros and dtype of each layer's gradient, with one transfer for all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from amptui.engine.live import LiveUpdate
from amptui.protocol.codec import Floats
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
    pairs = [(next(read), next(read)) if gradient is not None else (-1.0, -1.0) for gradient in gradients]
    return LayersMeasured(
        step=step,
        update=update.name,
        highest=Floats.of(highest for highest, _ in pairs),
        zeros=Floats.of(zeros for _, zeros in pairs),
        dtypes=tuple("" if g is None else str(g.dtype).removeprefix("torch.") for g in gradients),
    )


def _figures(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Largest magnitude and share of zeros, each without dimensions; of an empty gradient both are 0."""
    if gradient.numel() == 0:
        nothing = torch.zeros((), device=gradient.device)
        return nothing, nothing
    return torch.linalg.vector_norm(gradient, torch.inf), (gradient == 0).mean(dtype=torch.float32)
