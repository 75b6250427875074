"""Criteria as a form: one field a proposal, a value read from what was typed, refused with what to write instead."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from amptui.findings.criteria import PLAIN, split
from amptui.project import Criteria, ProjectError

_WHOLE = ("decision_changes",)
_WORDS = {"tie": ("same", "any")}
_OPTIONAL = ("progress",)


def with_value(criteria: Criteria, name: str, text: str) -> Criteria:
    """`criteria` with what was typed for `name`. Raises ValueError that says what to write."""
    value = _read(name, text.strip())
    try:
        if name in PLAIN:
            changes: dict[str, Any] = {name: value}
            return replace(criteria, **changes)
        output, part = split(name)
        bound = criteria.outputs.get(output, {})
        parts = dict(bound) if isinstance(bound, Mapping) else {"atol": bound}
        if not isinstance(value, float | int):
            raise ValueError(f"{name}: write a number from 0")  # noqa: TRY004 - a typed text that is none
        return replace(criteria, outputs={**criteria.outputs, output: {**parts, part: float(value)}})
    except ProjectError as error:
        raise ValueError(str(error)) from error


def _read(name: str, text: str) -> float | int | str | None:
    if name in _WORDS:
        if text not in _WORDS[name]:
            raise ValueError(f"{name}: write {' or '.join(_WORDS[name])}")
        return text
    if text.lower() in ("none", "") and name in _OPTIONAL:
        return None
    if name in _WHOLE:
        if not text.isdecimal():
            raise ValueError(f"{name}: write a whole number from 0")
        return int(text)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        none = ", or none" if name in _OPTIONAL else ""
        raise ValueError(f"{name}: write a number from 0, such as 0.01 or 1e-3{none}")
    return value
