"""Two files of one module name: the import gave one, the user's code meant the other."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

from amptui.spec.error import SpecCode, SpecError
from amptui.spec.near import line_of


def hidden_by_another(name: str, mine: Path, came: ModuleType, where: str | None = None) -> SpecError:
    """The error for a module `name` that was to be the user's file `mine` and was something else."""
    return SpecError(
        _code(name),
        f"importing '{name}' gave {file_of(came) or 'a module built into Python'}, not {mine}",
        f"rename {mine.parent if mine.name == '__init__.py' else mine}",
        where,
    )


def shadow_behind(error: BaseException, folders: Iterable[Path], where: str | None) -> SpecError | None:
    """The shadowed module that explains an AttributeError or ImportError of the user's code, or None.

    Only said where the other file of that name does define what was missing; so a plain slip is never taken for it.
    """
    module, wanted = _asked_of(error)
    if module is None or not wanted:
        return None
    name = module.__name__.partition(".")[0]
    came = sys.modules.get(name)
    if came is None:
        return None
    for folder in folders:
        mine = _file_in(folder, name)
        if mine is None:
            continue
        if not is_file_of(came, mine):
            return hidden_by_another(name, mine, came, where) if _defines(mine, wanted) else None
        other = _elsewhere(name, mine)
        if other is not None and _defines(other, wanted):
            owner = "Python's own" if _code(name) == "stdlib-shadow" else "the installed"
            return SpecError(
                _code(name), f"importing '{name}' gave {mine}, which hides {owner} {other}", f"rename {mine}", where
            )
    return None


def is_file_of(module: ModuleType, file: Path) -> bool:
    """Whether `module` was loaded from `file`."""
    loaded = file_of(module)
    try:
        return loaded is not None and Path(loaded).samefile(file)
    except OSError:
        return False


def _asked_of(error: BaseException) -> tuple[ModuleType | None, str]:
    """The module that something was wanted from, and what: a name in it, or a module beneath it."""
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        return error.obj, error.name or ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        top, _, rest = error.name.partition(".")
        return sys.modules.get(top), rest
    if isinstance(error, ImportError) and error.name:
        match = re.match(r"cannot import name '(\w+)'", str(error))
        return sys.modules.get(error.name), match[1] if match else ""
    return None, ""


def _defines(file: Path, wanted: str) -> bool:
    first = wanted.partition(".")[0]
    beneath = file.parent if file.name == "__init__.py" else None
    if beneath and ((beneath / f"{first}.py").is_file() or (beneath / first).is_dir()):
        return True
    return line_of(file, first) is not None


def _file_in(folder: Path, name: str) -> Path | None:
    """The file that `import name` would take from `folder`; a package goes before a module."""
    return next((file for file in (folder / name / "__init__.py", folder / f"{name}.py") if file.is_file()), None)


def _elsewhere(name: str, mine: Path) -> Path | None:
    """The file that `import name` would take if `mine` were not there."""
    home = mine.parent.parent if mine.name == "__init__.py" else mine.parent
    path = [entry for entry in sys.path if entry and Path(entry).absolute() != home.absolute()]
    spec = PathFinder.find_spec(name, path)
    return Path(spec.origin) if spec and spec.origin else None


def _code(name: str) -> SpecCode:
    return "stdlib-shadow" if name in sys.stdlib_module_names else "shadowed"


def file_of(module: object) -> str | None:
    """The file that a module was loaded from; its own `__getattr__` is not asked."""
    file = getattr(module, "__dict__", {}).get("__file__")
    return file if isinstance(file, str) else None
