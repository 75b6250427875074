"""What stands in a report: the verdict and all it rests on, what was not run, and code only for what was accepted."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from amptui.protocol import events as told
from amptui.report.compose import compose
from amptui.report.document import Document
from amptui.report.html import html
from amptui.report.markdown import markdown
from amptui.report.sections.pasted import accepted_code
from amptui.report.told_rows import OF_LIMIT
from tests.report.sessions import SESSIONS, accepted, inconclusive, rejected
from tests.report.stages import baseline, locked_by_the_user, opened, trial_started
from tests.report.test_html import Page
from tests.report.written import everything, recorded


def report(events: Any) -> Document:
    return compose(recorded(events))


def section(document: Document, key: str) -> str:
    """The words of one section, as the Markdown has them, without escapes."""
    [found] = [section for section in document.sections if section.key == key]
    alone = dataclasses.replace(document, sections=[found])
    return markdown(alone).partition("\n## ")[2].rpartition("\n---\n")[0].replace("\\", "")


def keys(document: Document) -> list[str]:
    return [section.key for section in document.sections]


@pytest.mark.parametrize("session", SESSIONS)
def test_every_session_gives_a_report_in_every_format(session: str) -> None:
    document = report(SESSIONS[session]())
    assert markdown(document)
    assert Page(html(document)).tags.count("section") >= 2


def test_the_sections_in_their_order() -> None:
    assert keys(report(everything())) == [
        *("verdict", "findings", "stretch", "cases", "measured", "forecast"),
        *("code", "criteria", "conditions", "happened", "limits"),
    ]


def test_sections_with_nothing_to_say_are_left_out() -> None:
    assert keys(report(SESSIONS["refused"]())) == ["verdict", "conditions", "happened"]
    assert "measured" not in keys(report(accepted()))


def test_the_banner_says_the_verdict_once() -> None:
    banner = report(accepted()).banner
    assert (banner.sign, banner.word, banner.sentence) == ("ok", "ACCEPTED", "4 cases and 40 iterations held.")
    assert report(rejected()).banner.sign == "fail"
    assert report(inconclusive()).banner.word == "INCONCLUSIVE"


def test_without_a_verdict_the_banner_says_why() -> None:
    banner = report(SESSIONS["refused"]()).banner
    assert banner.word == "NO VERDICT"
    assert "parameter 'w' is in two optimizers (train.py:21)" in banner.sentence
    assert "let exactly one optimizer own each parameter" in banner.sentence


def test_rows_that_failed_are_told_with_their_figures() -> None:
    text = section(report(rejected()), "verdict")
    assert "| decision (a tie in the baseline) | tie-4 | 3 | 8 |   | the same | ✗ failed |" in text
    assert "30 of 40 updates of main applied" in text
    # two rows about the same thing with the same limit share a line
    assert (
        "| output scores, before the stretch | 2: plain-2 and long-3 | 1.25 | 7.75 | 6.5 | 0.125 | ✗ failed |" in text
    )


def test_every_measured_figure_is_told_in_its_unit() -> None:
    told_only = section(report(accepted()), "verdict")
    assert "| 0.5 | 0.51 | above by 2 % |" in told_only
    assert "as a share of the FP32 loss" in told_only
    assert "rtol × |FP32|" not in told_only, "there is no such row"
    assert "rtol × |FP32|" in section(report(rejected()), "verdict")


def test_each_case_is_told_beside_fp32() -> None:
    text = section(report(rejected()), "cases")
    assert "| `plain-1` | ordinary | 3 |   | 0.5 |   |   | ! not run in the trial |" in text
    assert "| `plain-2` | ordinary | 3 | 3 | 0.5 → 0.5 | 6.6 | 2,600 % | ✗ out of tolerance |" in text
    assert "| `long-3` | edge | 3 | 3 | 0.5 → 0.5 | inf | inf | ✗ not finite |" in text
    assert "| `tie-4` | boundary | 3 | 8 | 0.0003 → 0.0003 | 0.001 | 0 % | ✗ decision changed |" in text
    assert "scores by 0.25 + 0.01 × |FP32|" in text
    assert OF_LIMIT in text


def test_a_finding_has_place_evidence_and_mend() -> None:
    text = section(report(rejected()), "findings")
    for said in (
        "### ✗ overflow: fault, iteration 5",
        "`blocks.3.norm` · `pow` · `net.py:31`",
        "does not happen",
        "- the square reaches 80,000",
        "**What to do:** Run blocks.3.norm in FP32.",
        "### ! decision: notice, case tie-4",
        "What mends it: run in FP32 `blocks.3.norm`.",
        "Write it in the project: policy=Policy(fp32_regions=['head.norm', 'blocks.3.norm']), or in amptui.yaml",
    ):
        assert said in text


def test_criteria_are_told_with_digest_reasons_and_every_revision() -> None:
    text = section(report(accepted()), "criteria")
    assert "abcdef0123456789" * 4 in text
    assert "| `outputs.scores.atol` | 0.25 | project | given by the project |" in text
    assert "revision 1, locked before the trial" in text
    late = section(report(inconclusive()), "criteria")
    assert "! revision 2, locked after a trial had run" in late
    assert "the loader was shuffled" in late


def test_a_criterion_that_the_user_wrote_is_told_as_theirs() -> None:
    text = section(report((*opened(), *baseline(), *locked_by_the_user(), *trial_started())), "criteria")
    assert "| `decision_changes` | 1 | the user | in place of 0, proposed as none may change |" in text


def test_what_happened_on_the_way() -> None:
    text = section(report(everything()), "happened")
    for said in (
        "- iteration 4: retried",
        "`kept-0` | iteration 0 | main | bad gradient | 2.0 KiB | `/s/kept-0.pt`",
        "a remark (`a.py:1`) an advice",
        "“bit for bit” is not proven",
        "Replayed later: `kept-0` fails where it did",
        "amptui restore 20261129-160455-tiny-3fa9 -o fp32.pt",
    ):
        assert said in text, said


def test_a_measurement_shows_when_there_is_one() -> None:
    text = section(report(everything()), "measured")
    assert "✓ 1.50 times as fast as FP32" in text
    assert "| FP32 over policy, paired | 1.5 | 1.4 to 1.6 | 7 |" in text
    assert "1 round with a skipped update left out" in text
    assert "FP32 400.0 MiB, once more 401.0 MiB, policy 300.0 MiB" in text
    assert "Time | 1.50" not in text
    assert "* **Time**: 1.50 times as fast as FP32" in section(report(everything()), "verdict")
    assert "not measured" not in section(report(everything()), "limits")
    assert "Time and memory were not measured" in section(report(accepted()), "limits")


def test_the_forecast_stands_beside_the_trial() -> None:
    text = section(report(everything()), "forecast")
    place = "blocks.0 (mul) · net.py:3"
    assert f"| float16 | {place} and 1 more place | {place} | 0.65 | 2^10 |" in text
    assert "not known: no kernel" in text
    assert "Beside what the trial showed:" in text


def test_code_is_given_for_an_accepted_policy_alone() -> None:
    assert "def train_step(batches, model, loss_function, optimizer, scheduler, scaler):" in section(
        report(accepted()), "code"
    )
    assert "def train_step" not in markdown(report(rejected()))
    assert "was not accepted" in section(report(rejected()), "code")
    assert accepted_code(recorded(rejected())) is None


def test_bit_for_bit_is_said_of_the_code_only_where_it_holds() -> None:
    def claimed(events: Any) -> bool:
        return "bit for bit" in section(report(events), "code")

    def changed(**facts: Any) -> Any:
        return [dataclasses.replace(e, **facts) if isinstance(e, told.VerdictReached) else e for e in accepted()]

    assert claimed(accepted())
    assert not claimed(changed(interventions=1))
    [reached] = [e for e in accepted() if isinstance(e, told.VerdictReached)]
    assert not claimed(changed(counts=(dataclasses.replace(reached.counts[0], withheld=1),)))


def test_a_project_without_decisions_has_no_limit_on_them_in_the_list() -> None:
    opened_without = [
        dataclasses.replace(e, has_decide=False) if isinstance(e, told.ProjectOpened) else e for e in accepted()
    ]
    assert "decision_changes" not in section(report(opened_without), "criteria")
    assert "decision_changes" in section(report(accepted()), "criteria")


def test_the_limits_name_what_was_not_run() -> None:
    text = section(report(accepted()), "limits")
    for said in ("cpu (x86_64)", "torch 2.13.0+cpu", "40 iterations", "1 batch at the end did not fill a window"):
        assert said in text
    bare = [
        dataclasses.replace(e, has_decide=False, has_quality=False, updates=(), cases=())
        if isinstance(e, told.ProjectOpened)
        else e
        for e in opened()
    ]
    text = section(report(bare), "limits")
    assert "No training was run" in text
    assert "No evaluation was compared" in text
    text = section(report(inconclusive()), "limits")
    assert "not repeatable: two runs of the first 3 iterations differ in weights of sampler" in text
    assert "The stretch was not run to its end." in text


def test_plots_of_the_trial_stand_over_the_baseline() -> None:
    page = Page(html(report(everything())))
    assert page.tags.count("svg") == 4
    titles = [text for tag, text in page.texts if tag == "title"]
    assert titles[1:] == ["Loss of main", "Gradient norm of main", "Loss scale of the trial", "Updates of the trial"]
    said = [text for tag, text in page.texts if tag == "desc"]
    assert said[3] == "main: skipped at iterations 0, 1, applied in 38."
