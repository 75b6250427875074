"""Where the buffers of some modules hang, and a look at them that is cheap enough for every update."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator

from torch import Tensor, nn


class BufferSlots:
    """The buffers of `modules` (by dotted path) as they hang there, None where a slot is empty.

    Values may change between two looks; what `changed` tells is that another tensor, or none, hangs in some place.
    """

    def __init__(self, modules: Iterable[tuple[str, nn.Module]]) -> None:
        places = [(path, module._buffers) for path, module in modules]
        self.paths = tuple(path for path, _ in places)
        #: The modules' own dicts of buffers, empty ones included.
        self.contents = tuple(content for _, content in places)
        self._note()

    def __iter__(self) -> Iterator[tuple[str, str, Tensor | None]]:
        """(path of the module, name, buffer), in the modules' order."""
        for path, content in zip(self.paths, self.contents, strict=True):
            for name, buffer in content.items():
                yield path, name, buffer

    def changed(self) -> bool:
        """Whether since the last call a buffer was replaced, renamed, registered, removed, or set to or from None.

        Identities alone are compared: to name 150 buffers anew costs many times as much.
        """
        names = [name for content in self._filled for name in content]
        objects = [buffer for content in self._filled for buffer in content.values()]
        if (
            sum(map(len, self.contents)) == len(objects) == len(self._objects)
            and all(map(operator.is_, objects, self._objects))
            and names == self._names
        ):
            return False
        self._note()
        return True

    def _note(self) -> None:
        self._filled = [content for content in self.contents if content]
        self._names = [name for content in self._filled for name in content]
        self._objects = [buffer for content in self._filled for buffer in content.values()]
