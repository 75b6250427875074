"""Marks on storages: which memory holds values that came from which events, until it is overwritten."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from amptui.engine.tracing.values import Kind

Geometry = tuple[int, tuple[int, ...], tuple[int, ...]]


def storage_key(tensor: Tensor) -> int | None:
    """Identity of the memory behind a tensor; None where there is none of its own (sparse, subclasses)."""
    try:
        key: int = tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None
    return key


def geometry(tensor: Tensor) -> Geometry:
    """Which part of its storage a tensor is."""
    return int(tensor.storage_offset()), tuple(tensor.shape), tuple(tensor.stride())


@dataclass(slots=True)
class Mark:
    """Ids that one storage carries."""

    ids: frozenset[int]
    #: Kinds of the part that was written last, so that the same view need not be read again.
    part: Geometry | None
    kinds: frozenset[Kind]
    #: While this exists the address of the storage is not given to another one.
    reserved: StorageWeakRef

    def covers(self, tensor: Tensor) -> bool:
        """Whether `kinds` are exactly what this view holds."""
        return self.part is not None and self.part == geometry(tensor)


class StorageMarks:
    """A mapping from storage to ids, by identity of the memory and so shared by all views."""

    def __init__(self) -> None:
        self._marks: dict[int, Mark] = {}

    def __bool__(self) -> bool:
        return bool(self._marks)

    def get(self, tensor: Tensor) -> Mark | None:
        """The mark on the tensor's storage."""
        if not self._marks:
            return None
        key = storage_key(tensor)
        return None if key is None else self._marks.get(key)

    def put(self, tensor: Tensor, ids: Iterable[int], kinds: frozenset[Kind] = frozenset()) -> None:
        """Mark the storage with these ids; a part that others share keeps theirs too."""
        key = storage_key(tensor)
        if key is None:
            return
        old = self._marks.get(key)
        ids = frozenset(ids)
        if old is not None and not covers_storage(tensor):
            ids |= old.ids
        reserved = old.reserved if old is not None else StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        self._marks[key] = Mark(ids, geometry(tensor), kinds, reserved)

    def clear(self, tensor: Tensor) -> None:
        """Forget the storage, if the tensor is all of it; else only what was known of its parts."""
        if not self._marks:
            return
        key = storage_key(tensor)
        mark = self._marks.get(key) if key is not None else None
        if mark is None or key is None:
            return
        if covers_storage(tensor):
            del self._marks[key]
        else:
            mark.part = None


def covers_storage(tensor: Tensor) -> bool:
    """Whether the tensor is all of its storage."""
    return tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()
