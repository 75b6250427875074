"""Layers that do not move: gradients that are zero under the policy and not in FP32, told from its own noise."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from amptui.findings.evidence import SilentLayers

Norms = Mapping[int, Sequence[float]]

#: A layer whose FP32 norm is a smaller share of the whole has a gradient that is all rounding: a bias in front of a
#: normalisation.
ROUNDING = 1e-6


def silent_layers(update: str, layers: Sequence[str], trial: Norms, fp32: Norms) -> SilentLayers | None:
    """The layers that are zero in every applied iteration of the trial and in none of FP32's; None if there is none.

    Both are gradient norms by layer, by step. An update whose whole gradient is zero is another matter.
    """
    if not trial or not fp32 or not any(any(norm > 0.0 for norm in norms) for norms in trial.values()):
        return None
    zero = [number for number in range(len(layers)) if all(norms[number] == 0.0 for norms in trial.values())]
    silent = [number for number in zero if all(_speaks(norms, number) for norms in fp32.values())]
    if not silent:
        return None
    return SilentLayers(
        update=update,
        layers=tuple(layers[number] for number in silent),
        of=len(layers),
        norm=max(norms[number] for norms in fp32.values() for number in silent),
    )


def silenced(layers: Sequence[str], zero: Collection[str], fp32: Sequence[float]) -> tuple[str, ...]:
    """Those of the `zero` layers that one FP32 iteration has a gradient for."""
    return tuple(name for number, name in enumerate(layers) if name in zero and _speaks(fp32, number))


def _speaks(norms: Sequence[float], number: int) -> bool:
    whole = math.hypot(*(norm for norm in norms if norm > 0.0))
    return norms[number] > ROUNDING * whole
