"""The folder tree is the architecture: layers only know what is below them, and torch stays where it belongs."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import amptui

PACKAGE = Path(amptui.__file__).parent

#: Each part with what it may import of amptui besides itself. Every part may import `text` and the package root.
BELOW: dict[str, set[str]] = {
    "text": set(),
    "project": set(),
    "findings": {"project"},
    "protocol": {"project", "findings"},
    "spec": {"project", "findings", "protocol"},
    "session": {"project", "findings", "protocol", "spec"},
    "engine": {"project", "findings", "protocol", "spec", "session"},
    "watching": {"project", "findings", "protocol", "spec", "session", "engine"},
    "inspection": {"project", "findings", "protocol", "session"},
    "report": {"project", "findings", "protocol", "spec", "session", "inspection"},
    "ui": {"project", "findings", "protocol", "spec", "session", "inspection", "report"},
    "commands": {"project", "findings", "protocol", "spec", "session", "inspection", "report", "ui"},
    "cli": {"commands", "report"},
    "__init__": {"project"},
    "__main__": {"cli"},
}

#: What each part may import from outside the standard library.
OUTSIDE: dict[str, set[str]] = {
    "engine": {"torch", "numpy"},  # numpy inside functions only, where the project has it
    "watching": {"torch"},
    "spec": {"yaml"},
    "session": {"platformdirs"},
    "report": {"rich"},
    "ui": {"rich", "textual", "platformdirs"},
}

#: Client-only modules of parts that the engine imports too; the engine never imports these.
CLIENT_ONLY = {"spec": {"settings", "strict_yaml", "value_reader"}}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every import that can run, also inside functions; what only type checkers read is left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports from the root"
            yield node.module or "", node.lineno
            if node.module and node.module.partition(".")[0] == "amptui":
                yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def parts_of(name: str) -> tuple[str, str]:
    """(top-level package, amptui's part or "")."""
    pieces = name.split(".")
    return pieces[0], pieces[1] if pieces[0] == "amptui" and len(pieces) > 1 else ""


@pytest.mark.parametrize(("part", "path"), list(modules()), ids=lambda value: str(value).replace(str(PACKAGE), ""))
def test_a_module_imports_only_what_is_below_it(part: str, path: Path) -> None:
    assert part in BELOW, f"{path}: a new part of the architecture; name it in CONTRIBUTING.md and here"
    known = set(BELOW)
    for name, line in imports(path):
        top, inner = parts_of(name)
        if top == "amptui":
            if inner in known and inner not in {part, "text", "__init__"}:
                assert inner in BELOW[part], f"{path}:{line}: {part} may not know {inner}"
        elif top not in sys.stdlib_module_names and top != "__future__":
            assert top in OUTSIDE.get(part, set()), f"{path}:{line}: {part} may not import {top}"


def test_every_part_of_the_tree_is_named() -> None:
    assert {part for part, _ in modules()} <= set(BELOW)


def loaded_by(statement: str) -> set[str]:
    """Top-level modules in a fresh interpreter after `statement`."""
    code = f"{statement}\nimport sys\nprint(' '.join(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def outside_the_standard_library(statement: str) -> set[str]:
    bare = loaded_by("")
    return {m for m in loaded_by(statement) - bare if m not in sys.stdlib_module_names and m != "amptui"}


def test_importing_amptui_and_its_public_names_loads_only_the_standard_library() -> None:
    statement = "from amptui import Case, Criteria, Policy, Project, Scaler, Update"
    assert outside_the_standard_library(statement) == set()


def test_the_command_line_loads_neither_torch_nor_textual_nor_rich() -> None:
    assert outside_the_standard_library("import amptui.cli") == set()


@pytest.mark.parametrize("package", ["findings", "protocol", "spec", "session", "inspection", "report", "ui"])
def test_the_client_never_imports_torch(package: str) -> None:
    names = [
        "amptui." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for part, path in modules()
        if part == package
    ]
    loaded = loaded_by("import importlib\nfor name in " + repr(names) + ": importlib.import_module(name)")
    assert "torch" not in loaded
    assert "numpy" not in loaded


def test_the_engine_loads_torch_and_nothing_of_the_client() -> None:
    """It runs inside any project's own environment, which has neither PyYAML nor rich nor textual."""
    names = ["amptui.engine.conductor", "amptui.engine.main", "amptui.engine.bootstrap"]
    loaded = loaded_by("import importlib\nfor name in " + repr(names) + ": importlib.import_module(name)")
    assert "torch" in loaded
    assert not loaded & {"yaml", "rich", "textual", "platformdirs"}
