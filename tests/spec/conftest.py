"""Projects of a few lines, written to a folder and loaded in this process; their modules are forgotten afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from amptui.spec.error import SpecError
from amptui.spec.reference import parse_reference
from amptui.spec.resolve import LoadedProject, load_project
from amptui.text import safe_text

Load = Callable[..., LoadedProject]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "p"
    path.mkdir()
    return path


@pytest.fixture
def load(folder: Path) -> Iterator[Load]:
    """`load(spec, files, **arguments)`: write the files, then load SPEC from their folder."""
    path, modules = list(sys.path), dict(sys.modules)

    def write_and_load(spec: str, files: Mapping[str, str], app_dir: str = ".", **arguments: object) -> LoadedProject:
        write(folder, files)
        return load_project(parse_reference(spec, folder=folder), arguments, folder=folder / app_dir)

    yield write_and_load
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        held = getattr(module, "__dict__", {})
        origins = [held.get("__file__"), *(held.get("__path__") or ())]
        if name not in modules and any(str(origin).startswith(str(folder.parent)) for origin in origins):
            del sys.modules[name]


@pytest.fixture
def refused(load: Load) -> Callable[..., SpecError]:
    """As `load`, for a SPEC that must be refused: gives the error, whose parts are safe to print."""

    def write_and_refuse(spec: str, files: Mapping[str, str], **arguments: object) -> SpecError:
        with pytest.raises(SpecError) as caught:
            load(spec, files, **arguments)
        error = caught.value
        assert safe_text(error, 9999) == str(error)
        assert "importlib" not in str(error)
        assert "Traceback" not in str(error)
        return error

    return write_and_refuse


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
