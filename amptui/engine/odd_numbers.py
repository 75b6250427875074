"""Finite losses and gradients that are too far from FP32's, asked why while the weights are those of the window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from amptui.engine.baseline import Baseline
from amptui.engine.bench import Bench
from amptui.engine.diagnosis.locator import Locator
from amptui.engine.first_iteration import FirstIteration
from amptui.engine.iteration import GuardedRun
from amptui.engine.live import LiveUpdate
from amptui.engine.silent import silenced
from amptui.findings.criteria import limits_for
from amptui.project import Criteria
from amptui.protocol.events import Remarked


@dataclass(frozen=True, eq=False)
class OddNumbers:
    """Has the locator look at each window of one trial that is finite and off."""

    bench: Bench
    baseline: Baseline
    criteria: Criteria
    first: FirstIteration
    locator: Locator

    def look(self, run: GuardedRun, name: str, step: int, loss: float) -> None:
        """Called before the step is taken; `loss` is the window's."""
        update = self.bench.live.update(name)
        if step == 0:
            if self.first.draw_alike(run, update):
                message = f"loss and gradient of {name} in iteration 0 are compared on FP32's random numbers"
                advice = f"{run.policy.dtype} draws others; the trial itself goes on with its own"
                self.bench.emit(Remarked(code="other-draws", message=message, advice=advice))
            loss = self.first.trial.losses[name]
            self._look_at_gradient(run, update)
        self._look_at_loss(run, update, step, loss)
        if step == self.baseline.evidence.first_bad.get(name):
            self.locator.baseline_alone(run, update, step)

    def _look_at_gradient(self, run: GuardedRun, update: LiveUpdate) -> None:
        """Why is the gradient of iteration 0 off, if it is and the loss is not?"""
        beyond = [d for d in self.first.differences(update) if not d.measured <= d.limit]
        if len(beyond) != 1 or beyond[0].name == "loss" or beyond[0].nonfinite:
            return

        def holds(gradients: Sequence[Tensor | None]) -> bool:
            again = self.first.gradient_beside(update, gradients)
            return again is not None and again.measured <= again.limit

        self.locator.gradient(run, update, scale=self.first.trial.scales.get(update.name, run.scale), holds=holds)

    def look_for_zeros(self, run: GuardedRun, name: str, step: int) -> None:
        """Where do gradients of the first update to be applied become zero, if FP32 has some there?"""
        if run.applied[name]:
            return
        update = self.bench.live.update(name)
        norms = self.baseline.norms.get(update.name, {}).get(step)
        layers = zip(update.facts.layers, update.parameters, strict=True)
        gradients = {name: parameter.grad for name, parameter in layers if parameter.grad is not None}
        if norms is None or not gradients:
            return
        moving: list[bool] = torch.stack([gradient.any() for gradient in gradients.values()]).tolist()
        zero = {name for name, moves in zip(gradients, moving, strict=True) if not moves}
        names = silenced(update.facts.layers, zero, norms)
        if names:
            self.locator.zeros(run, update, step, names)

    def _look_at_loss(self, run: GuardedRun, update: LiveUpdate, step: int, loss: float) -> None:
        losses = self.baseline.losses.get(update.name, [])
        number = step // update.update.every
        expected: float | None = losses[number] if number < len(losses) else None
        if step == 0:
            expected = self.first.expected_loss(update.name)
        if expected is not None and math.isfinite(expected) and math.isfinite(loss):
            atol, rtol = limits_for(self.criteria, "loss")
            allowed = atol + rtol * abs(expected)
            self.locator.loss(run, update, step, got=loss, expected=expected, allowed=allowed)
