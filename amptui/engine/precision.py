"""Which arithmetic is on: true FP32 for baseline and controls, the policy's autocast for the trial.

True FP32 means more than "no autocast": TF32 and reduced-precision reductions are off whatever the project set, and an
autocast that user code opens itself is kept closed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from amptui.engine.own_autocast import Opened, OwnAutocast, autocast_is_on, neutral_autocast

_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}

# (name, object, attribute) of every switch that lets float32 arithmetic be done with fewer bits. The string switches
# are torch's `fp32_precision` interface; the legacy `allow_tf32` flags are views of the same state and raise when both
# interfaces were used, so they are not read.
_SWITCHES: tuple[tuple[str, str, str], ...] = (
    ("cuda matmul", "cuda.matmul", "fp32_precision"),
    ("cudnn conv", "cudnn.conv", "fp32_precision"),
    ("cudnn rnn", "cudnn.rnn", "fp32_precision"),
    ("mkldnn matmul", "mkldnn.matmul", "fp32_precision"),
    ("mkldnn conv", "mkldnn.conv", "fp32_precision"),
    ("mkldnn rnn", "mkldnn.rnn", "fp32_precision"),
    ("fp16 reduced-precision reduction", "cuda.matmul", "allow_fp16_reduced_precision_reduction"),
    ("bf16 reduced-precision reduction", "cuda.matmul", "allow_bf16_reduced_precision_reduction"),
    ("fp16 accumulation", "cuda.matmul", "allow_fp16_accumulation"),
)


def torch_dtype(name: str) -> torch.dtype:
    """The dtype that a policy names: `float16` or `bfloat16`."""
    return _DTYPES[name]


@dataclass(frozen=True)
class PrecisionSettings:
    """The project's own arithmetic switches as found, to be shown, and put back for the trial and for timing."""

    #: None where the project set precisions so that torch's older interface no longer has one answer.
    matmul: str | None
    switches: Mapping[str, object]

    @classmethod
    def current(cls) -> PrecisionSettings:
        return cls(_matmul_precision(), {name: _read(owner, key) for name, owner, key in _owners()})

    def restore(self) -> None:
        if self.matmul is not None and _matmul_precision() != self.matmul:
            torch.set_float32_matmul_precision(self.matmul)
        for name, owner, key in _owners():
            if name in self.switches and _read(owner, key) != self.switches[name]:
                setattr(owner, key, self.switches[name])

    def as_text(self) -> dict[str, str]:
        """Every switch as torch itself says it."""
        allowed = {name: v[0] if isinstance(v, tuple) else v for name, v in self.switches.items()}
        return {"float32 matmul": self.matmul or "mixed", **{name: str(value) for name, value in allowed.items()}}


def _matmul_precision() -> str | None:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # both interfaces were used, and contradict each other
        return None


def _read(owner: Any, key: str) -> object:
    """The switch; for reductions (allowed, split-K allowed), both of which are set together."""
    value = getattr(owner, key)
    try:
        return value, getattr(owner, f"{key}_split_k")
    except AttributeError:
        return value


def _owners() -> Iterator[tuple[str, Any, str]]:
    for name, path, key in _SWITCHES:
        owner: Any = torch.backends
        for part in path.split("."):
            owner = getattr(owner, part, None)
        try:
            present = hasattr(owner, key)
        except RuntimeError:
            present = False
        if owner is not None and present:
            yield name, owner, key


def _set_true_fp32() -> None:
    torch.set_float32_matmul_precision("highest")
    for _, owner, key in _owners():
        setattr(owner, key, "ieee" if key == "fp32_precision" else False)


@contextlib.contextmanager
def true_fp32(*, on_autocast: Callable[[Opened], None] | None = None) -> Iterator[OwnAutocast]:
    """FP32 arithmetic for everything inside, whatever the project set; its settings are put back at the end.

    Autocast that user code switches on is kept off, and `on_autocast` is told of it; what is given back tells whether
    some was left on.
    """
    before = PrecisionSettings.current()
    _set_true_fp32()
    try:
        with neutral_autocast(on_autocast) as own:
            yield own
    finally:
        before.restore()


def policy_autocast(device: str, dtype: str, enabled: bool) -> contextlib.AbstractContextManager[object]:
    """A fresh autocast context. One is opened per forward: its weight cache must never outlive a weight change.

    Without autocast a context that the project left open is closed.
    """
    kind = torch.device(device).type
    if enabled:
        return torch.autocast(kind, dtype=_DTYPES[dtype])
    return torch.autocast(kind, enabled=False) if autocast_is_on(kind) else contextlib.nullcontext()
