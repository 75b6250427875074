"""The process that reads one checkpoint.

It is run by path with `python -I -S`: no folder is put on sys.path and no site code runs.

It writes lines to its standard output: `P done total` (progress), `S {…}` (an inspection without tensor values) and at
last `R {…}` (the inspection). Arguments: `structure` or `values`, and the path.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys


def register_package() -> None:
    """Make the package `amptui` importable from the folder that this file lies in, and nothing else with it."""
    here = os.path.abspath(__file__)  # noqa: PTH100 - pathlib would cost a third of this process's start
    folder = os.path.dirname(os.path.dirname(here))  # noqa: PTH120
    init = os.path.join(folder, "__init__.py")  # noqa: PTH118
    spec = importlib.util.spec_from_file_location("amptui", init, submodule_search_locations=[folder])
    if spec is None or spec.loader is None:
        raise ImportError(f"{init} cannot be loaded")
    package = importlib.util.module_from_spec(spec)
    sys.modules["amptui"] = package
    spec.loader.exec_module(package)


def main(mode: str, path: str) -> int:
    """Read `path` and write what was found; 0 unless the process itself failed."""
    from amptui.inspection import guard, reading, result, wire  # noqa: PLC0415 - the package is only now importable
    from amptui.inspection.opening import LimitError  # noqa: PLC0415
    from amptui.inspection.result import Inspection  # noqa: PLC0415

    def structure_done(inspection: Inspection) -> None:
        _say("S", wire.packed(inspection))
        guard.allow_time_for(inspection.size)

    def progress(done: int, total: int) -> None:
        _say("P", f"{done} {total}")

    gc.disable()  # the trees are dropped as a whole, when the process ends
    guard.confine(values=mode == "values")
    try:
        found = reading.inspect_path(path, values=mode == "values", structure_done=structure_done, progress=progress)
    except (MemoryError, LimitError) as error:
        problem = str(error) or "its structure needs more memory than the 512 MB that reading it may use"
        found = result.unread(path, "limit", problem, "The file is not like any that training writes: do not load it.")
    _say("R", wire.packed(found))
    return 0


def _say(kind: str, text: str) -> None:
    """Write one line without any buffering, however long."""
    rest = memoryview(f"{kind} {text}\n".encode("ascii"))
    while rest:
        rest = rest[os.write(1, rest) :]


if __name__ == "__main__":
    register_package()
    sys.exit(main(sys.argv[1], sys.argv[2]))
