"""Runs the code to paste as a user would: in a namespace of its own, on the project's own objects and batches."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amptui import Policy, Project
from amptui.engine.environment import environment
from amptui.engine.live import LiveProject
from amptui.engine.opening import module_facts
from amptui.protocol.events import ProjectOpened
from amptui.protocol.facts import Digests


@dataclass
class Pasted:
    """The functions of the pasted code, and the objects that its user passes to them."""

    code: str
    objects: dict[str, Any]
    functions: dict[str, Any] = field(default_factory=dict)
    results: list[Any] = field(default_factory=list)

    def run(self, batches: Sequence[Any], *, start: int = 0, iterations: int | None = None) -> Pasted:
        """Iterations from `start` on, as many as the batches have windows."""
        window = self.objects["accumulate"]
        count = len(batches) // window if iterations is None else iterations
        for step in range(start, start + count):
            part = list(batches[step * window : (step + 1) * window])
            given = {"step": step, "batches": part, "batch": part[0]}
            self.results.append(self.call("train_step", **given))
        return self

    def call(self, function: str, **given: Any) -> Any:
        known = {**self.objects, **given}
        parameters = inspect.signature(self.functions[function]).parameters
        return self.functions[function](**{name: known[name] for name in parameters})


def pasted(code: str, project: Project) -> Pasted:
    """The code's functions beside the objects of `project`."""
    functions: dict[str, Any] = {}
    exec(compile(code, "<pasted>", "exec"), functions)
    updates = {update.name: update for update in project.updates}
    first = project.updates[0]
    objects: dict[str, Any] = {
        "model": project.model,
        "loss_function": first.loss,
        "loss_functions": {name: update.loss for name, update in updates.items()},
        "optimizer": first.optimizer,
        "optimizers": {name: update.optimizer for name, update in updates.items()},
        "scheduler": first.scheduler,
        "schedulers": {name: u.scheduler for name, u in updates.items() if u.scheduler is not None},
        "applied_updates": dict.fromkeys(updates, 0),
        "accumulate": first.accumulate,
    }
    if "new_scaler" in functions:
        objects["scaler"] = functions["new_scaler"]()
    return Pasted(code, objects, functions)


def opened_facts(live: LiveProject, policy: Policy) -> ProjectOpened:
    """What the engine tells about an opened project, as far as the code to paste reads it."""
    return ProjectOpened(
        name=live.name,
        spec="test",
        defined_at=None,
        modules=module_facts(live),
        parameters=0,
        updates=tuple(update.facts for update in live.updates),
        cases=(),
        batches=len(live.batches.batches),
        iterations=live.batches.iterations,
        remainder=0,
        policy=policy,
        criteria=None,
        digests=Digests(weights="", cases="", batches="", sources={}),
        has_decide=False,
        has_quality=False,
        environment=environment(live.device, Path.cwd()),
    )
