"""Stage 6: the policies side by side, what may be said of one, and why nothing is measured of what does not hold."""

from __future__ import annotations

from dataclasses import replace

from amptui.project import Policy, Scaler
from amptui.protocol import events as told
from amptui.session.state import SessionState
from amptui.ui.raster.line import plain
from amptui.ui.raster.table import column_widths
from amptui.ui.stages.measure import COLUMNS, policies_table, short_name, tell_measure_stage
from amptui.ui.told_page import told_lines
from tests.report import measured
from tests.report.stages import opened, started
from tests.ui.test_moves import ACCEPTED, REJECTED, after

SIDE_BY_SIDE = after(*measured.side_by_side())


def words(state: SessionState, trial: int = -1, width: int = 80) -> str:
    chosen = state.trials[trial] if state.trials else None
    lines = [plain(line) for line in told_lines(lambda page: tell_measure_stage(page, state, chosen), width)]
    assert all(len(line) <= width for line in lines)
    return " ".join(" ".join(lines).split())


def test_every_trial_is_a_row_with_what_decides_and_what_was_gained() -> None:
    first, second = policies_table(SIDE_BY_SIDE).rows
    assert first.values == ("fp16", "accept", 38, 2, "2^12", 0.955, "2.00×", "-40%")
    assert second.values == ("bf16", "accept", 38, 2, None, 0.955, "same", "")


def test_all_columns_are_there_at_80_cells_and_hold_their_words() -> None:
    widths = column_widths(COLUMNS, 80)
    assert all(widths)
    assert all(len(column.title) <= width for column, width in zip(COLUMNS, widths, strict=True))
    assert widths[1] >= len("reject: difference")
    assert len(short_name(Policy(scaler=Scaler(init_scale=1024.0)))) <= widths[0]


def test_a_rejected_row_says_what_failed_and_one_of_an_engine_before_stands_back() -> None:
    reject = after(*opened(), *measured.trial(1, "float16", "reject", scaled=True))
    assert policies_table(reject).rows[0].values[1] == "reject: updates"
    assert policies_table(reject).rows[0].role == "bad"
    assert policies_table(after(*opened()[1:], state=reject)).rows[0].role == "dim"


def test_a_policy_with_fp32_regions_has_another_name() -> None:
    assert short_name(Policy(fp32_regions=("a", "b"))) == "fp16+2 FP32"
    assert short_name(Policy(dtype="bfloat16")) == "bf16"


def test_of_a_measured_policy_everything_that_was_measured_is_said() -> None:
    said = words(SIDE_BY_SIDE, 0)
    for part in (
        "advice Take float16: it is accepted, and 2.00 times as fast as FP32",
        "✓ time 2.00 times as fast as FP32",
        "✓ memory peak device memory: 40% less",
        "4 cases once more without diagnostics: the same bits",
        "FP32 10.4 ms a step (quartiles 9.8 to 11.2)",
        "mixed 5.2 ms a step",
        "ratio 2.00 (quartiles 1.90 to 2.10)",
        "noise 1.00 (quartiles 0.99 to 1.01)",
        "1 left out for a skip",
        "CUDA events",
        "device cuda:0",
        "cuda matmul tf32",
        "yardstick the FP32 stretch under 3 other seeds",
        "within what seeds do",
        "3 of 12 ops ran in half",
        "a first scale of 2^12 was foreseen",
        "conv 3 float16 5 casts, 2.0 KiB",
    ):
        assert part in said, part


def test_of_an_accepted_one_it_is_said_how_it_will_be_measured() -> None:
    said = words(ACCEPTED)
    assert "Not measured yet" in said
    assert "the noise, and no gain is stated that is smaller" in said


def test_of_a_rejected_one_it_is_said_why_nothing_is_measured_and_what_may_help() -> None:
    said = words(REJECTED)
    assert "Only what holds is measured" in said
    assert "m the trial again with conv in FP32" in said
    assert "such as bfloat16" in said
    bare = words(after(*opened(), *measured.trial(1, "bfloat16", "reject", scaled=False)))
    assert "such as bfloat16" not in bare
    assert "the trial again with" not in bare


def test_before_there_is_a_trial_the_page_says_what_comes_first() -> None:
    assert "the trial (4) comes first" in words(after(*opened()))


def test_progress_is_shown_while_it_runs() -> None:
    running = after(
        told.StageStarted(stage="measure", task="time"),
        told.Progressed(stage="measure", what="rounds", done=10, total=40),
        state=ACCEPTED,
    )
    assert "rounds: 10 of 40 at most" in words(running)
    seeds = after(
        told.StageStarted(stage="measure", task="seeds"),
        told.Progressed(stage="measure", what="other seeds", done=10, total=40),
        state=ACCEPTED,
    )
    assert "other seeds: 10 of 40" in words(seeds)
    assert "at most" not in words(seeds)


def test_foreign_names_are_made_safe() -> None:
    nasty = replace(measured.mapped(), modules=(replace(measured.mapped().modules[0], path="\x1b[31m"),))
    assert "\x1b" not in words(after(nasty, state=ACCEPTED))
    assert "\x1b" not in words(after(*opened(), started("trial")))
