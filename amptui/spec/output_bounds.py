"""The bounds of single outputs in an amptui.yaml: how they are written, shown to whoever wrote them otherwise.

Screen and account name such a bound by its path, ``outputs.logits.atol``; in the file it is a map in a map.
"""

from __future__ import annotations

import json
import math
import re

from amptui.spec.strict_yaml import YamlMap, YamlNode, YamlText

BOUNDS = ("atol", "rtol")
_EXAMPLE = "0.05"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_YAML_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")


def form(output: str = "output", bound: str = "atol", value: YamlNode | None = None) -> str:
    """The bound of one output as it is written, with the number in `value`: ``outputs: {logits: {atol: 0.05}}``."""
    quoted = not _PLAIN.fullmatch(output) or output.lower() in _YAML_WORDS
    name = json.dumps(output, ensure_ascii=False) if quoted else output
    return f"outputs: {{{name}: {{{bound}: {_number(value)}}}}}"


def meant(key: str, value: YamlNode) -> str | None:
    """The form of what a key that no criterion has was meant as, where that is the bound of an output; else None.

    Understood are the path as it is shown (``outputs.logits.atol``, ``logits.atol``) and an output's name without
    `outputs` around it.
    """
    path = key.removeprefix("outputs.")
    output, _, bound = path.rpartition(".")
    if output and bound in BOUNDS:
        return form(output, bound, value)
    if isinstance(value, YamlMap):
        for inner, number in value.entries:
            if inner.text in BOUNDS:
                return form(path, inner.text, number)
    return form(path, "atol", value) if path != key else None


def for_all(value: YamlNode) -> str:
    """What to write where `outputs` holds one value instead of a map."""
    return f"{form(value=value)} by the output's name, or atol: {_number(value)} for every output"


def _number(value: YamlNode | None) -> str:
    try:
        finite = isinstance(value, YamlText) and math.isfinite(float(value.text)) and float(value.text) >= 0.0
    except ValueError:
        return _EXAMPLE
    return value.text.strip() if finite and isinstance(value, YamlText) and len(value.text) < 20 else _EXAMPLE
