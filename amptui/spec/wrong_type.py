"""What to write where a SPEC gave something that is no Project: field by field, from what it did give."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields

from amptui.project import Project, Update
from amptui.spec.near import listed

_UPDATE_FIELDS = {field.name for field in fields(Update)} - {"name"}
_PROJECT_FIELDS = {field.name for field in fields(Project)}

#: What people call the things that a Project holds.
_KNOWN_AS = {
    "net": "model",
    "network": "model",
    "models": "model",
    "optim": "optimizer",
    "optimizers": "optimizer",
    "opt": "optimizer",
    "loss_fn": "loss",
    "criterion": "loss",
    "lr_scheduler": "scheduler",
    "schedulers": "scheduler",
    "sched": "scheduler",
    "loader": "batches",
    "train_loader": "batches",
    "train_dataloader": "batches",
    "dataloader": "batches",
    "data": "batches",
    "train_batches": "batches",
    "eval_cases": "cases",
    "metric": "quality",
}

#: Library classes by the module that defines them, so that torch need not be imported to know them.
_TORCH_KINDS = {
    ("torch.nn.modules.module", "Module"): "model",
    ("torch.optim.optimizer", "Optimizer"): "optimizer",
    ("torch.optim.lr_scheduler", "LRScheduler"): "scheduler",
    ("torch.utils.data.dataloader", "DataLoader"): "batches",
}


def is_torch_module(kind: type) -> bool:
    """Whether a class is an `nn.Module`, told without importing torch."""
    return _field_of(kind) == "model"


def what_it_is(value: object) -> str:
    """`a dict with model and optimizer`, `the nn.Module Net`: a value in words for an error."""
    kind = type(value)
    if value is None:
        return "nothing"
    if is_torch_module(kind):
        return f"the nn.Module {kind.__name__}"
    if inspect.ismodule(value):
        return f"the module {value.__name__}"
    if isinstance(value, Mapping):
        return f"a {kind.__name__} with the keys {listed(map(str, value))}" if value else f"an empty {kind.__name__}"
    if isinstance(value, tuple | list):
        return (
            f"a {kind.__name__} of {listed([type(item).__name__ for item in value])}"
            if value
            else f"an empty {kind.__name__}"
        )
    article = "an" if kind.__name__[:1].lower() in "aeiou" else "a"
    return f"{article} {kind.__name__}"


def how_to_return_a_project(value: object) -> str:
    """The mend for a function that returned `value`, with the fields that `value` already has."""
    if value is None:
        return "end the function with return Project(…)"
    if inspect.iscoroutine(value):
        value.close()
        return "write def, not async def"
    if inspect.isgenerator(value):
        return "write return, not yield"
    if isinstance(value, Mapping):
        return _constructor(str(key) for key in value)
    if isinstance(value, tuple | list):
        return _constructor(filter(None, (_field_of(type(item)) for item in value)))
    field = _field_of(type(value))
    return _constructor([field] if field else [])


def _constructor(names: Iterable[str]) -> str:
    project: dict[str, str] = {"model": "model=…"}
    update: dict[str, str] = {}
    strange: list[str] = []
    for given in names:
        name = given if given in _PROJECT_FIELDS | _UPDATE_FIELDS else _KNOWN_AS.get(given.lower(), "")
        if name in _PROJECT_FIELDS:
            project[name] = f"{name}=…"
        elif name:
            update[name] = f"{name}=…"
        else:
            strange.append(f"'{given}'")
    if update:
        update = {"optimizer": "optimizer=…", "loss": "loss=…"} | update
        project["updates"] = f"updates=[Update({', '.join(update.values())})]"
    said = f"write return Project({', '.join(project.values())})"
    return said + (f" ({listed(strange)}: no field of a Project)" if strange else "")


def _field_of(kind: type) -> str:
    names = ((base.__module__, base.__name__) for base in kind.__mro__)
    return next((_TORCH_KINDS[name] for name in names if name in _TORCH_KINDS), "")
