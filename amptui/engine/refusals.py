"""What is refused by name before anything runs: one sentence, the user's file:line, and the mend."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from amptui.engine.failures import defined_at
from amptui.engine.live import joined, named_modules, named_parameters, optimizer_parameters
from amptui.engine.own_autocast import Opened
from amptui.findings.finding import Finding, Kind, Stage
from amptui.findings.words import counted
from amptui.project import Case, Project, ProjectError, Update


class Refusal(Exception):
    """The project cannot be judged as it is; nothing was run."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str,
        where: str | None = None,
        kind: Kind | None = None,
        stage: Stage = "loop",
        update: str | None = None,
        module: str = "",
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.hint, self.where = code, message, hint, where
        self.findings: tuple[Finding, ...] = ()
        if kind is not None:
            finding = Finding(
                kind=kind,
                severity="fault",
                stage=stage,
                step=0,
                update=update,
                module=module,
                line=where,
                evidence=(message,),
                advice=hint,
            )
            self.findings = (finding,)


def loop_findings(error: BaseException | None, where: str | None) -> tuple[Finding, ...]:
    """The finding that a project refused by its own constructor stands for, where its loop is what is wrong."""
    if not isinstance(error, ProjectError) or not error.loop:
        return ()
    return Refusal("project", str(error), hint="", where=where, kind="loop_order").findings


def check_modules(model: Any) -> Mapping[str, nn.Module]:
    """The modules by name ("" for a single one), with values in all their parameters and buffers."""
    modules = _modules(model)
    for path, module in named_modules(modules).items():
        for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if is_lazy(tensor):
                raise Refusal(
                    "lazy-parameters",
                    f"{joined(path, name)} has no shape yet",
                    hint="run one batch through the model before it is given to Project",
                )
            if tensor.is_meta:
                raise Refusal(
                    "meta-device",
                    f"{joined(path, name)} is on the meta device and holds no values",
                    hint="load the weights before the model is given to Project (model.to_empty(device=…) and "
                    "load_state_dict, or build it outside of torch.device('meta'))",
                )
    return modules


def _modules(model: Any) -> Mapping[str, nn.Module]:
    modules: Mapping[str, nn.Module] = {}
    if isinstance(model, nn.Module):
        modules = {"": model}
    elif isinstance(model, Mapping) and all(isinstance(m, nn.Module) for m in model.values()):
        modules = {str(name): module for name, module in model.items()}
    if modules:
        _check_tree(modules)
        return modules
    raise Refusal(
        "model-type",
        f"Project(model=…) is {type(model).__name__}",
        hint="give an nn.Module, or a mapping of names to modules",
    )


def _check_tree(modules: Mapping[str, nn.Module]) -> None:
    """Refuses what no path or Python code leads into.

    A module that contains itself has paths without end (torch's own `state_dict` fails as well); a TorchScript module
    has no Python forward to be traced and no plain dictionaries of parameters and buffers.
    """
    done: set[nn.Module] = set()

    def walk(path: str, module: nn.Module, above: tuple[nn.Module, ...]) -> None:
        if module in above:
            raise Refusal(
                "module-cycle",
                f"the module at {path!r} contains itself",
                hint="keep a reference that is no submodule in a list or a tuple: self.parent = (parent,)",
                module=path,
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise Refusal(
                "scripted",
                f"{f'the module at {path!r}' if path else 'the model'} is a TorchScript module",
                hint="give the Python module that torch.jit.script or torch.jit.trace was called with",
                module=path,
            )
        if module not in done:
            for name, child in module._modules.items():
                if child is not None:
                    walk(joined(path, name), child, (*above, module))
            done.add(module)

    for name, module in modules.items():
        walk(name, module, ())


def check_updates(project: Project, modules: Mapping[str, nn.Module]) -> None:
    """Refuses updates whose numbers could not be the plain AMP loop's."""
    owned = {id(parameter): name for name, parameter in named_parameters(modules).items()}
    for update in project.updates:
        _check_optimizer(update)
        _check_owned(update, owned)
        _check_closure(update)
        _check_dtypes(update, owned)
    _check_shared(project, owned)
    _check_sparse(project, modules)


def check_cases(cases: tuple[Case, ...]) -> None:
    for case in cases:
        if not isinstance(case, Case):
            raise Refusal(
                "case-type", f"Project(cases=…) holds {type(case).__name__}", hint="write Case(id=…, inputs=…)"
            )
    repeated = [name for name, count in Counter(case.id for case in cases).items() if count > 1]
    if repeated:
        raise Refusal(
            "case-ids",
            f"{len(repeated)} case ids are not unique, such as {repeated[0]!r}",
            hint="give every case an id of its own: results are kept by id",
        )


def check_anything_to_judge(project: Project, cases: tuple[Case, ...]) -> None:
    if not project.updates and not cases:
        raise Refusal(
            "nothing-to-judge",
            "the project has neither updates nor cases",
            hint="give updates=[Update(optimizer=…, loss=…)] with batches=…, or cases=[Case(…)], or both",
        )


def _check_optimizer(update: Update) -> None:
    if not isinstance(update.optimizer, torch.optim.Optimizer):
        raise Refusal(
            "optimizer-type",
            f"the optimizer of update {update.name!r} is {type(update.optimizer).__name__}",
            hint="give the torch.optim.Optimizer itself; a wrapper (Accelerate, apex) would unscale twice",
            update=update.name,
        )


def _check_owned(update: Update, owned: Mapping[int, str]) -> None:
    strangers = [p for p in optimizer_parameters(update.optimizer) if id(p) not in owned]
    if strangers:
        raise Refusal(
            "parameter-outside-model",
            f"the optimizer of update {update.name!r} trains "
            f"{counted(len(strangers), 'parameter that is', 'parameters that are')} not in the model, such as one of "
            f"shape {tuple(strangers[0].shape)}",
            hint="name the module that owns them in model={…: …} too, else the FP32 checkpoint could not hold them",
            where=defined_at(update.loss),
            kind="loop_order",
            update=update.name,
        )


def _check_closure(update: Update) -> None:
    parameters = inspect.signature(type(update.optimizer).step).parameters
    closure = parameters.get("closure")
    needs_one = closure is not None and closure.default is inspect.Parameter.empty
    if needs_one or isinstance(update.optimizer, torch.optim.LBFGS):
        raise Refusal(
            "closure",
            f"{type(update.optimizer).__name__} of update {update.name!r} evaluates the loss inside step(closure): "
            "gradients made there are scaled but never checked",
            hint="GradScaler takes no closures: train this part in FP32, or with an optimizer that needs none",
            where=defined_at(update.loss),
            kind="loop_order",
            update=update.name,
        )


def _check_dtypes(update: Update, owned: Mapping[int, str]) -> None:
    for parameter in optimizer_parameters(update.optimizer):
        if parameter.dtype is torch.float16:
            raise Refusal(
                "half-parameters",
                f"parameter {owned[id(parameter)]!r} of update {update.name!r} is float16",
                hint="keep parameters in float32 (remove model.half()); autocast makes the float16 copies itself, "
                "and unscale_ refuses float16 gradients",
                where=defined_at(update.loss),
                kind="dtype",
                stage="weights",
                update=update.name,
                module=owned[id(parameter)].rpartition(".")[0],
            )


def _check_shared(project: Project, owned: Mapping[int, str]) -> None:
    holder: dict[int, str] = {}
    for update in project.updates:
        for parameter in optimizer_parameters(update.optimizer):
            other = holder.setdefault(id(parameter), update.name)
            if other != update.name:
                raise Refusal(
                    "shared-parameter",
                    f"parameter {owned[id(parameter)]!r} is in the optimizers of both {other!r} and {update.name!r}: "
                    "its gradient would be unscaled twice",
                    hint="let exactly one optimizer own each parameter",
                    where=defined_at(update.loss),
                    kind="loop_order",
                    stage="gradient",
                    update=update.name,
                    module=owned[id(parameter)].rpartition(".")[0],
                )


def _check_sparse(project: Project, modules: Mapping[str, nn.Module]) -> None:
    trained = {id(p): u for u in project.updates for p in optimizer_parameters(u.optimizer)}
    for path, module in named_modules(modules).items():
        weight = getattr(module, "weight", None)
        if getattr(module, "sparse", False) is True and id(weight) in trained:
            raise sparse_refusal(path, type(module).__name__, trained[id(weight)])


def refuse_left_on(left_on: Opened | None, *, update: str | None = None, where: str | None = None) -> None:
    """Raises where user code has left autocast on; `where` is the code that ran, for what has no line of its own."""
    if left_on is None:
        return
    raise Refusal(
        "autocast-left-on",
        f"the project leaves autocast on ({left_on.device}, {left_on.dtype}): whatever runs after it would be computed "
        "in half, backward and the FP32 baseline too",
        hint="write `with torch.autocast(…):` around what it is meant for: that switches it off again",
        where=left_on.where or where,
        kind="autocast_state",
        stage="forward",
        update=update,
    )


def sparse_refusal(module: str, kind: str, update: Update) -> Refusal:
    return Refusal(
        "sparse-gradient",
        f"{kind} {module!r} gives sparse gradients, which neither clip_grad_norm_ nor the guard can take a norm of",
        hint="write sparse=False for the trial",
        where=defined_at(update.loss),
        kind="dtype",
        stage="gradient",
        update=update.name,
        module=module,
    )
