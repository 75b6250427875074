"""What the screen is started with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from amptui.session.folder import SessionFolder
from amptui.spec.run_settings import RunSettings
from amptui.ui.keys import KEYS, Key
from amptui.ui.theme import Look


@dataclass(frozen=True, kw_only=True)
class Start:
    """`run` starts an engine for `settings`, `attach` takes up a living one, `open` looks at what was recorded."""

    how: Literal["run", "attach", "open"]
    folder: SessionFolder
    settings: RunSettings | None = None
    take_over: bool = False
    look: Look = field(default_factory=Look)
    keys: Sequence[Key] = KEYS
    #: Paints a second at most.
    paints: float = 8.0
    mouse: bool = True
