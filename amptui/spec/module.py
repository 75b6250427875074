"""Importing the module that a Reference names, by its full name and from the file that was meant."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from amptui.spec.error import SpecError
from amptui.spec.failure import Doing, told
from amptui.spec.near import did_you_mean, factories, files_called, folders_in, python_files
from amptui.spec.own_code import OwnCode
from amptui.spec.reference import Reference, require_file
from amptui.spec.shadow import file_of, hidden_by_another, is_file_of


@dataclass(frozen=True)
class Place:
    """The module to import: its full dotted name, the folder that the name begins in, the file expected there."""

    name: str
    root: Path
    #: None for a module that does not lie in the app folder, such as an installed one.
    file: Path | None


def place_of(reference: Reference, folder: Path) -> Place:
    """Where the module of `reference` lies: a file belongs to the packages whose folders hold an `__init__.py`.

    Raises:
        SpecError: the file is gone, or has a name that no import can have.
    """
    if reference.kind == "module":
        return Place(reference.target, folder, _file_beneath(folder, reference.target))
    file = Path(reference.target)
    require_file(file, shown=reference.target)
    parts = [] if file.name == "__init__.py" else [file.stem]
    root = file.parent
    while (root / "__init__.py").is_file() and root != root.parent:
        parts.append(root.name)
        root = root.parent
    for part in parts:
        if "." in part:
            raise SpecError("form", f"'{part}' in {file} has a '.', so it cannot be imported", "rename it without one")
    return Place(".".join(reversed(parts)), root, file)


def import_at(place: Place, own: OwnCode, doing: Doing) -> ModuleType:
    """Import the module at `place`.

    Raises:
        SpecError: whatever its code raised, told with the user's line; `module-missing`; `shadowed`, `stdlib-shadow`.
    """
    importlib.invalidate_caches()
    _refuse_another(place.name.partition(".")[0], place.root)
    with told(doing):
        try:
            module = importlib.import_module(place.name)
        except ModuleNotFoundError as error:
            if _is_about(place.name, error, own):
                raise _missing(place, error.name or place.name) from error
            raise
    if place.file is not None and not is_file_of(module, place.file):
        raise hidden_by_another(place.name, place.file, module)
    return module


def _is_about(name: str, error: ModuleNotFoundError, own: OwnCode) -> bool:
    """Whether it is the named module itself that is missing, and not something that the user's code imports."""
    asked = error.name is not None and (name == error.name or name.startswith(error.name + "."))
    return asked and not own.lines(error.__traceback__)


def _refuse_another(top: str, root: Path) -> None:
    """Refuse a name that is loaded already from elsewhere, as Python's own modules and torch's are."""
    mine = _file_beneath(root, top)
    if mine is not None and top in sys.modules and not is_file_of(sys.modules[top], mine):
        raise hidden_by_another(top, mine, sys.modules[top])


def _missing(place: Place, missing: str) -> SpecError:
    package, _, last = missing.rpartition(".")
    if package:
        return _missing_in(package, last)
    looked = f"looked in {place.root} and on the path of {sys.executable}"
    last = place.name.rpartition(".")[2]
    for file in files_called([f"{last}.py"], place.root):
        known = factories(file)
        shown = f"{file.relative_to(place.root)}"
        return SpecError(
            "module-missing",
            f"no module named '{missing}'",
            f"{looked}; found {shown}: write {shown}:{(known or ('…',))[0]}",
        )
    meant = did_you_mean(missing, _module_names(place.root))
    return SpecError("module-missing", f"no module named '{missing}'", f"{meant} ({looked})" if meant else looked)


def _missing_in(package: str, last: str) -> SpecError:
    home = sys.modules.get(package)
    folders = [Path(entry) for entry in getattr(home, "__dict__", {}).get("__path__", ())]
    if not folders:
        file = file_of(home)
        mend = f"write {package}:{last}" if file and last in factories(Path(file)) else "write the name after a ':'"
        return SpecError("module-missing", f"'{package}' is a single file, {file}, so it has no module '{last}'", mend)
    names = [name for folder in folders for name in _module_names(folder)]
    hint = did_you_mean(last, names) or f"looked in {', '.join(map(str, folders))}"
    return SpecError("module-missing", f"the package '{package}' has no module '{last}'", hint)


def _module_names(folder: Path) -> list[str]:
    return [*(file[:-3] for file in python_files(folder)), *folders_in(folder)]


def _file_beneath(folder: Path, name: str) -> Path | None:
    base = folder.joinpath(*name.split("."))
    return next((file for file in (base / "__init__.py", base.parent / f"{base.name}.py") if file.is_file()), None)


def folder_of_installed(name: str) -> Path | None:
    """The folder of the package that the dotted `name` begins with, wherever it is installed; nothing is imported."""
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec and spec.origin and spec.submodule_search_locations else None
