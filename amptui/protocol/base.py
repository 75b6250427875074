"""What every event and every command is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Event:
    """`durable` events are committed before they are acknowledged; the others are telemetry."""

    durable: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Command:
    pass
