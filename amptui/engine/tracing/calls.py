"""The torch call in flight and the autocast state it was made in, one level above the dispatcher.

Below autocast neither can be told: an op with an autocast rule runs with the autocast key excluded, which reads as
"off", and `F.normalize` has become a norm, a clamp and a division.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class TorchCalls(TorchFunctionMode):
    """Remembers the call of torch's Python interface that one thread is in."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device
        #: Name of the function or tensor method, such as `linear` or `masked_fill`; None between calls.
        self.name: str | None = None
        #: Name of the last call that raised.
        self.failed: str | None = None
        #: dtype of the autocast that the newest call was made under, or None.
        self.autocast: str | None = None
        #: Whether any call so far was made under autocast.
        self.autocast_seen = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.name = getattr(func, "__name__", None)
        self.autocast = autocast_dtype(self._device)
        self.autocast_seen = self.autocast_seen or self.autocast is not None
        try:
            return func(*args, **(kwargs or {}))
        except Exception:
            self.failed = self.name
            raise
        finally:
            self.name = None


def autocast_dtype(device: str) -> str | None:
    """The dtype of the autocast that is on in this thread, or None. Not to be trusted inside a dispatch mode."""
    if not torch.is_autocast_enabled(device):
        return None
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
