"""Figures of single layers, told where the user looks and not in every iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from amptui.protocol.base import Event
from amptui.protocol.floats import Floats


@dataclass(frozen=True, kw_only=True)
class LayersMeasured(Event):
    """The unscaled gradient by layer, in the order of `UpdateFacts.layers`, while an attended trial stands still.

    It is the gradient before clipping, as the norms of `UpdateRecord` are.
    """

    durable: ClassVar[bool] = False
    step: int
    update: str
    #: 2-norms; −1 where there is no gradient.
    norms: Floats
    #: Largest magnitude; NaN if one value is, −1 where there is no gradient or where clipping left it unknown.
    highest: Floats
    #: Share of the elements that are exactly zero, from 0 to 1; −1 as for `highest`.
    zeros: Floats
    #: `float32`, …; "" where there is no gradient.
    dtypes: tuple[str, ...]
