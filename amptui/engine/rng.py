"""The state of every random number generator that a training step may draw from."""

from __future__ import annotations

import ctypes
import functools
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from amptui.engine.plain_values import from_plain, same_bits, to_plain

#: `mt19937_state` of NumPy: uint32 key[624], int pos.
_MT19937_BYTES = 625 * 4


@dataclass(frozen=True, eq=False)
class RngState:
    """Generators of torch (CPU and each initialised CUDA device), of Python's `random`, and of NumPy if imported.

    `torch_cpu` and the values of `cuda` (by device index) are uint8 tensors on the CPU; `python` is what
    `random.getstate()` returns; `numpy` is `numpy.random.get_state(legacy=False)`, or None. Equal by content.
    """

    torch_cpu: Tensor
    cuda: Mapping[int, Tensor]
    python: tuple[Any, ...]
    numpy: Mapping[str, Any] | None
    #: NumPy's generator as it lies in memory, to see without asking NumPy whether anything was drawn since.
    numpy_words: bytes | None = None

    def first_difference(self, other: RngState) -> str | None:
        """The generator whose states differ ("torch", "cuda:0", "python", "numpy"), None if they are equal."""
        if not same_bits(self.torch_cpu, other.torch_cpu):
            return "torch"
        for index in sorted(self.cuda.keys() | other.cuda.keys()):
            mine, its = self.cuda.get(index), other.cuda.get(index)
            if mine is None or its is None or not same_bits(mine, its):
                return f"cuda:{index}"
        if self.python != other.python:
            return "python"
        return None if _same_numpy(self.numpy, other.numpy) else "numpy"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RngState) and (self is other or self.first_difference(other) is None)

    __hash__ = None  # type: ignore[assignment]  # equal by content, and the content is tensors

    def as_plain(self) -> dict[str, Any]:
        """Tensors and primitives only, as `torch.load(weights_only=True)` accepts them."""
        return {
            "torch": self.torch_cpu,
            "cuda": dict(self.cuda),
            "python": self.python,
            "numpy": to_plain(self.numpy, "rng/numpy"),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> RngState:
        """The inverse of `as_plain`."""
        version, numbers, gauss = plain["python"]
        numpy = from_plain(plain["numpy"])
        return cls(plain["torch"], dict(plain["cuda"]), (version, tuple(numbers), gauss), numpy)


def capture(like: RngState | None = None) -> RngState:
    """The state of all generators now (about 50 µs, 12 without NumPy); parts that equal those of `like` are shared.

    Nothing is initialised by asking: CUDA only if the process uses it, NumPy only if something has imported it.
    """
    torch_cpu = torch.get_rng_state()
    cuda = _cuda_states()
    python = random.getstate()
    numpy_random = _numpy_random()
    words = None if numpy_random is None else _numpy_words(numpy_random)
    if like is not None and _nothing_drawn(words, like):
        numpy = like.numpy
    else:
        numpy = None if numpy_random is None else numpy_random.get_state(legacy=False)
    if like is not None:
        torch_cpu = like.torch_cpu if same_bits(torch_cpu, like.torch_cpu) else torch_cpu
        cuda = {
            index: like.cuda[index] if index in like.cuda and same_bits(state, like.cuda[index]) else state
            for index, state in cuda.items()
        }
        python = like.python if python == like.python else python
        numpy = like.numpy if numpy is like.numpy or _same_numpy(numpy, like.numpy) else numpy
    return RngState(torch_cpu, cuda, python, numpy, words)


def restore(state: RngState) -> tuple[str, ...]:
    """Puts all generators back; returns those that this process lacks ("cuda:1", "numpy"), in order.

    A generator that was not in use when `state` was captured is left alone. NumPy that was in use is imported.
    """
    left_out = []
    torch.set_rng_state(state.torch_cpu)
    devices = torch.cuda.device_count() if state.cuda and torch.cuda.is_available() else 0
    for index, cuda in state.cuda.items():
        if index < devices:
            torch.cuda.set_rng_state(cuda, index)
        else:
            left_out.append(f"cuda:{index}")
    random.setstate(state.python)
    if state.numpy is not None:
        try:
            import numpy.random  # noqa: PLC0415 - only where the run had it
        except ImportError:
            left_out.append("numpy")
        else:
            if not _nothing_drawn(_numpy_words(numpy.random), state):
                numpy.random.set_state(dict(state.numpy))
    return tuple(left_out)


def _cuda_states() -> dict[int, Tensor]:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {}
    return {index: torch.cuda.get_rng_state(index) for index in range(torch.cuda.device_count())}


def _numpy_random() -> ModuleType | None:
    # NumPy imports its generators on first use, seeded by the system: asked now, they can be put back later.
    return getattr(sys.modules.get("numpy"), "random", None)


def _numpy_words(numpy_random: Any) -> bytes | None:
    """The 624 words and the position of NumPy's global Mersenne Twister; None for another generator.

    Getting or setting its state through NumPy costs 100 to 200 µs, reading it through the documented `ctypes`
    interface of the bit generator less than one, once its address is known.
    """
    get = getattr(numpy_random, "get_bit_generator", None)
    words = None if get is None else _twister_memory(get())
    return None if words is None else bytes(words)


@functools.lru_cache(maxsize=1)  # it keeps the generator, and so its memory, alive
def _twister_memory(generator: Any) -> ctypes.Array[ctypes.c_ubyte] | None:
    if type(generator).__name__ != "MT19937":
        return None
    return (ctypes.c_ubyte * _MT19937_BYTES).from_address(generator.ctypes.state_address)


def _nothing_drawn(words: bytes | None, since: RngState) -> bool:
    """Whether NumPy's generator is still that of `since`.

    A normal deviate kept for the next call could be used up without moving the generator; then nothing is concluded.
    """
    return (
        words is not None
        and words == since.numpy_words
        and since.numpy is not None
        and not since.numpy.get("has_gauss", 1)
    )


def _same_numpy(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(_same_value(one[name], other[name]) for name in one)


def _same_value(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return _same_numpy(one, other)
    if hasattr(one, "tobytes") and hasattr(other, "tobytes"):
        return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())
    return bool(one == other)
