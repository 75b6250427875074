"""The training step as a user's own loop would run it: no guard, no hooks, no tape, nothing read on the host.

`GradScaler.step` itself reads found_inf, as in every loop that uses it. Schedulers are left out: they are the same host
work in FP32 and under a policy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amptui.engine.evaluate import call_outputs
from amptui.engine.failures import user_code
from amptui.engine.live import LiveProject, LiveUpdate, split_loss
from amptui.engine.precision import policy_autocast
from amptui.project import Policy, Scaler


@dataclass(eq=False)
class PlainLoop:
    """FP32 (`mixed` False) or the policy, over windows that were made ready before."""

    live: LiveProject
    policy: Policy
    mixed: bool
    #: The trial's own scaler settings, begun at the scale that it ended with; None without a scaler.
    settings: Scaler | None = None

    def __post_init__(self) -> None:
        self.scaler = (
            torch.amp.GradScaler(
                self.live.device.type,
                init_scale=self.settings.init_scale,
                growth_factor=self.settings.growth_factor,
                backoff_factor=self.settings.backoff_factor,
                growth_interval=self.settings.growth_interval,
            )
            if self.settings is not None
            else None
        )

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        return policy_autocast(self.live.device.type, self.policy.dtype, self.mixed and self.policy.autocast)

    def step(self, index: int, window: Sequence[Any]) -> None:
        """One iteration: every update that takes part at `index`, on the batches of `window`."""
        taking_part = [update for update in self.live.updates if update.takes_part(index)]
        for update in taking_part:
            self._update(update, window)
        if self.scaler is not None and taking_part:
            self.scaler.update()

    def _update(self, update: LiveUpdate, window: Sequence[Any]) -> None:
        settings, optimizer, scaler = update.update, update.update.optimizer, self.scaler
        optimizer.zero_grad(set_to_none=True)
        for batch in window:
            with self.autocast():
                loss = split_loss(settings.loss(self.live.model, batch)).driving
                if settings.accumulate > 1 and settings.reduce == "mean":
                    loss = loss / settings.accumulate
            scaled: Tensor = loss if scaler is None else scaler.scale(loss)
            scaled.backward()  # type: ignore[no-untyped-call]
        clips = settings.clip_norm is not None or settings.clip_value is not None
        if scaler is not None and clips:
            scaler.unscale_(optimizer)
        if settings.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(update.parameters, settings.clip_norm)
        if settings.clip_value is not None:
            torch.nn.utils.clip_grad_value_(update.parameters, settings.clip_value)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)

    def evaluate(self, inputs: Sequence[Any]) -> None:
        """All cases once, as inference; the caller has put the modules in eval mode."""
        with torch.no_grad():
            for value in inputs:
                with self.autocast():
                    call_outputs(self.live, value)


def in_user_code(work: Callable[[], None]) -> None:
    """Runs `work`, whose failure is the project's."""
    with user_code("measurement"):
        work()
