"""Iteration 0 of the trial beside FP32's: the same weights, batch and RNG, so loss and gradients can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from amptui.engine.compare import compare_gradients, compare_outputs
from amptui.engine.failures import UserCodeError
from amptui.engine.gradients import FirstGradients
from amptui.engine.iteration import GuardedRun, Phase
from amptui.engine.live import LiveUpdate
from amptui.engine.replay import replay
from amptui.engine.same_draws import SameDraws
from amptui.findings.criteria import limits_for
from amptui.findings.evidence import TensorDifference
from amptui.project import Criteria


@dataclass(eq=False)
class FirstIteration:
    """What iteration 0 gave under the policy, and what it is held against."""

    baseline: FirstGradients
    criteria: Criteria
    trial: FirstGradients = field(default_factory=FirstGradients)
    #: FP32 on the trial's own weights, for updates that run after one that was held back: the baseline's were others.
    beside: FirstGradients = field(default_factory=FirstGradients)
    held_back: bool = False
    _known: dict[str, tuple[TensorDifference, ...]] = field(default_factory=dict)

    def note(self, run: GuardedRun, phase: Phase) -> None:
        """Called after every phase, while the weights are those that the gradients were taken at."""
        if phase.step != 0 or phase.update is None:
            return
        if self.held_back and phase.name == "check_grads" and phase.update not in self.trial.losses:
            self._replay(run, phase.update)
        self.trial.note(run.live, phase)
        self.held_back |= phase.trip is not None

    def _replay(self, run: GuardedRun, name: str) -> None:
        try:
            fp32 = replay(run, run.live.update(name), 0, fp32=True)
        except UserCodeError:  # it did not raise on the baseline's weights: nothing to compare with
            self.beside.gradients[name] = ()
            return
        self.beside.losses[name] = sum(fp32.losses) / len(fp32.losses)
        self.beside.gradients[name] = tuple(None if g is None else g.cpu() for g in fp32.gradients)

    def draw_alike(self, run: GuardedRun, update: LiveUpdate) -> bool:
        """Takes out what differs because the policy's dtype draws other random numbers; whether there was any.

        Looked at only where loss or gradients are beyond their limits. The run itself goes on with its own numbers.
        """
        name = update.name
        if all(d.measured <= d.limit or d.nonfinite for d in self._differences(update)):
            return False
        try:
            with SameDraws() as alike:
                again = replay(run, update, 0, scale=self.trial.scales.get(name, run.scale))
        except Exception:  # code that does not run under a dispatch mode is compared as it ran
            return False
        if not alike.draws or not again.finite:
            return False
        self.trial.losses[name] = sum(again.losses) / len(again.losses)
        self.trial.gradients[name] = tuple(None if g is None else g.cpu() for g in again.gradients)
        return True

    def expected_loss(self, name: str) -> float | None:
        """FP32's loss on the weights that the trial had; None where it is not known."""
        return self._held_against(name).losses.get(name)

    def compared(self, run: GuardedRun | None) -> tuple[TensorDifference, ...]:
        """Loss and gradients of every update that both sides ran."""
        updates = run.live.updates if run is not None else ()
        return tuple(difference for update in updates for difference in self.differences(update))

    def differences(self, update: LiveUpdate) -> tuple[TensorDifference, ...]:
        """Loss and gradients of one update; nothing where one side has none. To be asked once both are there."""
        if update.name not in self._known:
            self._known[update.name] = self._differences(update)
        return self._known[update.name]

    def _differences(self, update: LiveUpdate) -> tuple[TensorDifference, ...]:
        against, name = self._held_against(update.name), update.name
        if not against.gradients.get(name) or not self.trial.gradients.get(name):
            return ()
        atol, rtol = limits_for(self.criteria, "loss")
        loss = compare_outputs(
            "loss",
            torch.tensor(against.losses[name], dtype=torch.float64),
            torch.tensor(self.trial.losses[name], dtype=torch.float64),
            atol=atol,
            rtol=rtol,
        )
        gradients = self.gradient_beside(update, self.trial.gradients[name])
        return (replace(loss, update=name), gradients) if gradients is not None else ()

    def gradient_beside(self, update: LiveUpdate, got: Sequence[Tensor | None]) -> TensorDifference | None:
        """The update's gradients beside FP32's on the same weights; None where these are not known."""
        expected = self._held_against(update.name).gradients.get(update.name)
        if not expected:
            return None
        limit, _ = limits_for(self.criteria, "gradient")
        return compare_gradients(update.facts.layers, expected, got, limit=limit, update=update.name)

    def _held_against(self, name: str) -> FirstGradients:
        return self.beside if name in self.beside.gradients else self.baseline
