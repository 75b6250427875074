"""amptui.yaml: the entry point, its arguments, policy, criteria and device of a run. Read by the client only.

The type of a value comes from the schema below, never from how the text looks. Whatever is wrong is said as
``amptui.yaml:7:9: criteria.rtol is '1e-3x'; write a number such as 0.001``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from amptui.project import Criteria, Policy, Scaler
from amptui.spec.error import SpecError
from amptui.spec.near import factories, python_files
from amptui.spec.output_bounds import BOUNDS, for_all, form, meant
from amptui.spec.reference import Reference, parse_reference
from amptui.spec.run_settings import RunSettings
from amptui.spec.strict_yaml import Mark, YamlFile, YamlMap, YamlNode, YamlText
from amptui.spec.value_reader import ValueReader, is_nothing, kind_of

_DEVICE = re.compile(r"[a-z]+(?::[0-9]+)?")


def read_settings(path: Path | str) -> RunSettings:
    """The settings in an amptui.yaml. Relative paths in it begin at its own folder, and so does `app_dir`.

    Raises:
        SpecError: `settings`, with file, line and column; nothing named in the file is imported or run.
    """
    file = YamlFile(Path(path).absolute())
    node = file.document()
    if node is None or is_nothing(node):
        raise file.refused(Mark(1, 1), "the file is empty", _entry_hint(file))
    if not isinstance(node, YamlMap):
        raise file.refused(node.mark, f"the file holds {kind_of(node)}", _entry_hint(file))
    return _Schema(file).settings(node)


def settings_for(spec: str, options: RunSettings, *, folder: Path | str) -> RunSettings:
    """What to run: SPEC from the command line, the amptui.yaml it may name, and the `options` that override both.

    Raises:
        SpecError: as `parse_reference` and `read_settings` do.
    """
    reference = parse_reference(spec, folder=folder)
    if reference.kind == "settings":
        return read_settings(reference.target).overridden_by(options)
    return RunSettings(entry=reference, app_dir=str(Path(folder).absolute())).overridden_by(options)


@dataclass(frozen=True)
class _Schema(ValueReader):
    """What each key of an amptui.yaml may hold."""

    def settings(self, root: YamlMap) -> RunSettings:
        keys: dict[str, Callable[[YamlNode, str], object]] = {
            "entry": self.entry,
            "args": self.arguments,
            "app_dir": self.existing_folder,
            "python": self.interpreter,
            "device": self.device,
            "iterations": self.iterations,
            "session": self.new_folder,
            "policy": self.policy,
            "criteria": self.criteria,
        }
        for name, _ in root.entries:
            for part, kind in (("policy", Policy), ("criteria", Criteria)):
                if name.text not in keys and name.text in [f.name for f in fields(kind)]:
                    raise self.file.refused(name.mark, f"unknown key '{name.text}'", f"write it under {part}:")
        values = {key: keys[key](node, key) for key, node, _ in self.entries(root, "", list(keys))}
        if "entry" not in values:
            raise self.file.refused(Mark(1, 1), "entry is missing", _entry_hint(self.file))
        values.setdefault("app_dir", str(self.folder))
        return RunSettings(**values)  # type: ignore[arg-type]

    def entry(self, node: YamlNode, key: str) -> Reference:
        text = self.text(node, key, "such as train.py:project")
        try:
            reference = parse_reference(text, folder=self.folder)
        except SpecError as error:
            raise self.file.refused(node.mark, f"{key}: {error.message}", error.hint) from None
        if reference.kind == "settings":
            raise self.file.refused(node.mark, f"{key} is another settings file, {text!r}", _entry_hint(self.file))
        return reference

    def arguments(self, node: YamlNode, key: str) -> dict[str, object]:
        arguments: dict[str, object] = {}
        for name, value in self.map(node, key, "such as {width: 64}").entries:
            if not name.text.isidentifier():
                raise self.file.refused(
                    name.mark, f"{key}: '{name.text}' is no name of an argument", "write it as in the code"
                )
            arguments[name.text] = self.anything(value, f"{key}.{name.text}")
        return arguments

    def existing_folder(self, node: YamlNode, key: str) -> str:
        path = self.path(node, key, "such as src")
        if not path.is_dir():
            raise self.refused(node, key, "write a folder that exists", f", and there is no folder {path}")
        return str(path)

    def new_folder(self, node: YamlNode, key: str) -> str:
        path = self.path(node, key, "such as runs/first")
        if path.exists() and not path.is_dir():
            raise self.refused(node, key, "write the name of a folder", f", and {path} is no folder")
        return str(path)

    def interpreter(self, node: YamlNode, key: str) -> str:
        path = self.path(node, key, "such as .venv/bin/python")
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
        elsewhere = shutil.which(path.name) if "/" not in self.text(node, key, "") else None
        mend = f"write {elsewhere}" if elsewhere else "write the path of a Python interpreter"
        why = f"{path} is no program" if path.exists() else f"there is no {path}"
        raise self.refused(node, key, mend, f", and {why}")

    def device(self, node: YamlNode, key: str) -> str:
        text = self.text(node, key, "such as cpu, cuda or cuda:0")
        if not _DEVICE.fullmatch(text):
            raise self.refused(node, key, "write a device such as cpu, cuda or cuda:0")
        return text

    def iterations(self, node: YamlNode, key: str) -> int:
        number = self.whole(node, key)
        self.checked(node, key, iterations=number)
        return number

    def policy(self, node: YamlNode, key: str) -> dict[str, object]:
        values: dict[str, object] = {}
        for name, value, where in self.entries(node, key, [f.name for f in fields(Policy)]):
            match name:
                case "autocast":
                    given: object = self.flag(value, where)
                case "scaler":
                    given = self.scaler(value, where)
                case "fp32_regions":
                    given = self.texts(value, where)
                case _:
                    given = self.text(value, where, "")
            values |= self.checked(value, where, policy={name: given}).policy
        return values

    def scaler(self, node: YamlNode, key: str) -> object:
        if isinstance(node, YamlText):
            if node.text and is_nothing(node):
                return None
            if node.text == "auto":
                return "auto"
        if not isinstance(node, YamlMap):
            raise self.refused(node, key, "write auto, null (no scaler), or a map such as {init_scale: 1024}")
        values: dict[str, float] = {}
        for name, value, where in self.entries(node, key, [f.name for f in fields(Scaler)]):
            number = self.whole(value, where) if name == "growth_interval" else self.number(value, where)
            self.checked(value, where, policy={"scaler": {name: number}})
            values[name] = number
        return values

    def criteria(self, node: YamlNode, key: str) -> dict[str, object]:
        values: dict[str, object] = {}
        known = [f.name for f in fields(Criteria)]
        for named, value in node.entries if isinstance(node, YamlMap) else ():
            if named.text not in known:
                self.refuse_as_bound(named, value, key)
        for name, value, where in self.entries(node, key, known):
            match name:
                case "outputs":
                    given: object = self.tolerances(value, where)
                case "decision_changes":
                    given = self.whole(value, where)
                case "tie":
                    given = self.text(value, where, "such as same")
                case "atol" | "rtol" | "progress" if is_nothing(value):
                    given = None
                case "atol" | "rtol" if isinstance(value, YamlMap):
                    raise self.refused(value, where, f"write a number, or {form(bound=name)} for one output")
                case _:
                    given = self.number(value, where)
            self.checked(value, where, criteria={name: given})
            values[name] = given
        return values

    def refuse_as_bound(self, name: YamlText, value: YamlNode, key: str) -> None:
        """Refuses a key that was meant as the bound of an output; any other passes."""
        written = meant(name.text, value)
        if written is not None:
            raise self.file.refused(name.mark, f"unknown key '{key}.{name.text}'", f"write {written}")

    def tolerances(self, node: YamlNode, key: str) -> dict[str, object]:
        bounds: dict[str, object] = {}
        if not isinstance(node, YamlMap):
            raise self.refused(node, key, f"write {for_all(node)}")
        for name, value in node.entries:
            where = f"{key}.{name.text}"
            if name.text.rpartition(".")[2] in BOUNDS and "." in name.text:
                self.refuse_as_bound(name, value, key)
            if isinstance(value, YamlMap):
                parts = self.entries(value, where, list(BOUNDS))
                bounds[name.text] = {part: self.bound(number, place) for part, number, place in parts}
            else:
                bounds[name.text] = self.bound(value, where)
        return bounds

    def bound(self, node: YamlNode, key: str) -> float:
        number = self.number(node, key)
        self.checked(node, key, criteria={"atol": number})
        return number


def _entry_hint(file: YamlFile) -> str:
    folder = file.path.parent
    for name in python_files(folder):
        known = factories(folder / name)
        if known:
            return f"write entry: {name}:{known[0]}"
    return "write entry: train.py:project"
