"""Process-wide switches of torch that user code may leave changed: put back, so that every run starts alike.

What the project set before it was opened is its own and stays. What a loss or a decision changes while one run goes on
must not reach the next, or baseline and trial would differ for a reason that is not the policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Switches:
    """As found by `current`; `restore` sets only what differs."""

    default_dtype: torch.dtype
    gradients: bool
    threads: int
    #: 0 off, 1 warn, 2 error.
    deterministic: int
    anomaly: bool
    cudnn_benchmark: bool
    cudnn_deterministic: bool

    @classmethod
    def current(cls) -> Switches:
        return cls(
            default_dtype=torch.get_default_dtype(),
            gradients=torch.is_grad_enabled(),
            threads=torch.get_num_threads(),
            deterministic=torch.get_deterministic_debug_mode(),
            anomaly=torch.is_anomaly_enabled(),
            cudnn_benchmark=torch.backends.cudnn.benchmark,
            cudnn_deterministic=torch.backends.cudnn.deterministic,
        )

    def restore(self) -> None:
        now = Switches.current()
        if now == self:
            return
        torch.set_default_dtype(self.default_dtype)
        torch.set_grad_enabled(self.gradients)
        torch.autograd.set_detect_anomaly(self.anomaly)
        if now.threads != self.threads:
            torch.set_num_threads(self.threads)
        if now.deterministic != self.deterministic:
            torch.set_deterministic_debug_mode(self.deterministic)
        torch.backends.cudnn.benchmark = self.cudnn_benchmark
        torch.backends.cudnn.deterministic = self.cudnn_deterministic
