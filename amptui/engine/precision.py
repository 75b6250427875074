"""Which arithmetic is on: true FP32 for baseline and controls, the policy's autocast for the trial.

True FP32 means more than "no autocast": TF32 and reduced-precision reductions are off whatever the project set, and an
autocast that user code opens itself is kept closed (a nested `autocast` with a hard-coded dtype would otherwise switch
itself on again and make the control lie).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

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
#: Devices whose autocast a project may have left open before it was given to amptui.
_AUTOCAST_DEVICES = ("cpu", "cuda", "xpu", "mps")


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
def true_fp32(*, on_autocast: Callable[[torch.autocast], None] | None = None) -> Iterator[None]:
    """FP32 arithmetic for everything inside, whatever the project set; its settings are put back at the end.

    `on_autocast` is told of every autocast context that user code tried to switch on.
    """
    before = PrecisionSettings.current()
    _set_true_fp32()
    try:
        with neutral_autocast(on_autocast):
            yield
    finally:
        before.restore()


@contextlib.contextmanager
def neutral_autocast(on_autocast: Callable[[torch.autocast], None] | None = None) -> Iterator[None]:
    """Keeps every autocast context that is entered inside switched off, and one that was left open before."""
    enter: Callable[[torch.autocast], Any] = torch.autocast.__enter__
    left_open = [device for device in _AUTOCAST_DEVICES if _autocast_is_on(device)]

    def entered(self: torch.autocast) -> Any:
        wanted = self._enabled
        if wanted and on_autocast is not None:
            on_autocast(self)
        self._enabled = False
        try:
            return enter(self)
        finally:
            self._enabled = wanted

    torch.autocast.__enter__ = entered  # type: ignore[method-assign]
    for device in left_open:
        torch.set_autocast_enabled(device, False)
    try:
        yield
    finally:
        torch.autocast.__enter__ = enter  # type: ignore[method-assign]
        for device in left_open:
            torch.set_autocast_enabled(device, True)


def _autocast_is_on(device: str) -> bool:
    try:
        return torch.is_autocast_enabled(device)
    except RuntimeError:  # this torch has no autocast there
        return False


@contextlib.contextmanager
def watched_autocast(on_autocast: Callable[[torch.autocast], None]) -> Iterator[None]:
    """Tells of every autocast context that is entered inside, and leaves it as it is."""
    enter: Callable[[torch.autocast], Any] = torch.autocast.__enter__

    def entered(self: torch.autocast) -> Any:
        on_autocast(self)
        return enter(self)

    torch.autocast.__enter__ = entered  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autocast.__enter__ = enter  # type: ignore[method-assign]


def policy_autocast(device: str, dtype: str, enabled: bool) -> contextlib.AbstractContextManager[object]:
    """A fresh autocast context. One is opened per forward: its weight cache must never outlive a weight change.

    Without autocast a context that the project left open is closed.
    """
    kind = torch.device(device).type
    if enabled:
        return torch.autocast(kind, dtype=_DTYPES[dtype])
    return torch.autocast(kind, enabled=False) if _autocast_is_on(kind) else contextlib.nullcontext()
