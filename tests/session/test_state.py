"""The state is what its events say: every event counts, nothing else does, and a replay gives the same."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amptui.findings.judgement import UpdateCounts
from amptui.project import Policy
from amptui.protocol import events as told
from amptui.protocol.codec import Floats, decode, encode
from amptui.protocol.facts import CaseFigures, IterationRecord, UpdateRecord
from amptui.session import state as states
from amptui.session.death import EngineDeath
from amptui.session.output_lines import LINE_CHARACTERS
from amptui.session.state import SessionState, died, reduce
from tests.protocol.messages import EVENTS, messages_of
from tests.report.stages import opened


def after(*events: told.Event, state: SessionState | None = None) -> SessionState:
    state = state or SessionState()
    for event in events:
        state = reduce(state, event)
    return state


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_event_leaves_its_mark(kind: type[told.Event], data: st.DataObject) -> None:
    event = data.draw(messages_of(kind))
    if isinstance(event, told.OutputCaptured):
        event = replace(event, text="a line\n")
    # In the middle of a paused trial, so that nothing is already as the event would make it.
    before = after(
        started(),
        told.StageStarted(stage="baseline"),
        trial_started(),
        told.StageStarted(stage="measure"),
        told.Paused(step=-1, why="middle"),
    )
    now = reduce(before, event)

    assert now.events == before.events + 1
    assert repr(replace(now, events=before.events)) != repr(before)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(EVENTS).flatmap(messages_of), max_size=12))
def test_any_order_of_events_can_be_replayed(events: list[told.Event]) -> None:
    live = after(*events)
    from_the_record = after(*[decode(encode(event)) for event in events])

    assert repr(live) == repr(from_the_record)


def test_an_event_is_never_changed_nor_is_the_state_before_it() -> None:
    before = after(started(), told.StageStarted(stage="project"))
    said = repr(before)

    reduce(before, told.Remarked(code="x", message="y"))

    assert repr(before) == said


def test_stages_follow_one_another() -> None:
    state = after(started(), told.StageStarted(stage="project"))
    assert (state.engine, state.stages, state.busy) == ("ready", {"project": "running"}, True)

    state = after(told.StageEnded(stage="project", completed=True), state=state)
    assert (state.stages, state.busy) == ({"project": "done"}, False)

    state = after(told.StageStarted(stage="trial"), told.Paused(step=3, why="guard"), state=state)
    assert state.paused is not None
    assert not state.busy
    state = after(told.Running(what="to the end"), state=state)
    assert (state.busy, state.doing) == (True, "to the end")

    state = after(told.Cancelled(stage="trial"), told.StageEnded(stage="trial", completed=False), state=state)
    assert (state.stages["trial"], state.busy) == ("cancelled", False)


def test_the_verdict_is_reached_within_the_trials_command() -> None:
    state = after(started(), told.StageStarted(stage="trial"), told.StageStarted(stage="verdict"))
    assert state.stages == {"trial": "done", "verdict": "running"}

    state = after(told.StageEnded(stage="trial", completed=True), state=state)
    assert state.stages == {"trial": "done", "verdict": "done"}


def test_a_stage_that_ends_without_being_completed_has_failed() -> None:
    state = after(started(), told.StageStarted(stage="baseline"), told.StageEnded(stage="baseline", completed=False))

    assert state.stages == {"baseline": "failed"}


def test_a_refusal_ends_the_stage_and_is_gone_with_the_next_one() -> None:
    state = after(started(), told.StageStarted(stage="project"), told.Refused(code="c", message="m"))
    assert (state.stages["project"], state.refusal and state.refusal.message) == ("refused", "m")

    assert after(told.StageStarted(stage="project"), state=state).refusal is None


def test_opening_a_project_again_keeps_what_belongs_to_the_session() -> None:
    locked = criteria_locked(1)
    state = after(started(), told.Remarked(code="x", message="y"), locked, trial_started(), checkpoint())
    state = after(told.StageStarted(stage="project"), state=state)

    assert (state.remarks, state.locked) == ((), None)
    assert state.revisions == (locked,)
    assert len(state.trials) == len(state.checkpoints) == 1
    assert state.engine == "ready"


def test_counts_add_up_while_a_run_goes_and_are_the_engines_own_at_its_end() -> None:
    state = after(started(), trial_started(), *[iteration(step, applied=step != 1) for step in range(4)])
    trial = state.trial
    assert trial is not None
    assert trial.run.iterations == 4
    counts = trial.run.counts["main"]
    assert (counts.iterations, counts.applied, counts.skipped, counts.first_applied) == (4, 3, 1, 0)
    assert trial.run.scale is not None
    assert (trial.run.scale.initial, trial.run.scale.lowest) == (8.0, 4.0)

    # Telemetry may have been left out on the line; what the engine counted holds.
    exact = UpdateCounts(name="main", iterations=50, applied=49, skipped=1, withheld=0, changed=49)
    done = told.TrialDone(trial=1, completed=True, counts=(exact,), scaler=None, quality=None, seconds=1.0)
    state = after(done, state=state)
    assert state.trial is not None
    assert state.trial.run.counts == {"main": exact}


def test_the_baselines_iterations_are_kept_apart_from_the_trials() -> None:
    state = after(iteration(0, run="baseline"), trial_started(), iteration(0), iteration(1))

    assert state.baseline_run.iterations == 1
    assert state.trial is not None
    assert state.trial.run.iterations == 2


def test_a_case_gathers_what_every_run_showed_of_it() -> None:
    figures = CaseFigures(case="val-1", index=0, tag="ordinary", outputs=(), margin=math.nan)
    state = after(
        told.BaselineCaseRun(figures=figures, noise={}, randomness={}),
        told.FinalCaseRun(run="baseline", figures=figures),
        trial_started(),
        told.TrialCaseRun(figures=figures, differences=(), decision_stands=True),
        told.FinalCaseRun(run="trial", figures=figures),
    )
    case = state.cases["val-1"]
    assert case.baseline is not None
    assert case.trial is not None
    assert set(case.final) == {"baseline", "trial"}

    again = after(trial_started(2), state=state).cases["val-1"]
    assert again.trial is None, "a new trial starts without the old one's figures"
    assert set(again.final) == {"baseline"}


def test_phases_are_those_of_one_iteration() -> None:
    phases = [
        told.PhaseDone(step=step, update="main", phase=phase, micro_batch=0, values={})
        for step, phase in ((4, "zero_grad"), (4, "forward"), (5, "zero_grad"))
    ]
    state = after(trial_started(), *phases[:2])
    assert state.trial is not None
    assert state.trial.phases == tuple(phases[:2])
    state = after(phases[2], state=state)
    assert state.trial is not None
    assert state.trial.phases == (phases[2],)


def test_trips_are_counted_and_the_last_are_kept() -> None:
    trip = told.GuardTripped(record=update_record(0), words="w", retained=None)
    state = after(trial_started(), *[trip] * (states.TRIPS + 5))

    assert state.trial is not None
    assert (state.trial.tripped, len(state.trial.trips)) == (states.TRIPS + 5, states.TRIPS)


def test_criteria_in_force_are_the_last_revision() -> None:
    state = after(criteria_locked(1), criteria_locked(2))

    assert state.locked is not None
    assert state.locked.revision == 2
    assert [locked.revision for locked in state.revisions] == [1, 2]


FOUND = told.CasesFound(samples=1, found=(), remarks=())


def test_finding_cases_is_no_step_of_a_sessions_way() -> None:
    begun = after(started(), told.StageStarted(stage="project"), told.StageEnded(stage="project", completed=True))
    looking = after(told.StageStarted(stage="measure", task="cases"), state=begun)
    assert (looking.stage, looking.busy) == ("project", True)
    for end in (FOUND, told.Cancelled(stage="measure"), told.Refused(code="no-batches", message="none")):
        done = after(end, told.StageEnded(stage="measure", completed=end is FOUND), state=looking)
        assert (done.stage, done.stages, done.busy) == ("project", {"project": "done"}, False)


def test_what_keeps_cases_from_being_found_keeps_nothing_from_being_judged() -> None:
    refused = told.Refused(code="no-batches", message="none")
    state = after(started(), told.StageStarted(stage="measure", task="cases"), refused)
    assert (state.refusal, state.obstacle) == (refused, None)
    state = after(told.StageStarted(stage="baseline"), refused, state=state)
    assert state.obstacle == refused


def test_trials_before_the_project_was_opened_again_are_told_from_those_since() -> None:
    state = after(started(), trial_started(), told.StageStarted(stage="project"), trial_started())
    assert (len(state.trials), state.earlier_trials) == (2, 1)


@pytest.mark.parametrize(
    ("last", "own_now", "goes_on"),
    [
        (
            Policy(fp32_regions=("gate",)),
            Policy(),
            Policy(fp32_regions=("gate",)),
        ),  # as it was
        (
            Policy(fp32_regions=("gate",)),
            Policy(fp32_regions=("a",)),
            Policy(fp32_regions=("a",)),
        ),  # mended in code
        (Policy(dtype="bfloat16"), Policy(), Policy()),  # its limits would be the other dtype's
    ],
)
def test_a_project_that_is_opened_again_goes_on_under_the_policy_that_was_mended(
    last: Policy, own_now: Policy, goes_on: Policy
) -> None:
    state = after(started(), *opened_with(Policy()), replace(trial_started(), policy=last))
    again = after(*opened_with(own_now), state=state)
    assert again.policy == goes_on
    assert after(*opened_with(own_now), state=again).policy == goes_on, "also after another death"


def test_a_revision_that_a_new_engine_goes_on_under_is_one_revision_still() -> None:
    state = after(criteria_locked(1), criteria_locked(1))
    assert state.locked is not None
    assert len(state.revisions) == 1


def test_an_engine_that_dies_stops_what_ran_and_a_new_one_starts_clean() -> None:
    death = EngineDeath(how="SIGKILL", words="killed", last_output=())
    state = died(after(started(), told.StageStarted(stage="trial")), death)
    assert (state.engine, state.stages["trial"], state.death) == ("dead", "failed", death)

    state = after(started(), state=state)
    assert (state.engine, state.death, state.failure) == ("ready", None, None)


class TestOutput:
    def test_lines_are_put_together_per_stream(self) -> None:
        state = after(output("one\ntw"), output("o\nthree"))

        assert [(line.text, line.ended) for line in state.output] == [("one", True), ("two", True), ("three", False)]
        assert state.output_lines == 3

    def test_a_progress_bar_writes_over_itself(self) -> None:
        state = after(output("10 %\r20 %\r"), output("30 %\r"), output("done\r\nnext\n"))

        assert [line.text for line in state.output] == ["done", "next"]

    def test_the_other_stream_does_not_continue_a_line(self) -> None:
        state = after(output("half"), output("error\n", "stderr"))

        assert [(line.stream, line.text) for line in state.output] == [("stdout", "half"), ("stderr", "error")]

    def test_memory_is_bounded(self) -> None:
        state = after(*[output("x" * 10_000 + "\n" + "\n" * 2000) for _ in range(3)])

        assert len(state.output) == states.OUTPUT_LINES
        assert state.output_lines == 3 * 2001
        assert max(len(line.text) for line in after(output("x" * 10_000)).output) == LINE_CHARACTERS


def opened_with(policy: Policy) -> tuple[told.Event, ...]:
    return tuple(
        replace(event, policy=policy) if isinstance(event, told.ProjectOpened) else event
        for event in (told.StageStarted(stage="project"), *opened())
    )


def started() -> told.EngineStarted:
    from amptui.protocol.facts import Environment

    environment = Environment(
        python="3.11",
        executable="python",
        torch="2.13",
        numpy=None,
        platform="linux",
        device="cpu",
        device_name="",
        accelerator=None,
        threads=1,
        precision={},
        git_commit=None,
        git_dirty=None,
    )
    return told.EngineStarted(pid=7, environment=environment)


def trial_started(trial: int = 1) -> told.TrialStarted:
    return told.TrialStarted(trial=trial, policy=Policy(), iterations=4, revision=1, attended=False)


def checkpoint() -> told.CheckpointWritten:
    return told.CheckpointWritten(name="fp32", path="p", sha256="0", tensors=1, bytes=4)


def criteria_locked(revision: int) -> told.CriteriaLocked:
    from amptui.project import Criteria

    return told.CriteriaLocked(
        revision=revision, digest="d", criteria=Criteria(), proposals=(), reason="", after_trial=False
    )


def output(text: str, stream: str = "stdout") -> told.OutputCaptured:
    return told.OutputCaptured(stream=stream, text=text)


def update_record(step: int, *, applied: bool = True) -> UpdateRecord:
    return UpdateRecord(
        step=step,
        update="main",
        outcome="ok" if applied else "bad_gradient",
        loss=1.0,
        losses=Floats.of([1.0]),
        shown={},
        norms=Floats.of([1.0]),
        norm=1.0,
        clipped_to=1.0,
        found_inf=not applied,
        scale=8.0,
        applied=applied,
        skipped=not applied,
        withheld=False,
        zero_gradient=False,
        learning_rate=0.1,
    )


def iteration(step: int, *, applied: bool = True, run: str = "trial") -> told.IterationDone:
    record = IterationRecord(
        step=step,
        updates=(update_record(step, applied=applied),),
        scale_before=8.0,
        scale_after=8.0 if applied else 4.0,
        growth_tracker=0,
        growth_interval=2000,
        seconds=0.1,
        memory=1,
    )
    return told.IterationDone(run=run, record=record)
