"""The host's picture of the loss scale is GradScaler's, after every course of overflows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from amptui import Scaler
from amptui.engine.scale import ScaleMirror, float32


def real_course(scaler: Scaler, course: list[bool]) -> list[tuple[float, int]]:
    """Scale and growth tracker of `torch.amp.GradScaler` after each update."""
    grad_scaler = torch.amp.GradScaler(
        "cpu",
        init_scale=scaler.init_scale,
        growth_factor=scaler.growth_factor,
        backoff_factor=scaler.backoff_factor,
        growth_interval=scaler.growth_interval,
    )
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    found = []
    for overflow in course:
        grad_scaler.scale(parameter.sum())
        parameter.grad = torch.full((1,), float("inf") if overflow else 1.0)
        grad_scaler.unscale_(optimizer)
        grad_scaler.update()
        state = grad_scaler.state_dict()
        found.append((state["scale"], state["_growth_tracker"]))
    return found


def mirrored(scaler: Scaler, course: list[bool]) -> list[tuple[float, int]]:
    mirror, found = ScaleMirror.start(scaler), []
    for overflow in course:
        mirror = mirror.updated(overflow)
        found.append((mirror.scale, mirror.growth_tracker))
    return found


@settings(max_examples=80, deadline=None)
@given(
    st.builds(
        Scaler,
        init_scale=st.floats(1e-30, 1e30),
        growth_factor=st.floats(1.001, 1e6),
        backoff_factor=st.floats(1e-6, 0.999),
        growth_interval=st.integers(1, 4),
    ),
    st.lists(st.booleans(), max_size=40),
)
def test_any_course_gives_the_same_scale_and_tracker(scaler: Scaler, course: list[bool]) -> None:
    assert mirrored(scaler, course) == real_course(scaler, course)


@pytest.mark.parametrize("course", [[False] * 200, [True] * 200, [True] * 170 + [False] * 5])
def test_growth_stops_at_the_top_and_back_off_ends_at_zero(course: list[bool]) -> None:
    scaler = Scaler(growth_interval=1)
    assert mirrored(scaler, course) == real_course(scaler, course)
    assert mirrored(scaler, [False] * 200)[-1][0] == 2.0**127
    assert mirrored(scaler, [True] * 200)[-1][0] == 0.0


def test_the_initial_scale_is_rounded_to_float32() -> None:
    assert ScaleMirror.start(Scaler(init_scale=0.1)).scale == torch.tensor(0.1).item()
    assert float32(1e39) == float("inf")
    assert float32(-1e39) == float("-inf")
