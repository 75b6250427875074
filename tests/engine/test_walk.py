"""Stepping through a trial: by phase, by iteration, until something happens; pausing, answering, leaving."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amptui import Policy, Project, Scaler, Update
from amptui.protocol.commands import (
    Advance,
    Answer,
    Cancel,
    Close,
    Command,
    Condition,
    Continue,
    FallBack,
    LockCriteria,
    Pause,
    RunBaseline,
    RunTrial,
)
from amptui.protocol.events import (
    Cancelled,
    Event,
    FellBack,
    GuardTripped,
    Intervened,
    IterationDone,
    LayersMeasured,
    Paused,
    PhaseDone,
    Refused,
    Running,
    StageEnded,
    VerdictReached,
)
from tests.engine.conducted import Conducted, opened_by

PHASES = ["zero_grad", "forward", "check_loss", "backward", "unscale", "check_grads", "clip", "step"]


def project(loss: Any = None, count: int = 8, policy: Policy | None = None) -> Project:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    update = Update(optimizer=torch.optim.SGD(model.parameters(), lr=0.001), loss=loss or growing)
    data = [(torch.full((2, 4), 1.0), index) for index in range(count)]
    return Project(model=model, updates=[update], batches=data, policy=policy or Policy(dtype="bfloat16"))


def growing(model: Any, batch: Any) -> Tensor:
    """The loss is the iteration's number, its gradient's norm √5 times that."""
    out = model(batch[0]).float().mean()
    return (out - out.detach()) * batch[1] + batch[1]


def overflowing(*steps: int) -> Callable[[Any, Any], Tensor]:
    """Overflows float16 in these steps at a scale of 1024, and at 512 no more."""

    def loss(model: Any, batch: Any) -> Tensor:
        return model(batch[0]).float().mean() * (100.0 if batch[1] in steps else 1.0)

    return loss


SCALED = Policy(scaler=Scaler(init_scale=1024.0))


@pytest.fixture
def walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def walk(
        given: Project,
        *answers: Command,
        then: Command | None = None,
        react: Callable[[Event], Command | None] = lambda event: None,
    ) -> Conducted:
        """A trial whose pauses are answered by `answers` in turn, and after them by `then` (default: cancel)."""
        done = opened_by(given, tmp_path, monkeypatch).do(RunBaseline(), LockCriteria())
        send, left = done.recorder.send, list(answers)

        def listened(event: Event) -> int:
            place = send(event)
            if isinstance(event, Paused):
                done.inbox.put(left.pop(0) if left else (then or Cancel()))
            command = react(event)
            if command is not None:
                done.inbox.put(command)
            return place

        done.recorder.send = listened  # type: ignore[method-assign]
        return done.do(RunTrial(attended=True))

    return walk


def phases(done: Conducted) -> list[tuple[int, str]]:
    return [(event.step, event.phase) for event in done.all(PhaseDone)]


def paused_at(done: Conducted) -> list[tuple[int, str]]:
    return [(event.step, event.why) for event in done.all(Paused)]


def iterations(done: Conducted) -> list[int]:
    return [event.record.step for event in done.all(IterationDone) if event.run == "trial"]


def test_a_trial_begins_paused_after_its_first_phase(walked: Any) -> None:
    done = walked(project())
    assert phases(done) == [(0, "zero_grad")]
    assert paused_at(done) == [(0, "after this phase")]


def test_by_phase_each_one_is_shown_and_waited_for(walked: Any) -> None:
    done = walked(project(policy=SCALED, loss=overflowing()), *[Advance(unit="phase")] * 9)
    assert phases(done) == [(0, name) for name in [*PHASES, "update_scale"]] + [(1, "zero_grad")]
    values = {event.phase: event.values for event in done.all(PhaseDone)}
    assert "loss" in values["forward"], "read as it is shown"
    assert values["backward"] == {"scale": 1024.0}
    assert iterations(done) == [0]


def test_by_iteration_only_its_end_is_waited_for(walked: Any) -> None:
    done = walked(project(), *[Advance(unit="iteration")] * 3)
    assert paused_at(done) == [(0, "after this phase"), *((step, "after this iteration") for step in range(3))]
    assert phases(done) == [(0, "zero_grad")], "phases are not shown meanwhile"
    assert iterations(done) == [0, 1, 2]


def test_to_the_end_and_to_a_verdict_without_interventions(walked: Any) -> None:
    done = walked(project(), Continue())
    assert iterations(done) == list(range(8))
    assert done.one(VerdictReached).interventions == 0
    assert not done.all(Cancelled)
    assert [event.what for event in done.all(Running)] == ["run"]


@pytest.mark.parametrize(
    ("loss", "condition", "step", "why"),
    [
        (overflowing(2, 5), Condition(name="skip"), 2, "until skip: main is skipped"),
        (overflowing(2, 5), Condition(name="scale_drop"), 2, "until scale drop: from 2^10 to 2^9"),
        (overflowing(2, 5), Condition(name="nonfinite"), 2, "until nonfinite: in main"),
        (None, Condition(name="norm", value=7.0), 4, "until norm: 8.944 is over 7"),
        (None, Condition(name="loss", value=4.5), 5, "until loss: 5 is over 4.5"),
        (None, Condition(name="step", value=6), 6, "until step: 6"),
        (overflowing(3, 4, 5, 6), Condition(name="stall", value=2), 4, "until stall: 2 iterations without an update"),
    ],
    ids=lambda value: value.name if isinstance(value, Condition) else "",
)
def test_until_each_condition(loss: Any, condition: Condition, step: int, why: str, walked: Any) -> None:
    policy = SCALED if loss is not None else None
    if condition.name == "stall":
        policy = Policy(scaler=Scaler(init_scale=1024.0, backoff_factor=0.999))
    done = walked(project(loss, policy=policy), Continue(until=condition), then=Answer(choice="go_on"))
    reached = [place for place in paused_at(done) if place[1].startswith("until ")]
    assert reached[0] == (step, why)


def test_without_a_value_a_condition_on_a_value_never_holds(walked: Any) -> None:
    done = walked(project(), Continue(until=Condition(name="norm")))
    assert iterations(done) == list(range(8))


def test_a_norm_or_loss_that_is_not_finite_is_beyond_every_value(walked: Any) -> None:
    def loss(model: Any, batch: Any) -> Tensor:
        on = torch.is_autocast_enabled("cpu")
        return model(batch[0]).float().mean() * (math.nan if on and batch[1] == 3 else 1.0)

    done = walked(
        project(loss), Continue(until=Condition(name="loss", value=1e9)), Answer(choice="go_on"), then=Cancel()
    )
    assert paused_at(done)[-1] == (3, "until loss: nan is not finite")


def after(step: int, command: Command) -> Callable[[Event], Command | None]:
    """Sends `command` once while a trial runs, when it has done iteration `step`."""
    left = [command]

    def react(event: Event) -> Command | None:
        done = isinstance(event, IterationDone) and event.run == "trial" and event.record.step == step
        return left.pop() if done and left else None

    return react


def test_pause_stops_a_running_trial_and_it_goes_on_where_it_was(walked: Any) -> None:
    done = walked(project(), Continue(), Continue(), react=after(2, Pause()))
    assert paused_at(done) == [(0, "after this phase"), (3, "paused")]
    assert iterations(done) == list(range(8))


def test_a_new_pace_takes_over_while_the_trial_runs(walked: Any) -> None:
    done = walked(project(), Continue(), react=after(2, Advance(unit="iteration")))
    assert paused_at(done)[-1] == (3, "after this iteration")


def test_what_belongs_to_another_stage_is_refused_meanwhile(walked: Any) -> None:
    done = walked(project(), Continue(), react=after(2, LockCriteria(reason="better so")))
    assert [refused.code for refused in done.all(Refused)] == ["order"]
    assert iterations(done) == list(range(8))


# Layers.


def test_layers_are_measured_once_while_an_iteration_is_stepped_through(walked: Any) -> None:
    done = walked(project(), *[Advance(unit="phase")] * (len(PHASES) - 1))
    assert [told.step for told in done.all(LayersMeasured)] == [0]


def test_layers_are_measured_at_the_end_of_an_iteration_that_one_stops_after(walked: Any) -> None:
    done = walked(project(), *[Advance(unit="iteration")] * 3)
    told = done.all(LayersMeasured)
    assert [one.step for one in told] == [0, 1, 2]
    assert list(told[2].highest) == [2.0, 2.0]
    assert list(told[2].zeros) == [0.0, 0.0]
    assert told[2].dtypes == ("float32", "float32")


@pytest.mark.parametrize("stop", [Advance(unit="iteration"), Continue(until=Condition(name="step", value=2))])
def test_norm_and_largest_magnitude_are_both_from_before_clipping(walked: Any, stop: Command) -> None:
    given = project()
    [update] = given.updates
    clipped = replace(given, updates=[replace(update, clip_norm=0.5)])
    done = walked(clipped, *[stop] * (3 if isinstance(stop, Advance) else 1))
    told = done.all(LayersMeasured)[-1]
    assert told.step == 2
    assert list(told.norms) == pytest.approx([4.0, 2.0])
    assert list(told.highest) == pytest.approx([2.0, 2.0])


def test_where_values_were_clipped_no_largest_magnitude_is_told_that_was_not_seen(walked: Any) -> None:
    given = project()
    [update] = given.updates
    clipped = replace(given, updates=[replace(update, clip_value=0.5)])
    unseen = walked(clipped, Continue(until=Condition(name="step", value=2))).all(LayersMeasured)[-1]
    assert list(unseen.highest) == [-1.0, -1.0]
    assert list(unseen.zeros) == [0.0, 0.0]


def test_layers_are_measured_at_a_trip(walked: Any) -> None:
    done = walked(project(overflowing(2), policy=SCALED), Continue(), Answer(choice="go_on"), then=Continue())
    assert [told.step for told in done.all(LayersMeasured)] == [2]


def test_layers_are_not_measured_while_a_trial_runs_on(walked: Any) -> None:
    assert walked(project(), Continue()).all(LayersMeasured) == []


# Trips.


def test_every_trip_is_waited_for_and_going_on_takes_it_as_the_skip_it_is(walked: Any) -> None:
    done = walked(project(overflowing(2), policy=SCALED), Continue(), Answer(choice="go_on"))
    assert paused_at(done)[-1] == (2, "the guard held an update back")
    [counts] = done.one(VerdictReached).counts
    assert (counts.applied, counts.skipped) == (7, 1)
    assert not done.all(Intervened)
    assert done.one(VerdictReached).interventions == 0


def test_from_a_held_iteration_on_to_the_verdict_without_stopping_again(walked: Any) -> None:
    done = walked(project(overflowing(2, 5), policy=SCALED), Continue(), Continue(attended=False))
    assert paused_at(done)[1:] == [(2, "the guard held an update back")]
    assert iterations(done) == list(range(8))
    assert done.one(VerdictReached).interventions == 0


def test_a_pause_of_what_runs_without_stopping_brings_the_stops_back(walked: Any) -> None:
    done = walked(
        project(overflowing(4), policy=SCALED),
        Continue(attended=False),
        Continue(),
        then=Cancel(),
        react=after(2, Pause()),
    )
    assert [why for _, why in paused_at(done)[1:]] == ["paused", "the guard held an update back"]


def test_a_retry_runs_the_window_at_the_new_scale_and_marks_the_verdict(walked: Any) -> None:
    done = walked(project(overflowing(2), policy=SCALED), Continue(), Answer(choice="retry"))
    [counts] = done.one(VerdictReached).counts
    assert (counts.applied, counts.skipped) == (8, 0)
    assert done.one(Intervened).what == "retry"
    verdict = done.one(VerdictReached)
    assert verdict.interventions == 1
    assert "with interventions" in verdict.words


def test_stepping_on_from_a_trip_is_going_on(walked: Any) -> None:
    done = walked(project(overflowing(0), policy=SCALED), Continue(), Advance(unit="phase"), then=Cancel())
    assert done.all(GuardTripped)
    assert phases(done)[-1] == (0, "update_scale")


# Leaving.


@pytest.mark.parametrize("when", ["stepping", "running", "at a trip"])
def test_a_cancelled_trial_is_inconclusive_and_the_next_one_runs(when: str, walked: Any) -> None:
    loss = overflowing(2) if when == "at a trip" else None
    policy = SCALED if when == "at a trip" else None
    given = project(loss, policy=policy)
    if when == "running":
        done = walked(given, Continue(), react=after(2, Cancel()))
    elif when == "stepping":
        done = walked(given, *[Advance(unit="phase")] * 3)
    else:
        done = walked(given, Continue())
    assert done.one(VerdictReached).verdict == "inconclusive"
    assert len(done.all(Cancelled)) == 1
    assert not done.all(StageEnded)[-1].completed
    assert not done.inbox.cancel_asked, "the cancel is used up"
    done.do(RunTrial())
    assert done.all(StageEnded)[-1].completed
    assert iterations(done)[-8:] == list(range(8))


def test_falling_back_from_inside_a_trial(walked: Any) -> None:
    given = project()
    before = given.model.weight.detach().clone()
    done = walked(given, *[Advance(unit="iteration")] * 3, then=FallBack())
    assert done.one(FellBack).proven
    assert torch.equal(given.model.weight, before)
    assert not given.updates[0].optimizer.state_dict()["state"]


def test_closing_ends_the_trial(walked: Any) -> None:
    done = walked(project(), Advance(unit="iteration"), then=Close())
    assert done.inbox.closing is not None
    assert iterations(done) == [0]
    assert not done.all(StageEnded)[-1].completed
