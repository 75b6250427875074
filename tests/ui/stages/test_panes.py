"""What the panes are given: layers beside FP32's, plots with the clipping norm, cases with the worst on top."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from amptui.findings.judgement import Proposal
from amptui.project import Policy
from amptui.protocol import events as told
from amptui.protocol.codec import Floats
from amptui.ui.histories import NORM_STEPS, RunHistory, outcome_of
from amptui.ui.raster.line import plain
from amptui.ui.raster.table import TableView, table_lines
from amptui.ui.session_view import SessionView
from amptui.ui.stages.criteria import criteria_table, meaning
from amptui.ui.stages.layers import layers_table
from amptui.ui.stages.trial_plots import loss_plot, norm_plot, scale_plot, updates_timeline
from amptui.ui.stages.verdict import cases_table, tell_verdict_stage
from amptui.ui.told_page import told_lines
from tests.report import sessions
from tests.report.stages import baseline, iteration, locked, locked_by_the_user, opened, record, trial_started, trip


def view_of(events: object) -> SessionView:
    view = SessionView()
    view.take_all(events)  # type: ignore[arg-type]
    return view


def in_baseline(step: int) -> told.IterationDone:
    return replace(iteration(step), run="baseline")


def test_layers_show_the_norm_beside_the_baselines_at_the_same_step() -> None:
    view = view_of((*opened(), in_baseline(0), in_baseline(1), *locked(), *trial_started(), iteration(1)))
    facts = view.state.project.updates[0]  # type: ignore[union-attr]
    rows = layers_table(view, facts).rows
    assert [row.id for row in rows] == list(facts.layers)
    norm, fp32 = rows[0].values[1], rows[0].values[2]
    assert norm == fp32 == view.trial.updates["main"].last.norms[0]  # type: ignore[union-attr]


def test_a_layer_that_is_not_finite_is_bad_and_one_without_a_gradient_has_no_norm() -> None:
    bad = replace(record(0), norms=Floats.of([math.inf, -1.0]), norm=math.inf)
    event = iteration(0)
    view = view_of(
        (
            *opened(),
            *locked(),
            *trial_started(),
            replace(event, record=replace(event.record, updates=(bad,))),
        )
    )
    first, second = layers_table(view, view.state.project.updates[0]).rows  # type: ignore[union-attr]
    assert (first.role, first.values[1]) == ("bad", math.inf)
    assert (second.values[1], second.values[3]) == (None, None)


def test_what_was_measured_of_a_layer_stands_beside_its_norm_at_that_step_only() -> None:
    figures = told.LayersMeasured(
        step=1,
        update="main",
        norms=Floats.of([3.0, -1.0]),
        highest=Floats.of([0.5, -1.0]),
        zeros=Floats.of([0.25, -1.0]),
        dtypes=("float32", ""),
    )
    events = (*opened(), *locked(), *trial_started(), iteration(0), iteration(1))
    view = view_of((*events, figures))
    first, second = layers_table(view, view.state.project.updates[0]).rows  # type: ignore[union-attr]
    assert first.values[4:] == (0.5, 25.0, "float32")
    assert second.values[4:] == (None, None, "")
    underway = view_of((*events, replace(figures, step=2)))
    now = layers_table(underway, underway.state.project.updates[0]).rows  # type: ignore[union-attr]
    assert now[0].values[1:] == (3.0, None, 100.0, 0.5, 25.0, "float32")
    later = view_of((*events, figures, iteration(2)))
    assert layers_table(later, later.state.project.updates[0]).rows[0].values[4:] == (None, None, "")  # type: ignore[union-attr]


def test_norms_of_a_long_run_are_kept_for_so_many_steps_only() -> None:
    history = RunHistory()
    for step in range(NORM_STEPS + 50):
        history.take(iteration(step).record)
    assert len(history.updates["main"].layer_norms) == NORM_STEPS
    assert history.updates["main"].loss.last == NORM_STEPS + 49


def test_an_update_that_takes_no_part_is_absent_in_the_timeline() -> None:
    history = RunHistory()
    history.take(iteration(0).record)
    history.take(replace(iteration(1).record, updates=()))
    assert history.updates["main"].outcomes.recent(2) == ["applied", "absent"]
    assert outcome_of(record(0, "no_gradient")) == "absent"


def test_plots_cover_the_planned_steps_and_lay_the_trial_over_the_baseline() -> None:
    view = view_of(sessions.accepted())
    loss = loss_plot(view, "main")
    assert (loss.first, loss.last) == (0, 39)
    assert [trace.dashed for trace in loss.traces] == [False, True]
    facts = view.state.project.updates[0]  # type: ignore[union-attr]
    assert [limit.value for limit in norm_plot(view, "main", facts).limits] == [1.5]
    assert scale_plot(view).scale == "log2"
    notes = "".join(text for text, _ in updates_timeline(view, "main").notes)
    assert "38 applied · 2 skipped" in notes


def test_after_retries_the_scale_is_that_of_the_last_attempt() -> None:
    tripped = trip(1)
    lower = replace(tripped, record=replace(tripped.record, scale=1024.0))
    held = view_of((*opened(), *locked(), *trial_started(), iteration(0), lower, told.Paused(step=1, why="held")))
    assert scale_plot(held).title == "scale 2^10"
    assert scale_plot(held).notes == []
    one = iteration(1)
    update = replace(one.record.updates[0], scale=512.0)
    held.take(replace(one, record=replace(one.record, scale_before=65536.0, scale_after=512.0, updates=(update,))))
    assert held.trial.scale.value == 512.0


def test_another_trial_begins_its_histories_anew() -> None:
    view = view_of((*opened(), *locked(), *trial_started(), iteration(0), *trial_started()))
    assert view.trial.updates == {}


def test_cases_show_difference_limit_decision_and_margin_and_mark_what_failed() -> None:
    table = cases_table(view_of(sessions.rejected()).state)
    titles = [column.title for column in table.columns]
    assert titles == ["case", "tag", "output", "off by", "of limit", "limit", "decision", "margin"]
    assert any(row.role == "bad" for row in table.rows)
    assert all(len(row.values) == len(titles) for row in table.rows)


def test_what_passed_is_within_100_percent_of_its_limit() -> None:
    table = cases_table(view_of(sessions.accepted()).state)
    place = [column.title for column in table.columns].index("of limit")
    assert table.columns[place].unit == " %"
    shares = [row.values[place] for row in table.rows]
    assert shares == pytest.approx([0.0, 0.4, 0.8, 1.2])


def test_a_verdict_begins_with_its_word_then_the_cause_which_is_told_once() -> None:
    state = view_of(sessions.rejected()).state
    lines = [plain(line).strip() for line in told_lines(lambda page: tell_verdict_stage(page, state), 80)]
    verdict = next(n for n, line in enumerate(lines) if "REJECT" in line)
    causes = [n for n, line in enumerate(lines) if f"{state.findings[0].kind} · fault" in line]
    assert verdict == 1
    assert len(causes) == 1
    assert causes[0] <= 6, "in sight on a small terminal"
    assert causes[0] < next(n for n, line in enumerate(lines) if "passed" in line)
    assert all(len(line) <= 80 for line in lines)


def test_once_locked_the_criteria_on_the_page_are_those_in_force() -> None:
    view = view_of((*opened(), *baseline(), *locked_by_the_user()))
    [row] = criteria_table(view.state, None).rows
    assert row.values == ("decision_changes", "1", "you", "proposed was 0: none may change")
    assert row.role == "accent"


def test_limits_on_decisions_are_listed_where_something_decides() -> None:
    def listed(*, decides: bool) -> list[str]:
        begun = [replace(e, has_decide=decides) if isinstance(e, told.ProjectOpened) else e for e in opened()]
        return [row.id for row in criteria_table(view_of((*begun, *baseline())).state, None).rows]

    assert "decision_changes" in listed(decides=True)
    assert listed(decides=False) == [name for name in listed(decides=True) if name != "decision_changes"]


def test_at_80_columns_no_cell_of_the_criteria_is_cut() -> None:
    view = view_of(sessions.accepted())
    lines = [plain(line) for line in table_lines(criteria_table(view.state, None, 80), TableView(), 80, 24)]
    assert "is about" in lines[0]
    assert not [line for line in lines if "…" in line]
    wide = criteria_table(view.state, None, 140)
    assert wide.columns[-1].title == "reason"


def test_a_gradients_limit_is_told_as_the_differences_share_of_the_norm() -> None:
    criteria = (("outputs.gradient.atol", 0.0625), ("outputs.gradient.rtol", 0.0))
    proposals = [Proposal(name=name, value=value, reason="so", given=False) for name, value in criteria]
    view = view_of((*opened(), *baseline(), *locked(proposals=proposals)))
    about = [row.values[-1] for row in criteria_table(view.state, None, 80).rows]
    assert about == ["difference's share of a norm", "nothing for gradients"]
    assert "‖trial − FP32‖ / ‖FP32‖" in meaning("outputs.gradient.atol")
    assert "Bounds nothing" in meaning("outputs.gradient.rtol")


def test_while_stepping_layers_say_after_which_phase_they_show() -> None:
    waiting = view_of((*opened(), *baseline(), *locked(), *trial_started()))
    table = layers_table(waiting, waiting.state.project.updates[0])  # type: ignore[union-attr]
    assert "check_grads" in table.empty


def test_that_there_is_no_scaler_fits_into_half_a_screen() -> None:
    begun = trial_started()[1]
    assert isinstance(begun, told.TrialStarted)
    bf16 = replace(begun, policy=Policy(dtype="bfloat16"))
    value = scale_plot(view_of((*opened(), *baseline(), *locked(), bf16)))
    assert "no scaler" in value.empty
    assert len(value.empty) <= 30
