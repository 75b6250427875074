"""What the rules judge by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from amptui.inspection.known_globals import Grade
from amptui.inspection.layouts import Layout
from amptui.inspection.nodes import Node, mapping_of
from amptui.inspection.pickle_walk import Code
from amptui.inspection.result import Steps, TensorFact
from amptui.inspection.survey import Sightings


@dataclass(frozen=True, slots=True)
class Precision:
    """What tells in which precision the run trained: sentence fragments for each possibility."""

    fp16: tuple[str, ...] = ()
    bf16: tuple[str, ...] = ()
    off: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A checkpoint, read and surveyed."""

    layout: Layout
    sightings: Sightings
    tensors: Sequence[TensorFact]
    steps: Steps
    precision: Precision
    grades: Mapping[str, Grade]
    code: Code
    missing: Sequence[str]


def precision_of(sightings: Sightings, tensors: Sequence[TensorFact]) -> Precision:
    """Read the saved settings and the dtypes of weights and master copies."""
    fp16: list[str] = []
    bf16: list[str] = []
    off: list[str] = []
    said_by = [(place, key, _setting(key, value)) for place, key, value in sightings.settings]
    in_bfloat16 = {place for place, key, said in said_by if said == "bf16" and key == "amp_dtype"}
    for place, key, said in said_by:
        if said is not None and not (said == "fp16" and place in in_bfloat16):
            words = f"{place}.{key}" if place and not place.endswith(": ") else f"{place}{key}"
            {"fp16": fp16, "bf16": bf16, "off": off}[said].append(f"{words} says so")
    dtypes = {tensor.dtype for tensor in tensors if tensor.role == "parameters"}
    masters = {tensor.dtype for tensor in tensors if tensor.role == "master_copies"}
    if "float16" in dtypes and "float32" in masters:
        fp16.append("float16 weights with float32 master copies")
    if "bfloat16" in dtypes and "float16" not in dtypes:
        bf16.append("bfloat16 weights")
    return Precision(tuple(fp16), tuple(bf16), tuple(off))


def _setting(key: str, value: Node) -> str | None:
    """fp16, bf16, off, or None where the setting does not tell."""
    fields = mapping_of(value)
    if fields is not None:
        value = fields.get("enabled")
    said = str(value).lower() if isinstance(value, str | int | float | bool) else ""
    if said in ("16", "16.0", "16-mixed", "fp16", "float16", "half"):
        return "fp16"
    if said in ("bf16", "bf16-mixed", "bfloat16"):
        return "bf16"
    if value is True:
        return {
            "fp16": "fp16",
            "use_fp16": "fp16",
            "half": "fp16",
            "bf16": "bf16",
            "amp": "fp16",
            "use_amp": "fp16",
        }.get(key)
    if (value is False and key in ("fp16", "amp", "use_amp", "use_fp16")) or said in ("no", "32", "32-true"):
        return "off"
    return None
