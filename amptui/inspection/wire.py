"""An `Inspection` as plain JSON values and back: between the reading child and its parent, and for `--json`."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from amptui.findings.finding import Finding
from amptui.inspection.result import Inspection, Row, ScalerState, Steps, TensorFact

SCHEMA = 1


def packed(inspection: Inspection) -> str:
    """One line of JSON that holds all of `inspection`; NaN and infinity as Python's JSON spells them."""
    plain = {field.name: getattr(inspection, field.name) for field in dataclasses.fields(inspection)}
    plain["scalers"] = [dataclasses.asdict(scaler) for scaler in inspection.scalers]
    plain["steps"] = dataclasses.asdict(inspection.steps)
    plain["findings"] = [finding.as_json() for finding in inspection.findings]
    plain["tensors"] = [[getattr(tensor, name) for name in _TENSOR] for tensor in inspection.tensors]
    plain["contents"] = [[row.depth, row.name, row.text] for row in inspection.contents]
    return json.dumps(plain)


def unpacked(line: str | bytes) -> Inspection:
    """The inspection that `packed` wrote."""
    plain: dict[str, Any] = json.loads(line)
    plain["scalers"] = tuple(ScalerState(**_tuples(scaler)) for scaler in plain["scalers"])
    plain["steps"] = Steps(**plain["steps"])
    plain["findings"] = tuple(Finding(**_tuples(finding)) for finding in plain["findings"])
    plain["tensors"] = tuple(_tensor(values) for values in plain["tensors"])
    plain["contents"] = tuple(Row(depth=row[0], name=row[1], text=row[2]) for row in plain["contents"])
    plain["present"] = {part: tuple(places) for part, places in plain["present"].items()}
    return Inspection(**_tuples(plain))


_TENSOR = tuple(field.name for field in dataclasses.fields(TensorFact))


def _tensor(values: list[Any]) -> TensorFact:
    fields = dict(zip(_TENSOR, values, strict=True))
    fields["shape"] = tuple(fields["shape"])
    return TensorFact(**fields)


def _tuples(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}


def public(inspection: Inspection) -> dict[str, Any]:
    """The documented JSON object. Numbers that are not finite are the strings "nan", "inf" and "-inf"."""
    steps = inspection.steps
    result = {
        "schema": SCHEMA,
        "path": inspection.path,
        "format": inspection.format,
        "title": inspection.title,
        "container": inspection.container,
        "files": list(inspection.files),
        "size": inspection.size,
        "readable": inspection.readable,
        "complete": inspection.complete,
        "scaler": [_scaler(scaler) for scaler in inspection.scalers],
        "steps": {
            "loop": steps.loop,
            "optimizer": steps.optimizer,
            "skipped": steps.skipped,
            "epoch": steps.epoch,
            "optimizers": dict(steps.optimizers),
        },
        "dtypes": {role: dict(counts) for role, counts in inspection.dtypes.items()},
        "values_read": inspection.values_read,
        "nonfinite": list(inspection.nonfinite),
        "zero": list(inspection.zero),
        "present": {part: list(places) for part, places in inspection.present.items()},
        "missing": list(inspection.missing),
        "learning_rates": list(inspection.learning_rates),
        "needs_code": list(inspection.needs_code),
        "dangerous": list(inspection.dangerous),
        "findings": [finding.as_json() for finding in inspection.findings],
    }
    spelled: dict[str, Any] = spelled_out(result)
    return spelled


def _scaler(scaler: ScalerState) -> dict[str, Any]:
    names = [
        "path",
        "kind",
        "scale",
        "growth_tracker",
        "growth_interval",
        "growth_factor",
        "backoff_factor",
        "lowest_scale",
        "empty",
        "stored",
    ]
    return {name: getattr(scaler, name) for name in names}


def spelled_out(value: Any) -> Any:
    """`value` with every number that is not finite as a string."""
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, Mapping):
        return {key: spelled_out(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [spelled_out(inner) for inner in value]
    return value
