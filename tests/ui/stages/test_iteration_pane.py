"""The iteration at hand: phases with their values, the bad one named, what is to come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from amptui.protocol import events as told
from amptui.ui.moves import Situation
from amptui.ui.session_view import SessionView
from amptui.ui.stages.iteration_pane import iteration_text
from amptui.ui.stages.stage import Shown
from amptui.ui.widgets.text import TextValue
from tests.report.stages import Told, iteration, locked, opened, trial_started, trip


def pane(*events: object) -> TextValue:
    view = SessionView()
    view.take_all((*opened(), *locked(), *trial_started(), *events))  # type: ignore[arg-type]
    return iteration_text(Shown(view, Situation(view.state, "trial"), "main"))


def words(value: TextValue) -> str:
    spans = [span for item in value.paragraphs if item for span in (("  ", "dim"), (item.lead, "dim"), *item.spans)]
    return " ".join("".join(text for text, _ in spans).replace("\u00a0", " ").split())


def phase(name: told.PhaseName, **values: float) -> told.PhaseDone:
    return told.PhaseDone(step=3, update="main", phase=name, micro_batch=None, values=values)


def test_a_whole_iteration_shows_every_phase_with_the_figure_that_tells_most() -> None:
    value = pane(iteration(7))
    text = words(value)
    assert value.title == "iteration 7"
    for name in ("zero_grad", "forward", "check_loss", "backward", "unscale", "check_grads", "clip", "step"):
        assert f"✓ {name}" in text
    assert "backward ×2^16" in text
    assert "step applied" in text


def test_while_stepping_the_phases_to_come_have_no_mark() -> None:
    value = pane(phase("zero_grad"), phase("forward", loss=0.5))
    assert value.title == "iteration 3, after forward"
    assert words(value).startswith("✓ zero_grad ✓ forward loss 0.5 · check_loss · backward")


def test_phases_that_were_not_told_come_in_their_order_before_those_that_were() -> None:
    text = words(pane(phase("check_grads", norm=float("inf"))))
    assert text.startswith(
        "✓ zero_grad ✓ forward ✓ check_loss ✓ backward ✓ unscale ✗ check_grads norm inf · clip · step"
    )


def test_a_phase_with_a_value_that_is_not_finite_is_marked() -> None:
    assert "✗ forward loss inf" in words(pane(phase("zero_grad"), phase("forward", loss=float("inf"))))


def test_a_held_iteration_says_where_and_that_nothing_was_written() -> None:
    value = pane(iteration(0), trip(1), told.Paused(step=1, why="the guard held an update back"))
    assert value.title == "iteration 1 is held"
    text = words(value)
    assert "✗ check_grads" in text
    assert "step skipped" in text or "step withheld" in text
    assert "The words about bad_gradient." in text
    assert "✓ clip" not in text


def clipping(**limits: float | None) -> Told:
    """The project opened, with other limits for the gradients of its update."""
    return tuple(
        replace(event, updates=tuple(replace(update, **limits) for update in event.updates))  # type: ignore[arg-type]
        if isinstance(event, told.ProjectOpened)
        else event
        for event in opened()
    )


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"clip_norm": 1.5, "clip_value": None}, "✓ clip not needed"),
        ({"clip_norm": None, "clip_value": 0.5}, "✓ clip by value"),
        ({"clip_norm": None, "clip_value": None}, "· no clipping"),
    ],
)
def test_clipping_that_is_not_there_is_not_called_unneeded(limits: dict[str, float | None], said: str) -> None:
    for events in ((iteration(7),), (phase("check_grads", norm=1.0), phase("clip", factor=1.0))):
        view = SessionView()
        view.take_all((*clipping(**limits), *locked(), *trial_started(), *events))
        assert said in words(iteration_text(Shown(view, Situation(view.state, "trial"), "main")))


def of(outcome: Any, **facts: Any) -> str:
    """The pane's words for an iteration without a trip's sentence below it, whose update ended so."""
    event = iteration(7, outcome)
    [update] = event.record.updates
    return words(pane(replace(event, record=replace(event.record, updates=(replace(update, **facts),)))))


def test_the_gradients_of_a_bad_loss_are_marked_by_what_they_are() -> None:
    nan = float("nan")
    bad = ("micro-batch 0", "conv.weight")
    spoiled = of("bad_loss", loss=nan, norm=nan, found_inf=True, skipped=True, bad=bad)
    assert "✗ forward loss nan ✗ check_loss ✓ backward ×2^16 ✓ unscale ✗ check_grads not finite: conv.weight" in spoiled
    sound = of("bad_loss", loss=nan, norm=2.5, found_inf=False, withheld=True, bad=bad[:1])
    assert "✗ check_loss" in sound
    assert "✓ check_grads norm 2.5" in sound
    assert "micro-batch" not in sound


def test_a_held_bad_loss_has_its_gradients_marked_too() -> None:
    held = trip(1, "bad_loss")
    for found, said in ((True, "✗ check_grads not finite"), (False, "✓ check_grads norm 1")):
        event = replace(held, record=replace(held.record, found_inf=found))
        assert said in words(pane(event, told.Paused(step=1, why="the guard held an update back")))


@pytest.mark.parametrize(
    ("outcome", "facts", "said"),
    [
        ("bad_buffers", {"bad": ("bn.running_var",)}, "✗ check_grads norm 1, buffers not finite: bn.running_var"),
        ("norm_overflow", {"norm": float("inf")}, "✗ check_grads norm beyond float32: conv.weight"),
        ("bad_before_step", {}, "✓ check_grads norm 1 "),
        ("bad_gradient", {"norm": float("inf"), "found_inf": True}, "✗ check_grads not finite: conv.weight"),
    ],
)
def test_the_gradients_are_called_bad_only_where_they_are(outcome: str, facts: dict[str, Any], said: str) -> None:
    assert said in of(outcome, **{"found_inf": False, **facts})


def test_before_the_trial_it_says_how_to_begin() -> None:
    view = SessionView()
    view.take_all(opened())  # type: ignore[arg-type]
    value = iteration_text(Shown(view, Situation(view.state, "trial"), "main"))
    assert "follows the baseline" in words(value)


def test_how_many_were_held_is_told_from_the_second_on() -> None:
    held = told.Paused(step=1, why="the guard held an update back")
    kept = replace(trip(1), retained="kept-1")
    assert "number" not in words(pane(iteration(0), kept, held))
    assert "number 2 that the guard held" in words(pane(iteration(0), replace(kept, retained="kept-0"), kept, held))
