"""The diagnosis of a failure: what happened in plain words, where, on what evidence, and what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from amptui.findings.finding import Finding, Kind
from amptui.findings.judgement import Verdict
from amptui.protocol import events as told
from amptui.protocol.recalling import Recalled
from amptui.ui.cause_words import cause
from amptui.ui.known_failures import any_failure, first_to_show, known_failures
from amptui.ui.raster.line import plain
from amptui.ui.session_view import SessionView
from amptui.ui.stages.diagnosis import tell_diagnosis
from amptui.ui.told_page import told_lines
from tests.report import sessions
from tests.report.stages import Told, iteration, locked, opened, trial_started, trip, verdict

RUNNING: Told = (*opened(), *locked(), *trial_started(), iteration(0))
PAUSED = told.Paused(step=1, why="the guard held an update back")
FINDING = Finding(
    kind="overflow",
    severity="fault",
    stage="forward",
    step=1,
    update="main",
    module="norm",
    op="bmm",
    fp32_ok=True,
    evidence=("bmm is inf in float16", "from there: mse_loss in loss"),
    advice="Keep this in FP32.",
    facts={"source": "y = x @ x", "root_op": "exp", "root_module": "head", "reaches": ["output loss"]},
)
VARIATIONS = (("as it ran: float16, scale 2^16", "not finite"), ("true FP32, no scaling", "finite"))
DIAGNOSED = told.Diagnosed(
    step=1, update="main", case=None, retained="kept-1", findings=(FINDING,), variations=VARIATIONS
)


def view_of(*events: object) -> SessionView:
    view = SessionView()
    view.take_all(events)  # type: ignore[arg-type]
    return view


def text_of(view: SessionView, number: int = 0, width: int = 80) -> str:
    failures = known_failures(view.state)
    failure = failures[number] if failures else None
    lines = told_lines(lambda page: tell_diagnosis(page, view, failure, mend="m"), width)
    return " ".join(" ".join(plain(line) for line in lines).split())


def test_a_trip_that_was_looked_into_says_cause_place_way_replays_and_advice() -> None:
    text = text_of(view_of(*RUNNING, DIAGNOSED, trip(1), PAUSED))
    for said in (
        "A number became too large for float16 (it ends at 65,504) and turned into infinity: bmm in norm.",
        "forward · step 1 · update main · module norm · bmm",
        "it begins with exp in head",
        "from there: mse_loss in loss",
        "what it reaches: output loss",
        "true FP32, no scaling finite",
        "in FP32 does not happen",
        "to do Keep this in FP32.",
        "the guard The words about bad_gradient.",
    ):
        assert said in text
    assert text.index("A number became") < text.index("to do") < text.index("it begins with") < text.index("true FP32")


def test_where_only_the_scale_is_too_large_nothing_is_to_be_done_while_it_settles() -> None:
    fits = replace(
        DIAGNOSED,
        findings=(replace(FINDING, stage="gradient"),),
        variations=(*VARIATIONS, ("float16 at scale 2^8", "finite: the largest that fits")),
    )
    text = text_of(view_of(*RUNNING, fits, trip(1), PAUSED))
    assert "multiplied by a factor, the loss scale" in text
    assert "to do nothing at first: each skip halves the scale" in text
    assert "if it stays Keep this in FP32." in text


def test_the_source_is_shown_around_the_line_and_a_change_since_is_said(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text("def f(x):\n    y = x @ x\n    return y\n")
    at_line = replace(DIAGNOSED, findings=(replace(FINDING, line=f"{source}:2"),))
    text = text_of(view_of(*RUNNING, at_line, trip(1), PAUSED), width=200)
    assert "1 def f(x): > 2 y = x @ x 3 return y" in text
    assert "has changed" not in text
    source.write_text("def f(x):\n    y = x.float() @ x\n    return y\n")
    text = text_of(view_of(*RUNNING, at_line, trip(1), PAUSED), width=200)
    assert "The file has changed since; what ran was: y = x @ x" in text
    source.unlink()
    assert "> y = x @ x" in text_of(view_of(*RUNNING, at_line, trip(1), PAUSED), width=200)


@pytest.mark.parametrize(
    ("outcome", "says"),
    [("fixed", "Fixed:"), ("same", "Not fixed: it fails in the same place"), ("other_place", "in another one")],
)
def test_a_replay_says_first_what_became_of_the_failure(outcome: Recalled, says: str) -> None:
    kept = told.CaseRetained(
        id="kept-1", step=1, update="main", case=None, outcome="bad_loss", path="kept-1.pt", bytes=1
    )
    replayed = told.CaseReplayed(
        id="kept-1",
        step=1,
        update="main",
        outcome=outcome,
        replayed="bit for bit",
        findings=(),
    )
    text = text_of(view_of(*RUNNING, kept, replayed))
    assert says in text[:80]
    assert "kept-1" in text


def test_what_was_mended_is_told_as_what_it_was_and_its_scale_is_not_blamed() -> None:
    fixed = told.CaseReplayed(
        id="kept-1",
        step=1,
        update="main",
        outcome="fixed",
        replayed="not at op level: the failure did not show",
        findings=(),
        variations=(("as it ran: float16, scale 2^16", "finite"), ("float16 at scale 2^16", "finite")),
    )
    text = text_of(view_of(*RUNNING, DIAGNOSED, trip(1), fixed))
    assert text.index("Fixed:") < text.index("as it ran") < text.index("What it was") < text.index("A number became")
    assert "did not show" not in text
    assert "nothing at first" not in text


def test_failures_are_listed_once_and_the_one_in_question_comes_first() -> None:
    state = view_of(*RUNNING, DIAGNOSED, trip(1), replace(DIAGNOSED, step=3, retained="kept-3"), trip(3), trip(4)).state
    failures = known_failures(state)
    assert [failure.step for failure in failures] == [1, 3, 4]
    assert failures[first_to_show(view_of(*RUNNING, DIAGNOSED, trip(1), trip(2), PAUSED).state, failures)].step == 1
    paused = view_of(*RUNNING, DIAGNOSED, trip(1), trip(2), PAUSED).state
    assert known_failures(paused)[first_to_show(paused, known_failures(paused))].step == 2


def test_a_verdicts_fault_is_what_d_shows_and_a_case_row_its_own_finding() -> None:
    state = view_of(*sessions.rejected()).state
    failures = known_failures(state)
    shown = failures[first_to_show(state, failures)]
    fault = next(finding for finding in state.findings if finding.severity == "fault")
    assert fault in shown.findings
    assert any_failure(state)
    assert not any_failure(view_of(*opened()).state)
    assert text_of(view_of(*opened())) == "Nothing has failed in this session so far."


SETTLED = replace(
    FINDING,
    kind="scaler",
    severity="notice",
    stage="gradient",
    module="head",
    op="addmm",
    evidence=("the gradient of head.weight is infinite at scale 2^16 and finite at 2^14",),
    advice="Nothing has to change: the scaler lowers its scale by itself.",
    facts={
        "outcome": "bad_gradient", "count": 2, "last_step": 2, "retained": "kept-1", "scale": 65536.0,
        "fitting_scale": 16384.0,
    },
)  # fmt: skip
KEPT = told.CaseRetained(
    id="kept-1", step=1, update="main", case=None, outcome="bad_gradient", path="kept-1.pt", bytes=1
)
BY_SCALE = replace(
    DIAGNOSED,
    findings=(replace(FINDING, stage="gradient"),),
    variations=(*VARIATIONS, ("float16 at scale 2^14", "finite: the largest that fits")),
)


def judged(name: Verdict, *findings: Finding, trial: int = 1) -> Told:
    return tuple(
        replace(event, trial=trial) if isinstance(event, told.VerdictReached) else event
        for event in verdict(name, f"{name}: so it is.", [], findings=findings)
        if not isinstance(event, told.Goodbye)
    )


def test_a_settled_scale_is_one_notice_that_says_why_it_is_normal() -> None:
    view = view_of(*RUNNING, KEPT, trip(1), BY_SCALE, trip(2), *judged("accept", SETTLED))
    failures = known_failures(view.state)
    assert [failure.findings for failure in failures] == [(SETTLED,)], "skip, retained case and finding are one"
    text = text_of(view)
    for said in (
        "↷ The scaler did its normal work: at loss scale 2^16 a gradient was infinite, at 2^14 it is finite.",
        "2 updates were skipped while it lowered the scale, and no weight was touched.",
        "to do Nothing has to change",
        "kept as kept-1",
    ):
        assert said in text
    for wrong in ("✗", "does not do its work", "if it stays", "Keep this in FP32"):
        assert wrong not in text


def test_a_skip_that_cost_too_much_stays_the_fault_that_it_is() -> None:
    fault = replace(SETTLED, severity="fault", advice="Start with Scaler(init_scale=16384.0).")
    text = text_of(view_of(*RUNNING, KEPT, trip(1), BY_SCALE, *judged("reject", fault)))
    assert "✗" in text
    assert "normal" not in text


def test_other_notices_are_told_as_notices() -> None:
    near = Finding(kind="decision", severity="notice", stage="decision", case="tie-4", advice="Nothing has to change.")
    text = text_of(view_of(*RUNNING, *judged("accept", near)))
    assert text.startswith("! A notice, nothing that failed. The model decides differently")


def test_after_a_mended_trial_the_cause_of_the_earlier_one_can_still_be_read() -> None:
    again = [replace(event, trial=2) if isinstance(event, told.TrialStarted) else event for event in trial_started()]
    first = (*RUNNING, KEPT, trip(1), DIAGNOSED, *judged("reject", FINDING))
    view = view_of(*first, *again, iteration(0), *judged("accept", trial=2))
    [failure] = known_failures(view.state)
    assert (failure.retained, failure.findings) == ("kept-1", (FINDING,))
    text = text_of(view)
    assert "This is of trial 1" in text
    assert "A number became too large for float16 (it ends at 65,504) and turned into infinity: bmm in norm." in text
    assert "true FP32, no scaling finite" in text
    assert "This iteration failed and was kept" not in text


def test_a_retained_case_that_nobody_looked_into_says_so() -> None:
    assert "This iteration failed and was kept" in text_of(view_of(*RUNNING, KEPT))


@pytest.mark.parametrize("kind", Kind.__args__)  # type: ignore[attr-defined]
def test_every_kind_has_a_sentence_of_its_own_that_names_the_place(kind: Kind) -> None:
    said = cause(replace(FINDING, kind=kind), "bfloat16")
    assert said.endswith(": bmm in norm.")
    assert "{" not in said
    others = {cause(replace(FINDING, kind=other), "bfloat16") for other in Kind.__args__ if other != kind}  # type: ignore[attr-defined]
    assert said not in others


def test_foreign_text_is_made_safe() -> None:
    evil = "\x1b[31mx\x9b2J"
    hostile = replace(
        DIAGNOSED,
        findings=(
            replace(FINDING, module=evil, evidence=(evil,), advice=evil, facts={"source": evil, "root_op": evil}),
        ),
        variations=((evil, evil),),
    )
    text = text_of(view_of(*RUNNING, hostile, trip(1), PAUSED))
    assert "\x1b" not in text
    assert "\x9b" not in text


def test_a_cast_reads_as_an_operation_in_the_cause() -> None:
    assert cause(replace(FINDING, op="to", module="head"), "float16").endswith("turned into infinity: to() in head.")
