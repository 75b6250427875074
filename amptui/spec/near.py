"""What the user may have meant: names close to a mistyped one, names that a file defines, files of a name.

Everything is read, nothing is run. All look-ups are bounded, since the folder may be a home directory and the file
anything at all.
"""

from __future__ import annotations

import ast
import difflib
import os
import stat
import warnings
from collections.abc import Iterable
from pathlib import Path

_LONGEST_NAME = 120
_MOST_NAMES = 2000
_LARGEST_SOURCE = 1 << 20
_MOST_FOLDERS = 400
_DEEPEST_FOLDER = 4
_NOT_THE_USERS = {"__pycache__", "node_modules", "site-packages", "dist-packages"}


def closest(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `name` is probably a slip of, or None."""
    candidates = [word for _, word in zip(range(_MOST_NAMES), known, strict=False) if len(word) <= _LONGEST_NAME]
    if len(name) > _LONGEST_NAME:
        return None
    lowered = {word.lower(): word for word in reversed(candidates)}
    found = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    if found:
        return lowered[found[0]]
    longer = [word for word in candidates if len(name) >= 3 and word.startswith(name)]  # `init` of `init_scale`
    return longer[0] if len(longer) == 1 else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean 'build'?`, or an empty text."""
    match = closest(name, known)
    return f"did you mean '{match}'?" if match else ""


def listed(names: Iterable[str], most: int = 6) -> str:
    """`a, b and 3 more`."""
    words = list(names)
    if len(words) <= most + 1:
        return ", ".join(words)
    return f"{', '.join(words[:most])} and {len(words) - most} more"


def factories(path: Path) -> tuple[str, ...]:
    """Names at the top of a Python file that can stand after the `:`, those that make a Project first.

    These are its public functions and the names bound to `Project(…)`. A file that cannot be read or parsed has none.
    """
    tree = _parsed(path)
    if tree is None:
        return ()
    likely: list[str] = []
    others: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            (likely if _mentions_project(node) else others).append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _is_project(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            likely += [target.id for target in targets if isinstance(target, ast.Name)]
    return tuple(dict.fromkeys(likely + others))


def line_of(path: Path, name: str) -> int | None:
    """The line on which the top of a Python file binds `name`, or None."""
    tree = _parsed(path)
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return node.lineno
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node.lineno
    return None


def files_called(names: Iterable[str], folder: Path) -> tuple[Path, ...]:
    """Files beneath `folder` with one of `names`, nearest first; hidden folders and environments are left out."""
    wanted = set(names)
    found: list[Path] = []
    level = [folder]
    seen = 0
    for _ in range(_DEEPEST_FOLDER):
        deeper: list[Path] = []
        for place in level:
            seen += 1
            if seen > _MOST_FOLDERS:
                return tuple(found)
            files, folders = _entries(place)
            found += [place / name for name in files if name in wanted]
            deeper += [place / name for name in folders]
        level = deeper
    return tuple(found)


def python_files(folder: Path) -> tuple[str, ...]:
    """Names of the Python files directly in `folder`."""
    return tuple(name for name in _entries(folder)[0] if name.endswith(".py"))


def folders_in(folder: Path) -> tuple[str, ...]:
    """Names of the folders directly in `folder` that may hold the user's code."""
    return _entries(folder)[1]


def _entries(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    files: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(_MOST_NAMES), entries, strict=False):
                if entry.name.startswith("."):
                    continue
                if entry.is_file():
                    files.append(entry.name)
                elif entry.is_dir(follow_symlinks=False) and not _foreign(entry):
                    folders.append(entry.name)
    except OSError:
        return (), ()
    return tuple(sorted(files)), tuple(sorted(folders))


def _foreign(entry: os.DirEntry[str]) -> bool:
    return entry.name in _NOT_THE_USERS or Path(entry.path, "pyvenv.cfg").exists()


def _parsed(path: Path) -> ast.Module | None:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_SOURCE:
            return None
        with warnings.catch_warnings():  # such as an invalid escape in the user's file: not said here
            warnings.simplefilter("ignore")
            return ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _mentions_project(function: ast.FunctionDef) -> bool:
    return any(_is_project(node) for node in ast.walk(function))


def _is_project(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func
    return (isinstance(name, ast.Name) and name.id == "Project") or (
        isinstance(name, ast.Attribute) and name.attr == "Project"
    )
