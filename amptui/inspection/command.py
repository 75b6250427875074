"""The command `amptui inspect PATH [PATH2]`: reads in child processes, writes the JSON, knows the exit code."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from amptui.inspection.compare import Change, compare
from amptui.inspection.process import Progress, inspect_in_child
from amptui.inspection.result import Inspection
from amptui.inspection.wire import public
from amptui.session.named_file import named_path, written

EXIT_CLEAN, EXIT_FAULT, EXIT_UNREADABLE = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was asked: one checkpoint, or two and what changed from the first to the second."""

    inspections: tuple[Inspection, ...]
    changes: tuple[Change, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 read and no fault, 1 a fault, 2 nothing readable."""
        if not any(inspection.readable for inspection in self.inspections):
            return EXIT_UNREADABLE
        return EXIT_FAULT if any(inspection.has_fault for inspection in self.inspections) else EXIT_CLEAN

    def as_json(self) -> dict[str, object]:
        """The first checkpoint's documented object; with a second one, that as `second`, and `changes`."""
        result = public(self.inspections[0])
        if len(self.inspections) > 1:
            result["second"] = public(self.inspections[1])
            result["changes"] = [dataclasses.asdict(change) for change in self.changes]
        return result


def inspect(paths: Sequence[str], *, values: bool = False, progress: Progress | None = None) -> Answer:
    """Look into one checkpoint, or into two and compare them. Never raises for what is at the paths."""
    inspections = tuple(inspect_in_child(path, values=values, progress=progress) for path in paths[:2])
    readable = len(inspections) == 2 and all(inspection.readable for inspection in inspections)
    return Answer(inspections=inspections, changes=compare(*inspections) if readable else ())


def run(
    paths: Sequence[str],
    json_path: str | None,
    values: bool,
    show: Callable[[Answer], object],
    progress: Progress | None = None,
) -> int:
    """Inspect `paths`, write the JSON where one is wanted, `show` the answer, and return the exit code.

    OSError where the JSON file cannot be written, SessionError where it is none.
    """
    answer = inspect(paths, values=values, progress=progress)
    if json_path is not None:
        write_json(answer, json_path)
    show(answer)
    return answer.exit_code


def write_json(answer: Answer, path: str) -> None:
    """Write the answer's JSON to `path`, whole or not at all (a pipe or a device is simply written to).

    ``-`` is standard output.
    """
    text = json.dumps(answer.as_json(), indent=1) + "\n"
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    with written(named_path(path, "--json")) as file:
        file.write(text.encode("ascii"))
