"""Autocast that the project's code switches on itself: kept closed in true FP32, and named where it is left on.

A nested `autocast` with a hard-coded dtype would switch itself on again, and so would `torch.set_autocast_enabled`;
either would make an FP32 control lie. What is left on behind a function (a context entered by hand and never exited)
would reach all that runs after it.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from amptui.engine.tracing.source import line_of, user_frame

#: Devices whose autocast a project may switch on.
_DEVICES = ("cpu", "cuda", "xpu", "mps")
#: torch's functions that switch autocast of a device on or off, beside the one that is given the device.
_SWITCHES = {
    "set_autocast_enabled": "cuda",
    "set_autocast_cpu_enabled": "cpu",
    "set_autocast_ipu_enabled": "ipu",
    "set_autocast_xla_enabled": "xla",
}
_AUTOCAST_FILE = torch.autocast.__init__.__code__.co_filename


@dataclass(frozen=True)
class Opened:
    """Autocast that was switched on: for which device and dtype, and by which line (`file:line`) of the user's."""

    device: str
    dtype: str
    where: str | None
    #: Through `torch.cuda.amp` or `torch.cpu.amp`.
    deprecated: bool = False


class OwnAutocast:
    """What user code does with autocast inside of `neutral_autocast`, in this thread."""

    def __init__(self, on_autocast: Callable[[Opened], None] | None) -> None:
        self._on_autocast = on_autocast
        self._thread = threading.get_ident()
        self._contexts: list[tuple[torch.autocast, Opened]] = []
        self._switched: dict[str, Opened] = {}

    def left_on(self) -> Opened | None:
        """Asked outside of all user code: the autocast that it has left on, or would have if that were not kept off."""
        # what is on in truth was switched by a function that had been imported by name, before it could be watched
        unseen = (Opened(device, _dtype_of(device), None) for device in _DEVICES if autocast_is_on(device))
        opened = (told for _, told in reversed(self._contexts))
        return next(itertools.chain(opened, self._switched.values(), unseen), None)

    def entered(self, context: torch.autocast) -> None:
        deprecated = type(context).__module__.startswith(("torch.cuda.amp", "torch.cpu.amp"))
        opened = Opened(context.device, _name(context.fast_dtype), _where(), deprecated)
        self._tell(opened)
        if threading.get_ident() == self._thread:
            self._contexts.append((context, opened))

    def exited(self, context: torch.autocast) -> None:
        for index in reversed(range(len(self._contexts))):
            if self._contexts[index][0] is context:
                del self._contexts[index]
                return

    def switched(self, device: str, *, on: bool) -> None:
        if threading.get_ident() != self._thread:
            return
        if not on:
            self._switched.pop(device, None)
            return
        opened = Opened(device, _dtype_of(device), _where())
        self._tell(opened)
        self._switched[device] = opened

    def contexts(self) -> list[torch.autocast]:
        """Those that are still open, the last one first."""
        return [context for context, _ in reversed(self._contexts)]

    def _tell(self, opened: Opened) -> None:
        if self._on_autocast is not None:
            self._on_autocast(opened)


@contextlib.contextmanager
def neutral_autocast(on_autocast: Callable[[Opened], None] | None = None) -> Iterator[OwnAutocast]:
    """Keeps every autocast that is switched on inside off, and one that was left on before.

    `on_autocast` is told of each. What is left on inside is off again at the end.
    """
    own = OwnAutocast(on_autocast)
    enter: Callable[[torch.autocast], Any] = torch.autocast.__enter__
    leave: Callable[..., Any] = torch.autocast.__exit__
    before = [device for device in _DEVICES if autocast_is_on(device)]

    def entered(self: torch.autocast) -> Any:
        wanted = self._enabled
        if wanted:
            own.entered(self)
        self._enabled = False
        try:
            return enter(self)
        finally:
            self._enabled = wanted

    def left(self: torch.autocast, *raised: Any) -> Any:
        own.exited(self)
        return leave(self, *raised)

    for device in before:
        torch.set_autocast_enabled(device, False)
    torch.autocast.__enter__, torch.autocast.__exit__ = entered, left  # type: ignore[method-assign]
    try:
        with _switches_kept_off(own):
            yield own
    finally:
        torch.autocast.__enter__, torch.autocast.__exit__ = enter, leave  # type: ignore[method-assign]
        for context in own.contexts():
            leave(context, None, None, None)
        for device in _DEVICES:
            if autocast_is_on(device) != (device in before):
                torch.set_autocast_enabled(device, device in before)


@contextlib.contextmanager
def _switches_kept_off(own: OwnAutocast) -> Iterator[None]:
    """torch's own `autocast` goes through the same functions: what it puts back is no wish of the user's."""
    originals = {name: getattr(torch, name) for name in _SWITCHES if hasattr(torch, name)}

    def kept_off(original: Callable[..., Any], device: str) -> Callable[..., Any]:
        def switch(*given: Any, **named: Any) -> Any:
            values = [*given, *named.values()]
            of = next((value for value in values if isinstance(value, str)), device)
            if sys._getframe(1).f_code.co_filename != _AUTOCAST_FILE:
                own.switched(of, on=any(value is True for value in values))
            return original(*([of] if original is originals["set_autocast_enabled"] else []), False)

        return switch

    for name, original in originals.items():
        setattr(torch, name, kept_off(original, _SWITCHES[name]))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(torch, name, original)


def autocast_is_on(device: str) -> bool:
    try:
        return torch.is_autocast_enabled(device)
    except RuntimeError:  # this torch has no autocast there
        return False


def _where() -> str | None:
    frame = user_frame(sys._getframe(1))
    return str(line_of(frame)) if frame is not None else None


def _dtype_of(device: str) -> str:
    try:
        return _name(torch.get_autocast_dtype(device))
    except RuntimeError:
        return "half"


def _name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")
