"""Plain facts that events carry: what a project consists of, and what was measured on a case or an iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from amptui.protocol.codec import Floats

Pass = Literal["baseline", "trial"]
PhaseName = Literal[
    "zero_grad",
    "forward",
    "check_loss",
    "backward",
    "unscale",
    "check_grads",
    "clip",
    "step",
    "update_scale",
    "scheduler",
]
PHASES: tuple[PhaseName, ...] = PhaseName.__args__  # type: ignore[attr-defined]

#: How a guarded update ended. `bad_…` names what was not finite; nothing bad is ever written into the weights.
Outcome = Literal[
    "ok",
    "bad_loss",
    "bad_gradient",
    "bad_after_unscale",
    "norm_overflow",
    "bad_buffers",
    "no_gradient",
    "bad_before_step",
]


@dataclass(frozen=True, kw_only=True)
class UpdateFacts:
    name: str
    optimizer: str
    fused: bool
    parameters: int
    #: Names of the parameters in the optimizer's order; every per-layer series uses this order.
    layers: tuple[str, ...]
    #: `file:line` of the loss function.
    loss_at: str | None
    scheduler: str | None
    #: Whether it steps by the window's mean loss: ReduceLROnPlateau and what is derived from it.
    scheduler_sees_loss: bool = False
    scheduler_every: int
    every: int
    accumulate: int
    reduce: str
    clip_norm: float | None
    clip_value: float | None


@dataclass(frozen=True, kw_only=True)
class ModuleFacts:
    path: str
    type: str
    parameters: int
    training: bool


@dataclass(frozen=True, kw_only=True)
class CaseFacts:
    id: str
    index: int
    tag: str
    has_target: bool


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Versions and settings that a result depends on; `name` of the device as its driver gives it."""

    python: str
    executable: str
    torch: str
    numpy: str | None
    platform: str
    device: str
    device_name: str
    #: "CUDA 12.8", "ROCm 6.4" or None.
    accelerator: str | None
    threads: int
    #: The project's own precision settings as found (TF32, reduced-precision reductions).
    precision: Mapping[str, str]
    git_commit: str | None
    git_dirty: bool | None


@dataclass(frozen=True, kw_only=True)
class Digests:
    """SHA-256 of what must not change between the runs that are compared."""

    weights: str
    cases: str
    batches: str
    #: Source files of model, loss, outputs and decide, by path.
    sources: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class OutputFacts:
    """One output tensor of one case. `lowest` and `highest` are over the finite values; None if there are none."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nan: int
    positive_inf: int
    negative_inf: int
    lowest: float | None
    highest: float | None
    #: |output − target|: mean, 99th percentile, largest; None without a comparable target.
    error_mean: float | None = None
    error_p99: float | None = None
    error_max: float | None = None


@dataclass(frozen=True, kw_only=True)
class CaseFigures:
    """One case as evaluated once: outputs, decision and margin."""

    case: str
    index: int
    tag: str
    outputs: tuple[OutputFacts, ...]
    #: Plain values; None without `decide`.
    decision: object = None
    margin: float | None = None


@dataclass(frozen=True, kw_only=True)
class UpdateRecord:
    """One update in one iteration, as decided by the guard."""

    step: int
    update: str
    outcome: Outcome
    #: Mean of the micro-batches' losses, undivided.
    loss: float
    losses: Floats
    #: Further entries of a loss mapping, averaged over the window.
    shown: Mapping[str, float]
    #: Unscaled gradient norm per layer in `UpdateFacts.layers`' order; −1 where there is no gradient.
    norms: Floats
    norm: float
    #: Factor that clipping applied; 1.0 where it was left out.
    clipped_to: float
    found_inf: bool
    #: Loss scale used for this update; 1.0 without a scaler.
    scale: float
    applied: bool
    skipped: bool
    withheld: bool
    #: Whether the gradient was all zero.
    zero_gradient: bool
    learning_rate: float
    #: Names of what was not finite: layers, buffers, or micro-batch indices as "micro-batch 2".
    bad: tuple[str, ...] = ()
    seconds: float = 0.0
    #: Whether the loss function returned a mapping, whose `loss` drives backward.
    mapped_loss: bool = False


@dataclass(frozen=True, kw_only=True)
class IterationRecord:
    """One whole iteration: all updates that took part, then the scale."""

    step: int
    updates: tuple[UpdateRecord, ...]
    scale_before: float
    scale_after: float
    growth_tracker: int
    growth_interval: int
    seconds: float
    #: Bytes in use on the device (CUDA) or resident in the engine process.
    memory: int
