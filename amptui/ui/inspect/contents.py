"""The tree of a checkpoint's contents: where each entry is, what is below it, and which of it is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from amptui.inspection.result import Inspection, Row, ScalerState, TensorFact

#: So many rows are shown at first at least, if there are as many.
FIRST_ROWS = 14
#: So many of the tensors that are not finite are opened at first.
FIRST_BAD = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the tree. `end` is the index behind its last descendant, `parent` is -1 at the top."""

    name: str
    text: str
    depth: int
    #: As findings and tensors spell it: `file: key.key`, or keys alone in a single file.
    path: str
    parent: int
    end: int
    tensor: TensorFact | None = None
    scaler: ScalerState | None = None
    #: Tensors in it, itself included, that hold values which should be finite and are not.
    bad: int = 0


@dataclass(frozen=True)
class Contents:
    entries: tuple[Entry, ...] = ()

    @classmethod
    def of(cls, inspection: Inspection) -> Contents:
        """The contents of an inspection, of which the root of a single file is left out."""
        rows = _without_root(inspection.contents)
        tensors = {tensor.path: tensor for tensor in inspection.tensors}
        scalers = {scaler.path: scaler for scaler in inspection.scalers if scaler.path}
        of_folder = bool(rows) and bool(inspection.contents[0].name)
        places = list(_places(rows, of_folder=of_folder))
        bad = _bad(places, damaged(inspection))
        return cls(
            tuple(
                Entry(row.name, row.text, row.depth, path, parent, end, tensors.get(path), scalers.get(path), count)
                for row, (path, parent, end), count in zip(rows, places, bad, strict=True)
            )
        )

    def is_branch(self, index: int) -> bool:
        """Whether the entry has others below it."""
        return self.entries[index].end > index + 1

    def ancestors(self, index: int) -> Iterator[int]:
        """The entries that `index` is in, from the nearest on."""
        parent = self.entries[index].parent
        while parent >= 0:
            yield parent
            parent = self.entries[parent].parent

    def find(self, path: str) -> int | None:
        """The entry at `path`, else the nearest one that it is in; None where there is neither."""
        while path:
            place = self._by_path.get(path)
            if place is not None:
                return place
            file, colon, keys = path.partition(": ")
            inside = keys.rpartition(".")[0]
            path = (f"{file}: {inside}" if inside else file) if colon else path.rpartition(".")[0]
        return None

    @cached_property
    def bad(self) -> tuple[int, ...]:
        """The tensors that are not finite, in order."""
        return tuple(
            index for index, entry in enumerate(self.entries) if entry.bad and entry.tensor and entry.end == index + 1
        )

    @cached_property
    def _by_path(self) -> dict[str, int]:
        places: dict[str, int] = {}
        for index, entry in enumerate(self.entries):
            places.setdefault(entry.path, index)
        return places

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """What a search looks through, per entry."""
        return tuple(f"{entry.path} {entry.text}".lower() for entry in self.entries)

    def first_opened(self, room: int = FIRST_ROWS) -> frozenset[int]:
        """The branches that are open at first: as deep as fits `room` rows, and down to what matters."""
        opened: set[int] = set()
        level = 0
        while True:
            deeper = {
                index for index, entry in enumerate(self.entries) if entry.depth <= level and self.is_branch(index)
            }
            if len(opened) == len(deeper) or len(shown(self, TreeView(frozenset(deeper))).rows) > max(room, FIRST_ROWS):
                break
            opened, level = deeper, level + 1
        scalers = [index for index, entry in enumerate(self.entries) if entry.scaler is not None]
        for index in (*self.bad[:FIRST_BAD], *scalers[:FIRST_BAD]):
            opened.update(self.ancestors(index))
        return frozenset(opened)


@dataclass(frozen=True)
class TreeView:
    """How the contents are looked at: open branches, the entry under the cursor, the first row, the search."""

    opened: frozenset[int] = frozenset()
    cursor: int = 0
    offset: int = 0
    search: str = ""

    def reveal(self, contents: Contents, index: int) -> TreeView:
        """The cursor on `index`, with everything open that it is in; a search that hides it ends."""
        return replace(self, cursor=index, opened=self.opened | set(contents.ancestors(index)), search="")


@dataclass(frozen=True)
class Shown:
    """The indices of the rows that are shown, in order; of a search, how much it has found and the first of that."""

    rows: Sequence[int] = ()
    found: int = 0
    first: int | None = None


def shown(contents: Contents, view: TreeView) -> Shown:
    """The rows of the open branches; while searching, what was found and what that is in."""
    if view.search.strip():
        return _found(contents, view.search.lower().split())
    rows: list[int] = []
    index = 0
    while index < len(contents.entries):
        rows.append(index)
        index = index + 1 if index in view.opened else contents.entries[index].end
    return Shown(rows)


def _found(contents: Contents, words: Sequence[str]) -> Shown:
    kept: set[int] = set()
    found: list[int] = []
    for index, text in enumerate(contents.searched):
        if all(word in text for word in words):
            found.append(index)
            kept.add(index)
            for parent in contents.ancestors(index):
                if parent in kept:
                    break
                kept.add(parent)
    return Shown(sorted(kept), len(found), found[0] if found else None)


def scrolled(offset: int, place: int, rows: int, height: int) -> int:
    """The offset nearest to `offset` at which row `place` of `rows` is seen in `height` lines, none of them wasted."""
    return max(0, min(max(offset, place - height + 1), place, rows - height))


def damaged(inspection: Inspection) -> set[str]:
    """Paths of the tensors that should be finite and are not; of records (a best score never set) that is usual."""
    records = {tensor.path for tensor in inspection.tensors if tensor.role == "other"}
    return set(inspection.nonfinite) - records


def _without_root(rows: Sequence[Row]) -> Sequence[Row]:
    if len(rows) > 1 and rows[0].depth == 0 and not rows[0].name:
        return [replace(row, depth=row.depth - 1) for row in rows[1:]]
    return rows


def _places(rows: Sequence[Row], *, of_folder: bool) -> Iterator[tuple[str, int, int]]:
    """(path, parent, end) of every row."""
    ends = [0] * len(rows)
    parents = [-1] * len(rows)
    open_rows: list[int] = []
    for index, row in enumerate(rows):
        while open_rows and rows[open_rows[-1]].depth >= row.depth:
            ends[open_rows.pop()] = index
        parents[index] = open_rows[-1] if open_rows else -1
        open_rows.append(index)
    for index in open_rows:
        ends[index] = len(rows)
    paths: list[str] = []
    for row, parent in zip(rows, parents, strict=True):
        separator = ": " if of_folder and row.depth == 1 else "."
        paths.append(f"{paths[parent]}{separator}{row.name}" if parent >= 0 else row.name)
    return zip(paths, parents, ends, strict=True)


def _bad(places: Sequence[tuple[str, int, int]], broken: set[str]) -> list[int]:
    """How many tensors of each row's branch are not finite."""
    counts = [0] * len(places)
    for index in range(len(places) - 1, -1, -1):
        path, parent, end = places[index]
        counts[index] += path in broken and end == index + 1
        if parent >= 0:
            counts[parent] += counts[index]
    return counts
