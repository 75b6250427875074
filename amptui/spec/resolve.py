"""From a Reference to the user's Project. Runs the user's code, so only in the engine's process.

Called after torch is imported: the user's folder then goes to the front of `sys.path`, as `python FILE` would have it,
and a file called `torch.py` in it cannot take torch's place.
"""

from __future__ import annotations

import functools
import inspect
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from amptui.project import Project
from amptui.spec.error import SpecError
from amptui.spec.failure import Doing, told
from amptui.spec.module import Place, folder_of_installed, import_at, place_of
from amptui.spec.near import closest, did_you_mean, line_of, listed
from amptui.spec.own_code import Line, OwnCode, own_code
from amptui.spec.reference import Reference
from amptui.spec.shadow import file_of
from amptui.spec.sources import source_files
from amptui.spec.wrong_type import how_to_return_a_project, is_torch_module, what_it_is


@dataclass(frozen=True, eq=False)
class LoadedProject:
    """The user's project and where it comes from."""

    project: Project
    #: The function that made it, or the line that it is bound on.
    defined_at: Line
    #: Files of the user's code that were loaded for it, sorted.
    sources: tuple[str, ...]
    #: Which lines of a later traceback are the user's.
    own: OwnCode


def load_project(reference: Reference, arguments: Mapping[str, object], *, folder: Path | str) -> LoadedProject:
    """Import what `reference` names and take the Project from it; a function is called with `arguments`.

    `folder` is the app folder. It stays on `sys.path`, since the user's code may import when it runs; before it comes
    the folder that a file's module name begins in, if that is another one.

    Raises:
        SpecError: one sentence on what is wrong, at the user's own line.
        KeyboardInterrupt: as it came.
    """
    if reference.kind == "settings":
        raise ValueError("an amptui.yaml is read by the client; pass the reference that its `entry` names")
    app_folder = Path(folder).absolute()
    place = place_of(reference, app_folder)
    _put_first([place.root, app_folder])
    installed_at = None if place.file else folder_of_installed(place.name)
    roots = tuple(dict.fromkeys([place.root, app_folder]))
    own = own_code([place.root, app_folder, *([installed_at] if installed_at else [])])
    loaded_before = set(sys.modules)
    doing = Doing(
        own=own,
        roots=roots,
        file=str(place.file or place.name),
        actor="your module",
        during=" while being imported",
        to_repeat=f"import {place.name}",
    )
    with _no_command_line(doing.file):
        module = import_at(place, own, doing)
        found = _attribute(module, reference.attribute, place, doing)
        # Even looking at an object may run the user's code, such as a __getattr__.
        with told(replace(doing, actor=reference.attribute, during="")):
            project, defined_at = _project(found, arguments, reference.attribute, module, doing)
            modules = [module, *(sys.modules[name] for name in set(sys.modules) - loaded_before)]
            sources = source_files(project, modules, own)
    return LoadedProject(project, defined_at, sources, own)


def _put_first(folders: list[Path]) -> None:
    wanted = list(dict.fromkeys(map(str, folders)))
    sys.path[:] = [*wanted, *(entry for entry in sys.path if entry not in wanted)]


@contextmanager
def _no_command_line(file: str) -> Iterator[None]:
    """Code that reads `sys.argv` on import sees its own file and no arguments, not amptui's."""
    saved, sys.argv = sys.argv, [file]
    try:
        yield
    finally:
        sys.argv = saved


def _attribute(module: ModuleType, dotted: str, place: Place, doing: Doing) -> object:
    value: object = module
    shown = str(place.file or file_of(module) or place.name)
    for part in dotted.split("."):
        lookup = f"looking up '{part}' in {shown}"
        with told(replace(doing, actor=lookup, during="", to_repeat=f"{doing.to_repeat}; {place.name}.{dotted}")):
            try:
                value = getattr(value, part)
            except AttributeError as error:
                if error.name not in (None, part):
                    raise  # a fault inside the user's __getattr__ or property
                raise _no_attribute(value, part, shown, place) from error
        shown = f"'{part}'"
    return value


def _no_attribute(value: object, part: str, shown: str, place: Place) -> SpecError:
    message = f"{shown} has no '{part}'"
    public = [name for name in sorted(_dict(value)) if not name.startswith("_")]
    beneath = [Path(entry) / f"{part}.py" for entry in _dict(value).get("__path__", ())]
    if any(file.is_file() for file in beneath):
        return SpecError("attribute-missing", message, f"'{part}' is a module: write {place.name}.{part}:…")
    match = closest(unicodedata.normalize("NFKC", part), public)
    if match and not part.isascii() and match.isascii():
        odd = next(character for character in part if not character.isascii())
        name = unicodedata.name(odd, f"U+{ord(odd):04X}")
        return SpecError("attribute-missing", message, f"it holds the letter {name}; did you mean '{match}'?")
    made = [name for name in public if _made_here(value, name)]
    hint = did_you_mean(part, made) or did_you_mean(part, public)  # what it only imports is rarely meant
    if not hint and not (inspect.ismodule(value) or inspect.isclass(value)):
        hint = f"it is {what_it_is(value)}"
    if not hint:
        hint = f"it defines {listed(made)}" if made else "it defines no function and no Project"
    return SpecError("attribute-missing", message, hint)


def _dict(value: object) -> Mapping[str, Any]:
    """What `value` itself holds; a `__getattr__` of the user's is not asked."""
    return getattr(value, "__dict__", {})


def _made_here(holder: object, name: str) -> bool:
    value = _dict(holder)[name]
    return isinstance(value, Project) or (
        (inspect.isfunction(value) or inspect.isclass(value))
        and value.__module__ == _dict(holder).get("__name__", _dict(holder).get("__module__"))
    )


def _project(
    found: object, arguments: Mapping[str, object], name: str, module: ModuleType, doing: Doing
) -> tuple[Project, Line]:
    defined_at = _defined_at(found, name, module, doing)
    where = str(defined_at)
    if isinstance(found, Project):
        if arguments:
            raise SpecError(
                "unexpected-arguments", f"{name} is a Project, so it takes no `args`", "leave them out", where
            )
        return found, defined_at
    if not callable(found) or is_torch_module(found if inspect.isclass(found) else type(found)):
        what = "a class of nn.Module" if inspect.isclass(found) else what_it_is(found)
        mend = "write a function that ends in " + how_to_return_a_project(found).removeprefix("write ")
        raise SpecError("wrong-type", f"{name} is {what}, not a Project nor a function that returns one", mend, where)
    _check_arguments(found, arguments, name, where)
    called = replace(doing, actor=f"{name}()", during="", to_repeat=f"{doing.to_repeat}; {module.__name__}.{name}()")
    with told(called):
        made = found(**arguments)
    if not isinstance(made, Project):
        hint = how_to_return_a_project(made)
        raise SpecError("wrong-type", f"{name}() returned {what_it_is(made)}, not an amptui.Project", hint, where)
    return made, defined_at


def _check_arguments(function: Callable[..., object], arguments: Mapping[str, object], name: str, where: str) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return  # some built-in callables have no signature; the call itself will tell
    by_name = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for key in arguments:
            if key not in by_name:
                takes = f"it takes {listed(by_name)}" if by_name else "it takes none"
                raise SpecError(
                    "unexpected-arguments",
                    f"{name}() has no argument '{key}'",
                    did_you_mean(key, by_name) or takes,
                    where,
                )
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    lacking = [p for p in parameters if p.default is p.empty and p.kind not in variadic and p.name not in arguments]
    if lacking:
        names = listed([f"'{p.name}'" for p in lacking])
        given = ", ".join(f"{p.name}: …" for p in lacking)
        mend = f"give it a default, or write args: {{{given}}} in amptui.yaml"
        if any(p.kind is p.POSITIONAL_ONLY for p in lacking):
            mend = "give it a default; amptui passes arguments by name only"
        raise SpecError("needs-arguments", f"{name}() cannot be called without {names}", mend, where)


def _defined_at(found: object, name: str, module: ModuleType, doing: Doing) -> Line:
    function = found
    while isinstance(function, functools.partial):
        function = function.func
    if callable(function) and "__wrapped__" in _dict(function):
        function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is not None and doing.own.holds(code.co_filename):
        return Line(code.co_filename, code.co_firstlineno)
    file = file_of(module) or doing.file
    return Line(file, line_of(Path(file), name.partition(".")[0]) or 1)
