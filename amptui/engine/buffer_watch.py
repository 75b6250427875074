"""Whether a buffer has turned infinite or NaN, told with the numbers of the guard's one transfer.

BatchNorm's statistics are many and small, so those of one dtype are laid end to end and their extremes brought as two
numbers. Which of them it was is asked only when one is not finite; then that one is looked at by itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from amptui.engine.live import LiveProject
from amptui.engine.norms import norms_of

#: Elements up to which a buffer is laid beside others: copying costs less than one more operator.
_SMALL = 1 << 14
_COMPARED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class BufferWatch:
    """The float buffers of a project, and what was not finite among them at the last reading."""

    def __init__(self, live: LiveProject) -> None:
        self._live = live
        self._slots = live.buffer_slots()
        self.buffers = live.float_buffers()
        #: 1 infinite, 2 NaN, by name; finite ones are left out. Only a change for the worse is told.
        self._states = {name: state for name, buffer in self.buffers.items() if (state := _state(buffer))}
        self._arrange()

    def __contains__(self, name: str) -> bool:
        return name in self.buffers

    @property
    def states(self) -> Mapping[str, int]:
        """What the last reading left. Assigned back, what turns bad once more is told once more."""
        return self._states

    @states.setter
    def states(self, states: Mapping[str, int]) -> None:
        self._states = dict(states)
        self._arrange()

    def figures(self) -> list[Tensor]:
        """One-dimensional tensors to bring to the host: `gone_bad` wants their numbers."""
        if self._slots.changed():  # a forward may have put another tensor in a buffer's place
            self._arrange()
        try:
            return self._figures()
        except RuntimeError:  # a buffer took another form in place, such as through `.data`
            self._arrange()
            return self._figures()

    def gone_bad(self, numbers: Iterator[float]) -> tuple[str, ...]:
        """Names of the buffers that are worse than at the last reading; takes its own numbers from `numbers`."""
        suspects: set[str] = set()
        for names, _ in self._together:
            lowest, highest = next(numbers), next(numbers)
            if not (math.isfinite(lowest) and math.isfinite(highest)):
                suspects.update(names)
        for name, norm in zip(self._singly, itertools.islice(numbers, len(self._singly)), strict=True):
            if not math.isfinite(norm):
                suspects.add(name)
        if not suspects and not self._states:
            return ()
        before = self._states
        states = {
            name: state for name, buffer in self.buffers.items() if name in suspects and (state := _state(buffer))
        }
        if states != before:
            self.states = states
        return tuple(name for name, state in states.items() if state > before.get(name, 0))

    def _figures(self) -> list[Tensor]:
        found = [torch.stack(torch.aminmax(torch.cat(group))) for _, group in self._together]
        norms = norms_of(list(self._singly.values()))
        return [*found, norms.stacked] if norms is not None else found

    def _arrange(self) -> None:
        """Small vectors in groups; by itself what is large, of another form, or not finite already."""
        self.buffers = self._live.float_buffers()
        groups: dict[object, tuple[list[str], list[Tensor]]] = {}
        self._singly: dict[str, Tensor] = {}
        for name, buffer in self.buffers.items():
            small = buffer.dim() == 1 and 0 < buffer.numel() <= _SMALL and buffer.dtype in _COMPARED
            if small and name not in self._states:
                names, group = groups.setdefault((buffer.device, buffer.dtype), ([], []))
                names.append(name)
                group.append(buffer)
            else:
                self._singly[name] = buffer
        self._together = list(groups.values())


def _state(buffer: Tensor) -> int:
    if bool(torch.isnan(buffer).any()):
        return 2
    return 1 if bool(torch.isinf(buffer).any()) else 0
