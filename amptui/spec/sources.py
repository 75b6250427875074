"""The files of the user's code that a project is made of: what a session keeps the digests of."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType

from amptui.project import Project
from amptui.spec.own_code import OwnCode
from amptui.spec.shadow import file_of


def source_files(project: Project, modules: Iterable[ModuleType], own: OwnCode) -> tuple[str, ...]:
    """The user's files behind `modules` and behind the project's functions and model classes, sorted.

    The latter need not be among the former: a file may have been loaded without becoming a module of `sys.modules`.
    """
    loaded = (file_of(module) for module in modules)
    behind = (file for part in _parts(project) for file in _files_of(part))
    return tuple(sorted({file for file in (*loaded, *behind) if file is not None and own.holds(file)}))


def _parts(project: Project) -> Iterator[object]:
    yield from (project.outputs, project.decide, project.quality, project.batches, project.cases)
    for update in project.updates:
        yield from (update.loss, type(update.optimizer), type(update.scheduler))
    models = project.model.values() if isinstance(project.model, Mapping) else (project.model,)
    for model in models:
        submodules = getattr(model, "modules", None)
        yield from {type(module) for module in submodules()} if callable(submodules) else ()


def _files_of(part: object) -> Iterator[str]:
    while isinstance(part, functools.partial):
        part = part.func
    if inspect.isfunction(part) or inspect.ismethod(part):
        functions = [part]
    else:
        kind = part if inspect.isclass(part) else type(part)
        functions = [value for value in vars(kind).values() if inspect.isfunction(value)]
    yield from (function.__code__.co_filename for function in functions)
