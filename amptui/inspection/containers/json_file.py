"""JSON files beside a checkpoint (`trainer_state.json`, weight indexes): plain data, bounded."""

from __future__ import annotations

import json

from amptui.inspection.containers.loaded import Loaded
from amptui.inspection.containers.source import Source
from amptui.inspection.notes import fault

MAX_JSON = 64 << 20


def read_json(source: Source) -> Loaded:
    """The value of a JSON file; NaN and Infinity are taken as torch-side writers write them."""
    if source.size > MAX_JSON:
        return _broken(source, f"it has {source.size:,} bytes; at most {MAX_JSON:,} are read")
    try:
        root = json.loads(source.read(0, source.size).decode("utf-8"))
    except (ValueError, RecursionError):
        return _broken(source, "it is empty" if not source.size else "it is not valid JSON")
    return Loaded("json", source.size, root)


def _broken(source: Source, problem: str) -> Loaded:
    finding = fault("damaged", problem, advice="The save was interrupted or the file was edited: fetch it again.")
    return Loaded("json", source.size, findings=(finding,), readable=False, complete=False)
