"""What to write instead is said with the fields that the user's own value already has."""

from __future__ import annotations

from typing import Any

import pytest

from amptui.spec.wrong_type import how_to_return_a_project, is_torch_module, what_it_is


@pytest.mark.parametrize(
    ("value", "said", "mend"),
    [
        (None, "nothing", "end the function with return Project(…)"),
        ({}, "an empty dict", "write return Project(model=…)"),
        ({"net": 1, "criterion": 2}, "a dict with the keys net, criterion",
         "write return Project(model=…, updates=[Update(optimizer=…, loss=…)])"),
        ({"model": 1, "train_loader": 2, "scheduler": 3}, "a dict with the keys model, train_loader, scheduler",
         "write return Project(model=…, batches=…, updates=[Update(optimizer=…, loss=…, scheduler=…)])"),
        ({"lr": 1, 2: 3}, "a dict with the keys lr, 2",
         "write return Project(model=…) ('lr', '2': no field of a Project)"),
        ((), "an empty tuple", "write return Project(model=…)"),
        ([1, "a"], "a list of int, str", "write return Project(model=…)"),
        ("text", "a str", "write return Project(model=…)"),
        (3, "an int", "write return Project(model=…)"),
    ],
)  # fmt: skip
def test_plain_values(value: Any, said: str, mend: str) -> None:
    assert what_it_is(value) == said
    assert how_to_return_a_project(value) == mend


def test_torch_classes_are_known_by_name_alone() -> None:
    base = type("Module", (), {"__module__": "torch.nn.modules.module"})
    net = type("Net", (base,), {})
    assert is_torch_module(net)
    assert not is_torch_module(type("Module", (), {}))
    assert what_it_is(net()) == "the nn.Module Net"
    sgd = type("SGD", (type("Optimizer", (), {"__module__": "torch.optim.optimizer"}),), {})
    assert how_to_return_a_project((net(), sgd(), 3)) == (
        "write return Project(model=…, updates=[Update(optimizer=…, loss=…)])"
    )
