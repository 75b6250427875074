"""The unscaled gradients of iteration 0, kept for comparison, and digests for the repeat proof."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from torch import Tensor

from amptui.engine.iteration import Phase
from amptui.engine.live import LiveProject
from amptui.engine.nested import tensor_bytes


@dataclass(eq=False)
class FirstGradients:
    """By update: the loss of iteration 0 and its unscaled gradients on the CPU, None where a parameter has none."""

    losses: dict[str, float] = field(default_factory=dict)
    gradients: dict[str, tuple[Tensor | None, ...]] = field(default_factory=dict)
    #: The loss scale that they were taken at, where it is not the run's.
    scales: dict[str, float] = field(default_factory=dict)

    def note(self, live: LiveProject, phase: Phase) -> None:
        """Called after every phase; keeps what `check_grads` of each update's first iteration shows."""
        if phase.name != "check_grads" or phase.update is None or phase.update in self.gradients or phase.step != 0:
            return
        self.losses[phase.update] = phase.values["loss"]
        self.gradients[phase.update] = tuple(
            None if p.grad is None else p.grad.detach().to("cpu", copy=True)
            for p in live.update(phase.update).parameters
        )


Fingerprint = dict[str, str]


def fingerprint(live: LiveProject, phase: Phase) -> Fingerprint:
    """Digests of loss, gradients and buffers after one update's `check_grads`, by name."""
    if phase.update is None:
        return {}
    update = live.update(phase.update)
    prints = {f"loss of {update.name}": repr(phase.values.get("loss"))}
    for name, parameter in zip(update.facts.layers, update.parameters, strict=True):
        prints[f"gradient {name}"] = "none" if parameter.grad is None else _digest(parameter.grad)
    for name, buffer in live.buffers().items():
        prints[f"buffer {name}"] = _digest(buffer)
    return prints


def _digest(tensor: Tensor) -> str:
    return hashlib.blake2b(tensor_bytes(tensor), digest_size=16).hexdigest()
