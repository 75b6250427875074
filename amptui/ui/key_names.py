"""What the keys are called in sentences: as the user has bound them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from amptui.ui.keys import KEYS, Key, shown
from amptui.ui.raster.glyphs import UNICODE, Glyphs


@dataclass(frozen=True)
class KeyNames:
    """`keys` as the screen was started with them."""

    keys: Sequence[Key] = KEYS
    glyphs: Glyphs = UNICODE

    def say(self, text: str, **values: object) -> str:
        """`text` with a key's name for its id in braces: ``{proceed} runs it`` is “c runs it”.

        Other braces take `values`, in which braces are only braces: what a project said may come in them.
        """
        return text.format(**self._names, **values)

    def key(self, identity: str) -> str:
        """The key that the framework sends for the binding `identity`."""
        return next(key.keys[0] for key in self.keys if key.id == identity)

    @cached_property
    def _names(self) -> Mapping[str, str]:
        return {key.id: shown(key.keys[0], self.glyphs) for key in self.keys}


#: Where nobody has bound a key otherwise.
AS_DECLARED = KeyNames()
