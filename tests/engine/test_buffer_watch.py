"""Which buffers turned infinite or NaN since the last reading, whatever their form and however many there are."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Case, Project
from amptui.engine.buffer_watch import BufferWatch
from tests.engine.projects import opened


class Holder(nn.Module):
    """Buffers that lie in one group (by dtype), and some that are watched by themselves."""

    def __init__(self) -> None:
        super().__init__()
        for index in range(40):
            self.register_buffer(f"mean{index}", torch.full((37,), float(index)))
        self.register_buffer("huge", torch.full((70,), 3e38))
        self.register_buffer("coarse", torch.full((70,), 6e4, dtype=torch.float16))
        self.register_buffer("fine", torch.full((5,), 1e300, dtype=torch.float64))
        self.register_buffer("table", torch.ones(3, 4))
        self.register_buffer("long", torch.ones(100_000))
        self.register_buffer("wave", torch.ones(2, dtype=torch.complex64))
        self.register_buffer("single", torch.ones(()))
        self.register_buffer("empty", torch.empty(0))
        self.register_buffer("mask", torch.tensor([0.0, -math.inf]))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))


def watched(folder: Path) -> tuple[Any, BufferWatch]:
    model = Holder()
    return model, BufferWatch(opened(Project(model=model, cases=[Case(id="one", inputs=torch.ones(1))]), folder))


def read(watch: BufferWatch) -> tuple[str, ...]:
    numbers = iter([number for figures in watch.figures() for number in figures.double().tolist()])
    worse = watch.gone_bad(numbers)
    assert next(numbers, None) is None, "it took all numbers of its own"
    return worse


def test_what_is_finite_or_was_infinite_from_the_start_is_not_told(tmp_path: Path) -> None:
    _, watch = watched(tmp_path)
    assert [read(watch) for _ in range(3)] == [(), (), ()]
    assert dict(watch.states) == {"mask": 1}


WATCHED = ["mean0", "mean39", "huge", "coarse", "fine", "table", "long", "wave", "single"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", WATCHED)
def test_one_bad_element_anywhere_names_its_buffer_once(name: str, bad: float, tmp_path: Path) -> None:
    model, watch = watched(tmp_path)
    flat = getattr(model, name).view(-1)
    for place in (0, flat.numel() - 1):
        before = flat[place].clone()
        flat[place] = bad
        assert read(watch) == (name,)
        assert read(watch) == (), "it is no worse than before"
        flat[place] = before
        assert read(watch) == ()


def test_several_are_named_in_the_order_of_the_modules(tmp_path: Path) -> None:
    model, watch = watched(tmp_path)
    model.long[5] = math.nan
    model.mean3[36] = math.inf
    assert read(watch) == ("mean3", "long")
    model.mean3[0] = math.nan
    model.mean2[0] = math.inf
    assert read(watch) == ("mean2", "mean3"), "an infinite one that becomes NaN is worse"


def test_states_that_are_put_back_are_told_again(tmp_path: Path) -> None:
    model, watch = watched(tmp_path)
    seen = watch.states
    model.mean3.fill_(math.inf)
    assert read(watch) == ("mean3",)
    watch.states = seen
    assert read(watch) == ("mean3",)


def replaced(model: Any, value: Tensor) -> None:
    model.mean3 = value


def swapped_in_place(model: Any, value: Tensor) -> None:
    model.mean3.data = value


FORMS = {
    "same": torch.ones(37),
    "longer": torch.ones(20_000),
    "two dimensions": torch.ones(2, 2),
    "none": torch.ones(()),
    "half": torch.ones(37, dtype=torch.float16),
    "complex": torch.ones(37, dtype=torch.complex64),
    "int": torch.ones(37, dtype=torch.int32),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("put", [replaced, swapped_in_place])
def test_a_buffer_that_takes_another_form_is_watched_on(
    put: Callable[[Any, Tensor], None], form: str, tmp_path: Path
) -> None:
    model, watch = watched(tmp_path)
    put(model, FORMS[form].clone())
    assert read(watch) == ()
    if form != "int":
        model.mean3.view(-1)[0] = math.nan
        assert read(watch) == ("mean3",)
    model.mean4.fill_(math.inf)
    assert read(watch) == ("mean4",)
