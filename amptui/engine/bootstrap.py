"""Starts the engine in the project's own interpreter; run by path: ``python PATH/amptui/engine/bootstrap.py ARGS``.

It makes the package `amptui`, and nothing else from the folder it lies in, known to that interpreter: no folder is put
on `sys.path`, so the project's torch, numpy and yaml stay its own. This file alone must be readable for old Pythons,
because it is the one that says that they are too old: no annotations, no f-strings.

A process that `multiprocessing` spawns reads this file again under another name; it then only makes `amptui` known.
"""

# ruff: noqa: PLC0415, PTH100, PTH118, PTH120 - old Pythons have neither these modules nor pathlib

import os
import sys

LOWEST_PYTHON = (3, 10)


def register(package):
    # type: (str) -> None
    """Makes the folder `package` importable as `amptui`, whatever amptui the interpreter may have of its own."""
    import importlib.util

    here = os.path.join(package, "engine")
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    if "amptui" in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        "amptui", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["amptui"] = module
    spec.loader.exec_module(module)


def refuse(arguments):
    # type: (list[str]) -> None
    """Tells the client, in the one line that it understands, that this Python is too old."""
    import json
    import time

    version = ".".join(str(part) for part in sys.version_info[:3])
    refused = {  # type: dict[str, object]
        "kind": "Refused",
        "code": "old-python",
        "message": "The project's interpreter {} is Python {}; amptui's engine needs {}.{} or newer.".format(
            sys.executable, version, *LOWEST_PYTHON
        ),
        "hint": "Name the interpreter of the environment that the project trains in: --python PATH",
        "where": None,
        "findings": [],
    }
    farewell = {"kind": "Goodbye", "why": "refused"}  # type: dict[str, object]
    channel = int(arguments[arguments.index("--channel") + 1])
    for place, event in enumerate((refused, farewell)):
        line = json.dumps({"seq": place, "time": time.time(), "event": event})
        os.write(channel, (line + "\n").encode("ascii"))


def run(arguments):
    # type: (list[str]) -> int
    if sys.version_info < LOWEST_PYTHON:
        refuse(arguments)
        return 0
    from amptui.engine.main import main

    return main(arguments)


if sys.version_info >= LOWEST_PYTHON:
    register(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
