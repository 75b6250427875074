"""The code to paste against the guarded run: small projects with forced overflows, one for each trait of an update."""

from __future__ import annotations

import ast
import dataclasses
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from amptui import Policy, Project, Scaler, Update
from amptui.engine.regions import fp32_regions
from amptui.report.paste.plan import plan_of
from amptui.report.paste.program import training_code
from tests.engine.projects import Batch, Net, assert_same_bits, batches, guarded, opened, state_of, weighted_loss
from tests.report.paste.pasted import Pasted, opened_facts, pasted

FP16 = Policy(scaler=Scaler(init_scale=4096.0, growth_interval=4))
BAD = (2, 5, 6)


def make(
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW, *, scheduler: Any = None, **settings: Any
) -> Callable[[], Project]:
    """A factory of projects that are equal bit for bit; `scheduler` makes one from the optimizer."""
    options = settings.pop("options", {})
    data = settings.pop("data", batches(12, bad=BAD))

    def project() -> Project:
        torch.manual_seed(11)
        model = Net()
        made = optimizer(model.parameters(), lr=0.01, **options)
        chosen = scheduler(made) if scheduler is not None else None
        update = Update(**{"optimizer": made, "loss": weighted_loss, "scheduler": chosen, **settings})
        return Project(model=model, updates=[update], batches=data)

    return project


def code_of(project: Callable[[], Project], policy: Policy, folder: Path, **known: Any) -> str:
    facts = opened_facts(opened(project(), folder), policy)
    plan = plan_of(facts, policy, **known)
    assert plan is not None
    return training_code(plan, made_from="a test")


def same_as_guarded(make_project: Callable[[], Project], policy: Policy, folder: Path, **known: Any) -> Pasted:
    """Runs both from the same weights and random numbers; every bit of state and the whole scaler must agree."""
    project = make_project()
    live = opened(project, folder)
    torch.manual_seed(5)
    with fp32_regions(live.modules, policy.fp32_regions):
        left = guarded(live, policy)

    mapped = {update.update for record in left.records for update in record.updates if update.mapped_loss}
    twin = make_project()
    run = pasted(code_of(make_project, policy, folder, mapped=mapped, **known), twin)
    torch.manual_seed(5)
    run.run(list(twin.batches))

    assert_same_bits(state_of(twin.model, twin.updates), state_of(project.model, project.updates))
    for mine, its in zip(twin.updates, project.updates, strict=True):
        assert mine.optimizer.param_groups[0]["lr"] == its.optimizer.param_groups[0]["lr"]
        if its.scheduler is not None:
            assert mine.scheduler.state_dict() == its.scheduler.state_dict()
    if left.run.scaler is not None:
        assert run.objects["scaler"].state_dict() == left.run.scaler.state_dict()
    return run


def step_lr(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)


def plateau(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)


class OwnPlateau(torch.optim.lr_scheduler.ReduceLROnPlateau):
    """What a project derives from torch's scheduler steps by the loss, too."""


def own_plateau(optimizer: torch.optim.Optimizer) -> Any:
    return OwnPlateau(optimizer, patience=0, factor=0.5)


ONE_UPDATE: dict[str, Callable[[], Project]] = {
    "plain": make(),
    "sgd with momentum": make(torch.optim.SGD, options={"momentum": 0.9}),
    "clip by norm": make(clip_norm=0.05),
    "clip by a norm that is never reached": make(clip_norm=1e9),
    "an infinite limit": make(clip_norm=float("inf")),
    "clip by value": make(clip_value=0.01),
    "scheduler": make(scheduler=step_lr, clip_norm=1.0),
    "scheduler after every second applied update": make(scheduler=step_lr, scheduler_every=2),
    "plateau": make(scheduler=plateau),
    "a plateau of the project's own": make(scheduler=own_plateau),
    "plateau over a window": make(scheduler=plateau, accumulate=3, data=batches(24, bad=(4, 11))),
    "window": make(accumulate=3, data=batches(24, bad=(4, 11)), clip_norm=1.0),
    "window, summed": make(accumulate=3, reduce="sum", data=batches(24, bad=(4, 11))),
    "every second iteration": make(every=2, scheduler=step_lr),
    "fused": make(options={"fused": True}, scheduler=step_lr),
    "fused sgd with momentum, skipped at first": make(
        torch.optim.SGD, options={"momentum": 0.9, "fused": True}, data=batches(8, bad=(0, 1, 4))
    ),
}


@pytest.mark.parametrize("name", ONE_UPDATE)
@pytest.mark.parametrize("buffers", ["keep", "rollback"])
def test_one_update_under_fp16_with_overflows(name: str, buffers: Any, tmp_path: Path) -> None:
    policy = Policy(scaler=FP16.scaler, buffers=buffers)
    run = same_as_guarded(ONE_UPDATE[name], policy, tmp_path)
    assert run.objects["scaler"].get_scale() != 4096.0 or "every" in name, "the example has skips"


@pytest.mark.parametrize("name", ["plain", "clip by norm", "scheduler", "plateau over a window", "fused"])
@pytest.mark.parametrize("policy", [Policy(dtype="bfloat16"), Policy(autocast=False, scaler=None)], ids=repr)
def test_one_update_without_a_scaler(name: str, policy: Policy, tmp_path: Path) -> None:
    run = same_as_guarded(ONE_UPDATE[name], policy, tmp_path)
    assert "scaler" not in run.code.replace("loss scaling", "")


def test_rollback_differs_from_keep(tmp_path: Path) -> None:
    means = {}
    for buffers in ("keep", "rollback"):
        run = same_as_guarded(make(), Policy(scaler=FP16.scaler, buffers=buffers), tmp_path)  # type: ignore[arg-type]
        means[buffers] = run.objects["model"].norm.running_mean
    assert not torch.equal(means["keep"], means["rollback"])


# What a loss function may return.


def mapped_loss(model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    loss = weighted_loss(model, batch)
    return {"loss": loss, "shown": loss.detach() * 2}


def alone_in_a_mapping(model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    return {"loss": weighted_loss(model, batch)}


@pytest.mark.parametrize("loss", [mapped_loss, alone_in_a_mapping])
def test_a_loss_in_a_mapping(loss: Callable[..., Any], tmp_path: Path) -> None:
    run = same_as_guarded(make(loss=loss), FP16, tmp_path)
    assert '["loss"]' in run.code


def sometimes_detached(model: nn.Module, batch: Batch) -> Tensor:
    """In some batches nothing of the optimizer's parameters takes part."""
    x, _y, weight = batch
    if weight == 7.0:
        return (model.outside * x.sum()).sum()
    return weighted_loss(model, batch)


def partly_idle(*, second: bool) -> Callable[[], Project]:
    data = [(x, y, 7.0 if n in (1, 4) else w) for n, (x, y, w) in enumerate(batches(10, bad=(2, 6)))]

    def project() -> Project:
        torch.manual_seed(11)
        model = Net()
        parameters = list(model.parameters())
        model.outside = nn.Parameter(torch.ones(1))
        optimizer = torch.optim.AdamW(parameters, lr=0.01)
        updates = [Update(optimizer=optimizer, loss=sometimes_detached, scheduler=step_lr(optimizer))]
        if second:
            other = torch.optim.SGD([model.outside], lr=1e-4)
            updates.append(Update(optimizer=other, loss=lambda m, b: (m.outside * b[0].sum()).sum(), name="b", every=2))
        return Project(model=model, updates=updates, batches=data)

    return project


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("policy", [FP16, Policy(dtype="bfloat16")], ids=["fp16", "bf16"])
def test_iterations_without_a_gradient(second: bool, policy: Policy, tmp_path: Path) -> None:
    same_as_guarded(partly_idle(second=second), policy, tmp_path, idle=["main"])


# Several updates.


def of_one(model: Any, batch: Batch) -> Tensor:
    return weighted_loss(model["one"], batch)


def of_two(model: Any, batch: Batch) -> Tensor:
    x, y, weight = batch
    towards = model["one"](x).detach()
    return ((model["two"](x) - towards).float() ** 2).mean() * (weight if weight != 1e6 else 1.0) + 0 * y.sum()


def several(**settings: Any) -> Callable[[], Project]:
    each = {"one": {}, "two": {}, **settings}
    shared = {key: value for key, value in settings.items() if key not in ("one", "two")}

    def project() -> Project:
        torch.manual_seed(11)
        model = {"one": Net(), "two": Net()}
        updates = []
        for name, loss in (("one", of_one), ("two", of_two)):
            options = {**shared, **each[name]}
            fused = {"fused": True} if options.pop("fused", False) else {}
            optimizer = torch.optim.AdamW(model[name].parameters(), lr=0.01, **fused)
            scheduler = options.pop("scheduler", lambda _optimizer: None)(optimizer)
            updates.append(Update(name=name, optimizer=optimizer, loss=loss, scheduler=scheduler, **options))
        data = batches(24, bad=(4, 7, 12))
        return Project(model=model, updates=updates, batches=data)

    return project


SEVERAL: dict[str, Callable[[], Project]] = {
    "plain": several(),
    "schedulers": several(scheduler=step_lr),
    "one scheduler": several(two={"scheduler": step_lr}),
    "counted": several(scheduler=step_lr, one={"scheduler_every": 3}),
    "plateau": several(scheduler=plateau, accumulate=2),
    "windows": several(accumulate=2, one={"clip_norm": 0.1}, two={"clip_value": 0.01}),
    "critic steps": several(two={"every": 3, "scheduler": step_lr}),
    "neither in every iteration": several(one={"every": 2}, two={"every": 3}),
    "one fused": several(one={"fused": True, "scheduler": step_lr}),
}


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("buffers", ["keep", "rollback"])
def test_several_updates_under_fp16_with_overflows(name: str, buffers: Any, tmp_path: Path) -> None:
    run = same_as_guarded(SEVERAL[name], Policy(scaler=FP16.scaler, buffers=buffers), tmp_path)
    assert set(run.results[0]) == {"one", "two"}


@pytest.mark.parametrize("name", ["plain", "schedulers", "plateau", "critic steps"])
def test_several_updates_under_bf16(name: str, tmp_path: Path) -> None:
    same_as_guarded(SEVERAL[name], Policy(dtype="bfloat16"), tmp_path)


def test_only_the_update_that_was_skipped_misses_its_schedule(tmp_path: Path) -> None:
    run = same_as_guarded(SEVERAL["schedulers"], FP16, tmp_path)
    epochs = {name: scheduler.last_epoch for name, scheduler in run.objects["schedulers"].items()}
    assert epochs == {"one": 21, "two": 24}


# FP32 regions.


class Parts(NamedTuple):
    x: Tensor
    more: dict[str, list[Tensor]]


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.dtypes: set[torch.dtype] = set()

    def forward(self, parts: Parts, *, scale: Tensor) -> Tensor:
        result = self.linear(parts.x) + parts.more["rest"][0] * scale
        self.dtypes |= {parts.x.dtype, parts.more["rest"][0].dtype, scale.dtype, result.dtype}
        return result


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.inner, self.head = nn.Linear(6, 16), Inner(), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        return self.head(self.inner(Parts(x, {"rest": [x]}), scale=x.mean()))


def nested(*, mapping: bool) -> Callable[[], Project]:
    def project() -> Project:
        torch.manual_seed(11)
        net = Nested()
        loss = (lambda m, b: weighted_loss(m["a.net"], b)) if mapping else weighted_loss
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        model = {"a.net": net} if mapping else net
        return Project(model=model, updates=[Update(optimizer=optimizer, loss=loss)], batches=batches(8, bad=(3,)))

    return project


@pytest.mark.parametrize("mapping", [False, True])
@pytest.mark.parametrize("regions", [["inner"], ["inner", "inner.linear"], ["head", "enter"], [""]])
def test_fp32_regions(mapping: bool, regions: list[str], tmp_path: Path) -> None:
    paths = [f"a.net.{region}".rstrip(".") for region in regions] if mapping else regions
    run = same_as_guarded(nested(mapping=mapping), Policy(scaler=FP16.scaler, fp32_regions=paths), tmp_path)
    model = run.objects["model"]
    net = model["a.net"] if mapping else model
    if "inner" in regions:
        assert net.inner.dtypes == {torch.float32}
    assert all("forward" not in vars(module) for module in net.modules()), "the modules are left as they were"


# Saving and restoring.


@pytest.mark.parametrize(
    "project", [make(scheduler=step_lr, scheduler_every=2), several(scheduler=step_lr, accumulate=2)]
)
def test_a_run_that_is_saved_and_restored_goes_on_bit_for_bit(project: Callable[[], Project], tmp_path: Path) -> None:
    code = code_of(project, FP16, tmp_path)
    whole, before, after = (pasted(code, project()) for _ in range(3))
    data = list(project().batches)
    torch.manual_seed(5)
    whole.run(data, iterations=12)

    torch.manual_seed(5)
    before.run(data, iterations=7)
    file = io.BytesIO()
    torch.save(before.call("training_state"), file)
    generators = torch.get_rng_state()
    saved = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
    torch.manual_seed(77)
    after.call("load_training_state", saved=saved)
    torch.set_rng_state(generators)
    after.run(data, start=7, iterations=5)

    assert after.objects["scaler"].get_scale() != 4096.0
    assert_same_bits(tensors_of(after.call("training_state")), tensors_of(whole.call("training_state")))


def tensors_of(state: Any, path: str = "") -> dict[str, Tensor]:
    """Every number and tensor in a nested state, by path."""
    if isinstance(state, dict):
        return {k: v for key, part in state.items() for k, v in tensors_of(part, f"{path}.{key}").items()}
    if isinstance(state, list | tuple):
        return {k: v for n, part in enumerate(state) for k, v in tensors_of(part, f"{path}.{n}").items()}
    return {path: torch.as_tensor(state)} if isinstance(state, Tensor | int | float) else {}


# How it reads.


def test_a_project_without_updates_has_no_training_step(tmp_path: Path) -> None:
    facts = opened_facts(opened(make()(), tmp_path), FP16)
    assert plan_of(dataclasses.replace(facts, updates=()), FP16) is None


@pytest.mark.parametrize("project", [*ONE_UPDATE.values(), *SEVERAL.values()])
def test_no_line_is_long_and_private_torch_is_called_in_one_explained_place_at_most(
    project: Callable[[], Project], tmp_path: Path
) -> None:
    code = code_of(project, Policy(scaler=FP16.scaler, buffers="rollback"), tmp_path)
    assert max(map(len, code.splitlines())) <= 110
    private = re.findall(r"\b\w+\._[a-z]\w*", code)
    assert private in ([], ["scaler._found_inf_per_device"])


PAYLOADS = (
    "a'b\"c",
    '"""',
    "\n__import__('os')",
    "x\\",
    "{y}",
    "\r\nimport os\n",
    "\x0cz",
    "\u2028z",
    "'''\\'''",
    "é🙂",
)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_foreign_names_stay_inside_string_literals_and_comments(payload: str, tmp_path: Path) -> None:
    facts = opened_facts(opened(SEVERAL["counted"](), tmp_path), FP16)
    one, two = facts.updates
    modules = tuple(dataclasses.replace(m, path=m.path.replace("one", payload)) for m in facts.modules)
    facts = dataclasses.replace(facts, modules=modules, updates=(dataclasses.replace(one, name=payload), two))
    policy = Policy(scaler=FP16.scaler, buffers="rollback", fp32_regions=[f"{payload}.head"])
    plan = plan_of(facts, policy)
    assert plan is not None
    code = training_code(plan, made_from=payload)
    plain = code_of(SEVERAL["counted"], dataclasses.replace(policy, fp32_regions=["one.head"]), tmp_path)

    assert code.isascii()
    assert shape_of(code) == shape_of(plain)
    assert payload in {node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)}


def shape_of(code: str) -> list[str]:
    """The kinds of all nodes: what is executed, whatever the texts say."""
    return [type(node).__name__ for node in ast.walk(ast.parse(code))]
