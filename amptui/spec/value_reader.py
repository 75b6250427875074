"""Reading one value of an amptui.yaml as the kind that the schema wants, whatever its text looks like."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amptui.project import ProjectError
from amptui.spec.error import SpecError
from amptui.spec.near import did_you_mean, listed
from amptui.spec.run_settings import RunSettings
from amptui.spec.strict_yaml import YamlFile, YamlList, YamlMap, YamlNode, YamlText

_WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)")
_LONGEST_NUMBER = 40
_NOTHING = ("", "~", "null", "Null", "NULL")
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True)
class ValueReader:
    """Reads the values of one file. Each method takes one kind and refuses anything else at its place, as `key`."""

    file: YamlFile

    @property
    def folder(self) -> Path:
        return self.file.path.parent

    def entries(self, node: YamlNode, key: str, known: list[str]) -> Iterator[tuple[str, YamlNode, str]]:
        """Key, value and full key of each entry of a map whose keys are all known."""
        for name, value in self.map(node, key, f"with {listed(known)}").entries:
            full = f"{key}.{name.text}" if key else name.text
            if name.text not in known:
                raise self.file.refused(
                    name.mark,
                    f"unknown key '{full}'",
                    did_you_mean(name.text, known) or f"known are {listed(known, 12)}",
                )
            yield name.text, value, full

    def map(self, node: YamlNode, key: str, example: str) -> YamlMap:
        if not isinstance(node, YamlMap):
            raise self.refused(node, key, f"write a map {example}")
        return node

    def text(self, node: YamlNode, key: str, example: str) -> str:
        if not isinstance(node, YamlText) or is_nothing(node) or not node.text.strip():
            raise self.refused(node, key, f"write a text {example}".rstrip())
        if not node.text.isprintable():
            raise self.refused(node, key, "write it without control characters")
        return node.text

    def texts(self, node: YamlNode, key: str) -> list[str]:
        if not isinstance(node, YamlList):
            raise self.refused(node, key, "write a list such as [decoder.norm]")
        return [self.text(item, f"{key}[{i}]", "such as decoder.norm") for i, item in enumerate(node.items)]

    def path(self, node: YamlNode, key: str, example: str) -> Path:
        text = self.text(node, key, example)
        if len(os.fsencode(text)) > 1024 or any(len(os.fsencode(part)) > 255 for part in text.split("/")):
            raise self.refused(node, key, "write a shorter path")
        return Path.home() / text[2:] if text.startswith("~/") else self.folder / text

    def flag(self, node: YamlNode, key: str) -> bool:
        if not isinstance(node, YamlText) or node.text.lower() not in _FLAGS:
            raise self.refused(node, key, "write true or false")
        return _FLAGS[node.text.lower()]

    def whole(self, node: YamlNode, key: str) -> int:
        if not isinstance(node, YamlText) or not _WHOLE.fullmatch(node.text) or len(node.text) > _LONGEST_NUMBER:
            raise self.refused(node, key, "write a whole number such as 50")
        return int(node.text)

    def number(self, node: YamlNode, key: str) -> float:
        if isinstance(node, YamlText) and len(node.text) <= _LONGEST_NUMBER:
            if _NUMBER.fullmatch(node.text):
                return float(node.text)
            if _NOT_FINITE.fullmatch(node.text):
                return float(node.text.replace(".", "").lower())
        raise self.refused(node, key, "write a number such as 0.001")

    def anything(self, node: YamlNode, key: str) -> object:
        """A value without a schema, by YAML 1.2; what YAML 1.1 reads differently must be put in quotes."""
        if isinstance(node, YamlMap):
            return {name.text: self.anything(value, f"{key}.{name.text}") for name, value in node.entries}
        if isinstance(node, YamlList):
            return [self.anything(item, f"{key}[{i}]") for i, item in enumerate(node.items)]
        if not node.plain:
            return node.text
        if node.text in _NOTHING:
            return None
        if node.text in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return node.text.lower() == "true"
        if _WHOLE.fullmatch(node.text):
            return self.whole(node, key)
        if _NUMBER.fullmatch(node.text) or _NOT_FINITE.fullmatch(node.text):
            return self.number(node, key)
        if node.typed:
            raise self.refused(
                node, key, f'write "{node.text}" if it is a text', ", which YAML readers take differently"
            )
        return node.text

    # Refusals

    def checked(self, node: YamlNode, key: str, **given: Any) -> RunSettings:
        """Settings with the one value `given`; what a Policy, Scaler or Criteria says against it is said at `node`."""
        try:
            return RunSettings(**given)
        except ProjectError as error:
            _, write, mend = str(error).rpartition(": write ")
            raise self.refused(node, key, f"write {mend}" if write else str(error)) from None

    def refused(self, node: YamlNode, key: str, mend: str, more: str = "") -> SpecError:
        """The error for a value of the wrong kind."""
        return self.file.refused(node.mark, f"{key} is {kind_of(node)}{more}", mend)


def is_nothing(node: YamlNode) -> bool:
    return isinstance(node, YamlText) and node.plain and node.text in _NOTHING


def kind_of(node: YamlNode) -> str:
    if isinstance(node, YamlText):
        if is_nothing(node):
            return "empty"
        return f"'{node.text[:79]}…'" if len(node.text) > 80 else f"'{node.text}'"
    return "a list" if isinstance(node, YamlList) else "a map"
