"""The account of a check: what a newcomer reads, in a terminal, in a log, in few columns and without any colour."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import unicodedata
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from amptui.findings.finding import Finding
from amptui.project import Criteria, Policy
from amptui.protocol import events as told
from amptui.protocol.codec import decode, encode
from amptui.report.account import Account
from amptui.report.figures import figure
from amptui.session.state import SessionState, reduce
from tests.protocol.messages import EVENTS, messages_of
from tests.report import sessions, stages
from tests.report.sessions import SESSIONS, account_of, pipe, terminal


def words_of(text: str) -> str:
    """The text on one line, so that where it was wrapped does not matter."""
    return " ".join(text.split())


class TestWhatIsSaid:
    def test_the_stages_stand_in_their_order(self) -> None:
        headings = re.findall(r"^(\d \w+) ─+$", account_of(sessions.accepted()), re.MULTILINE)

        assert headings == ["1 Project", "2 Baseline", "3 Criteria", "4 Trial", "5 Verdict"]

    @pytest.mark.parametrize(
        "said",
        [
            # the project
            "amptui check train.py:project",
            "tiny · train.py:40",
            "1 module · 1,234 parameters",
            "main: AdamW · norm clipped to 1.5 · CosineAnnealingLR · mean of 2 batches · loss at train.py:12",
            "40 iterations of 2 batches; 1 batch is left over and not run",
            "2 ordinary, 1 edge, 1 boundary · judged by outputs, decisions and quality",
            "cpu · x86_64 · 4 threads",
            "torch 2.13.0+cpu · Python 3.11.4 · numpy 2.1.0 · commit 0123456789",
            "float32 matmul high",
            "✓ checkpoint 9 tensors, 48.2 KiB, saved and verified · SHA-256 f00dfeedf00d",
            "! the model is in eval mode where train.py:7 advice call train()",
            "✓ float16",
            "✗ bfloat16 fails here: RuntimeError: no kernel where train.py:9",
            # the baseline
            "✓ repeatable 3 iterations run twice from the checkpoint",
            "✓ finite",
            "✓ noise none",
            "✓ randomness none",
            "decisions 4, the closest with a margin of 0.0003 (tie-4)",
            "quality 0.95 after the stretch, 0.91 before it",
            # the criteria
            "written by the project outputs.scores.atol 0.25 proposed by amptui",
            "outputs.scores.rtol 0.01 ten roundings that go the same way",
            "progress none shown, not judged",
            "✓ locked revision 1, before the trial · 1 given, 3 proposed · SHA-256 abcdef012345",
            # the trial
            "float16 autocast · loss scale from 2^16 · in FP32: head.norm",
            "✓ output scores: off by at most 0.006 (tie-4), allowed 0.25 + 0.01 × |baseline|",
            "✓ decisions all 4 stand, the closest with a margin of 0.0003 (tie-4)",
            "↷ step 0, main: The words about bad_gradient.",
            "held back main: bad gradient, 2 times (steps 0 to 1)",
            "main: 38 of 40 applied · 2 skipped by the loss scaler's rule · first applied at step 2",
            "loss scale 2^16 → 2^14",
            "1 failing iteration, 2.0 KiB, in the session: kept-0",
            "quality 0.949 after the stretch, in FP32 0.95",
            "took 1 min 15 s",
            # the verdict
            "✓ ACCEPT 4 cases and 40 iterations held.",
            "✓ difference 4 of 4 passed",
            "of limit the most is 1.2 % (tie-4): what lies beyond rtol × |FP32|, as a share of the limit (atol)",
            "· progress shown, not judged",
            "baseline 0.5 trial 0.51 · above by 2 %",
            "✓ no findings",
            "amptui restore a-session -o fp32.pt",
            "JSON result.json",
            "exit code 0, accepted",
        ],
    )
    def test_an_accepted_session_says(self, said: str) -> None:
        assert said in words_of(account_of(sessions.accepted()))

    def test_a_criterion_that_the_user_wrote_is_told_as_theirs(self) -> None:
        said = words_of(account_of((*stages.opened(), *stages.baseline(), *stages.locked_by_the_user())))
        assert "written by the user decision_changes 1 in place of 0, proposed as none may change" in said

    def test_a_project_without_decisions_is_told_of_no_limit_on_them(self) -> None:
        events = [replace(e, has_decide=False) if isinstance(e, told.ProjectOpened) else e for e in stages.opened()]
        said = words_of(account_of((*events, *stages.baseline(), *stages.locked())))
        assert "decision_changes" not in said
        assert "1 given, 2 proposed · SHA-256 abcdef012345" in said, "what is locked stays"

    def test_settings_of_another_device_are_not_mentioned(self) -> None:
        assert "tf32" not in account_of(sessions.accepted())

    @pytest.mark.parametrize("failed", sessions.FAILED_ROWS, ids=lambda row: row.what)
    def test_every_failed_row_is_shown_in_full(self, failed: Any) -> None:
        text = account_of(sessions.rejected(), 1)
        verdict = text[text.index("5 Verdict") :].splitlines()
        (about,) = [n for n, line in enumerate(verdict) if line.startswith(f"    {failed.what}")]
        assert f"limit {figure(failed.limit)}" in verdict[about]

        following = [line for line in verdict[about + 1 : about + 3] if line.startswith("      ")]
        (shown,) = [line for line in following if failed.case is None or failed.case in line]
        assert f"baseline {figure(failed.baseline)} " in shown
        assert re.search(rf"trial {figure(failed.trial)}($| )", shown)

    def test_a_row_is_not_hidden_among_hundreds(self) -> None:
        rows = [replace(sessions.FAILED_ROWS[0], case=f"case-{n}") for n in range(300)]
        text = account_of(stages.verdict("reject", "Reject: much.", rows), 1)

        assert all(f" case-{n} " in text for n in range(300))

    @pytest.mark.parametrize(
        "said",
        [
            "✗ output scores: 4 of 10 values not finite (long-3)",
            "2 of 3 cases beyond",
            "✗ decisions 1 of 3 changed tie-4: 3 → 8, FP32 margin 0.0003",
            "✗ The project's code fails under the policy in case plain-1: RuntimeError: expected Half but found Float",
            "where net.py:44 · head through train.py:9 in outputs net.py:44 in forward",
            "again RuntimeError at net.py:44: 1 more time",
            "× step 5, main: The words about bad_after_unscale.",
            "bad after unscale, 2 times (steps 5 to 7)",
            "× updates main: 30 of 40 applied · 8 skipped by the loss scaler's rule · 2 withheld by the guard",
            "2^16 → 2^8, lowest 2^6",
            "quality nan after the stretch, in FP32 0.95",
            "✗ REJECT At step 5, the square reaches 80,000.",
            "✗ difference 1 of 3 passed",
            "baseline 1.25 trial 7.75 · 5,200 % of limit",
            "margin the smallest is 0.0003 (tie-4)",
            "Findings: 1 fault, 1 notice",
            "✗ overflow · fault · forward · step 5 · update main where blocks.3.norm · pow · net.py:31",
            "in FP32 does not happen",
            "evidence the square reaches 80,000 float16 ends at 65,504",
            "advice Run blocks.3.norm in FP32.",
            "! decision · notice · decision · case tie-4",
            "suggested run in FP32: blocks.3.norm",
            "mend it in the project: policy=Policy(fp32_regions=['head.norm', 'blocks.3.norm']), or in amptui.yaml",
            'under policy: fp32_regions: ["head.norm", "blocks.3.norm"]',
            "amptui run train.py:project --dtype fp16",
            "amptui report a-session -o report.html",
            "exit code 1, rejected",
        ],
    )
    def test_a_rejected_session_says(self, said: str) -> None:
        assert said in words_of(account_of(sessions.rejected(), 1, options=("--dtype", "fp16")))

    def test_a_mend_without_a_region_has_its_place_too(self) -> None:
        findings = (
            Finding(kind="scaler", severity="fault", stage="gradient", advice="Start with Scaler(init_scale=8)."),
        )
        trial = (*sessions.accepted()[:-2], *stages.verdict("reject", "Reject: x.", [], findings=findings))
        text = words_of(account_of(trial, 1))

        assert "mend it what the advice names goes into the project" in text
        assert "or into amptui.yaml under policy:" in text
        assert "amptui replay kept-0 --session a-session" in text

    def test_an_accepted_session_has_nothing_to_mend(self) -> None:
        assert "mend it" not in account_of(sessions.accepted())
        assert "amptui run" not in account_of(sessions.accepted())

    def test_each_kind_of_trip_and_of_failure_is_told_once(self) -> None:
        text = words_of(account_of(sessions.rejected(), 1))

        assert text.count("The words about bad_after_unscale.") == 1
        assert text.count("expected Half but found Float") == 1

    @pytest.mark.parametrize(
        "said",
        [
            "✗ repeatable no: 3 iterations run twice from the checkpoint differ, first in weights of sampler at step 1",
            "advice name it in extra_state",
            "✗ finite no",
            "! noise two equal runs differ by up to 1.5e-7 (scores of long-3)",
            "✗ This baseline decides nothing: the FP32 stretch is not finite: main at step 3.",
            "! locked revision 2, after a trial",
            "reason the loader was shuffled",
            "! step 4: retried",
            "✗ updates main: 0 of 40 applied",
            "! The stretch was not run to its end.",
            "! INCONCLUSIVE The baseline is not finite.",
            "1 intervention (retried at step 4). The same policy once more, unattended, confirms the verdict.",
            "exit code 3, inconclusive",
        ],
    )
    def test_an_inconclusive_session_says(self, said: str) -> None:
        assert said in words_of(account_of(sessions.inconclusive(), 3))

    def test_a_refusal_is_one_message_with_its_place_and_mend(self) -> None:
        text = words_of(account_of(sessions.refused(), 2))

        refusal = (
            "✗ Cannot be judged: parameter 'w' is in two optimizers where train.py:21 "
            "to do let exactly one optimizer own each parameter"
        )
        assert text.count(refusal) == 1
        assert "restore" not in text, "there is no checkpoint yet"
        assert "exit code 2, not judged" in text

    def test_code_that_fails_in_fp32_is_told_once_with_its_frames(self) -> None:
        text = words_of(account_of(sessions.fails_in_fp32(), 2))

        assert text.count("ValueError: bad shape") == 1
        assert "where net.py:8 through train.py:9 in loss net.py:8 in forward to do mend this first" in text

    def test_a_death_is_told_with_the_last_output_and_the_way_back(self) -> None:
        text = words_of(account_of(sessions.killed(), 2))

        assert "✗ The engine ended during trial (SIGKILL). The engine was killed (SIGKILL): by someone" in text
        assert r"│ epoch 1 │ epoch 2 \x1b[31mred\x1b[0m" in text
        assert "amptui restore a-session -o fp32.pt" in text

    def test_an_error_of_the_engine_is_told(self) -> None:
        text = words_of(account_of(sessions.engine_failed(), 2))

        assert "an assertion of amptui does not hold where amptui/engine/x.py:3 to do Report it with" in text
        assert "engine-error.txt" in text
        assert "Traceback" not in text

    def test_what_the_project_raised_into_the_engine_is_told_as_the_projects(self) -> None:
        *before, failed = sessions.engine_failed()
        raised = replace(failed, message="TimeoutError: too slow", where="/p/train.py:3", hint="it must not raise")  # type: ignore[type-var]
        text = words_of(account_of((*before, raised), 2))

        assert "✗ The project's code ended the engine: TimeoutError: too slow" in text
        assert "where /p/train.py:3 to do it must not raise" in text
        assert "Report it with" not in text

    def test_a_recorded_session_gives_the_same_account(self) -> None:
        live = sessions.accepted()
        replayed = [decode(encode(event)) for event in live if isinstance(event, told.Event)]

        assert account_of(replayed) == account_of(live)


class TestHowItLooks:
    @pytest.mark.parametrize("width", [60, 80, 120])
    @pytest.mark.parametrize("session", SESSIONS)
    def test_no_line_is_wider_than_the_console_or_ends_in_blanks(self, session: str, width: int) -> None:
        lines = account_of(SESSIONS[session](), console=pipe(width)).splitlines()

        assert [line for line in lines if cell_len(line) > width or line != line.rstrip()] == []

    def test_values_stand_below_one_another(self) -> None:
        project = account_of(sessions.accepted()).split("2 Baseline")[0].splitlines()
        values = {re.match(r"^.{4}\w+\s+", line).end() for line in project if re.match(r"^  . \w+ {2,}\S", line)}  # type: ignore[union-attr]

        assert values == {17}

    @pytest.mark.parametrize("session", SESSIONS)
    def test_a_pipe_gets_text_alone(self, session: str) -> None:
        text = account_of(SESSIONS[session]())

        assert [c for c in text if unicodedata.category(c) == "Cc" and c != "\n"] == []

    @pytest.mark.parametrize("session", SESSIONS)
    def test_ascii_is_pure(self, session: str) -> None:
        text = account_of(SESSIONS[session](), ascii=True)

        assert text.isascii()
        assert "ACCEPT" not in text or "  + ACCEPT" in text

    def test_an_output_that_cannot_encode_the_marks_gets_ascii(self) -> None:
        raw = io.BytesIO()
        console = Console(file=io.TextIOWrapper(raw, encoding="latin-1"), width=80, force_terminal=False, _environ={})
        account = Account(console, spec="train.py:é", session="s")
        account.on_event(stages.started("project"), SessionState())
        console.file.flush()

        assert raw.getvalue().isascii()
        assert rb"\xe9" in raw.getvalue()

    def test_markup_in_a_name_is_a_name(self) -> None:
        remark = told.Remarked(code="c", message="[bold]loud[/bold] :smile: [link=http://x]y[/link]")

        assert "[bold]loud[/bold] :smile: [link=http://x]y[/link]" in account_of([remark])

    def test_a_terminal_without_colour_still_shows_the_marks(self) -> None:
        text = account_of(sessions.rejected(), console=terminal(NO_COLOR="1"))

        assert "✗" in text
        assert re.findall(r"\x1b\[[\d;]*3[1-7]m", text) == []


#: Sequences that a terminal would act upon, or that would make text say something else than it is.
PAYLOADS = [
    *(f"\x1b[{end}" for end in ("2J", "H", "31m", "0m", "?1049h", "?25l", "6n", "9;9H", "3J", "K", "1A", "s")),
    *(f"\x1b]{end}\x07" for end in ("0;title", "2;t", "52;c;QQ==", "8;;http://x", "4;1;?", "10;?", "9;n")),
    *(f"\x1b{end}" for end in ("c", "(0", ")0", "7", "8", "=", "P1$r\x1b\\", "_x\x1b\\", "^x\x1b\\", "#8", "[!p")),
    *map(chr, (0x00, 0x07, 0x08, 0x0B, 0x0C, 0x0D, 0x0E, 0x7F, 0x84, 0x85, 0x8D, 0x90, 0x9B, 0x9D, 0x9F)),
    *("\u202e", "\u202a", "\u2066", "\u2069", "\u200b", "\u200d", "\u2028", "\u2029", "\ufeff", "\u061c", "\U000e0041"),
    *("\r\nACCEPT", "a\ud800", "\x9b2J", "\x1b[201~rm\n"),
]  # fmt: skip


class TestForeignText:
    def test_there_are_enough_payloads(self) -> None:
        assert len(set(PAYLOADS)) >= 60

    @pytest.mark.parametrize("payload", PAYLOADS, ids=[f"{number:02}" for number in range(len(PAYLOADS))])
    def test_nothing_in_any_name_or_message_reaches_the_terminal(self, payload: str) -> None:
        for session in (sessions.rejected, sessions.fails_in_fp32, sessions.killed):
            text = account_of([hostile(event, payload) for event in session()])

            assert [c for c in text if unsafe(c)] == []

    def test_a_name_cannot_forge_a_line(self) -> None:
        case = "x\n  ✓ ACCEPT"
        text = account_of(stages.verdict("reject", "Reject: x.", [replace(sessions.FAILED_ROWS[0], case=case)]), 1)

        assert r"x\x0a  ✓ ACCEPT" in text
        assert "\n  ✓ ACCEPT" not in text

    def test_a_session_with_blanks_is_quoted_in_the_command(self) -> None:
        console = pipe()
        account = Account(console, spec="s", session="/my sessions/$(x)")
        account.finish(reduce(SessionState(), stages.opened()[3]), 0)

        assert "amptui restore '/my sessions/$(x)' -o fp32.pt" in console.file.getvalue()  # type: ignore[attr-defined]

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.sampled_from(EVENTS).flatmap(messages_of), max_size=8), st.sampled_from([60, 80]))
    def test_whatever_the_engine_tells_is_told(self, events: list[told.Event], width: int) -> None:
        text = account_of(events, console=pipe(width))

        assert [c for c in text if unsafe(c)] == []
        assert max(map(cell_len, text.split("\n"))) <= width


def unsafe(character: str) -> bool:
    """Control characters, lone surrogates, separators of lines, and what changes the direction of text or joins it."""
    if character in "\n\xad":
        return False
    directs = unicodedata.bidirectional(character) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    return directs or unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or character in "\u200b\u200d\ufeff"


def hostile(value: Any, payload: str) -> Any:
    """`value` with `payload` in every text that is not one of a few fixed words."""
    if isinstance(value, Policy | Criteria):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        hints = get_type_hints(type(value))
        free = [f.name for f in fields(value) if f.init and "Literal" not in str(hints[f.name])]
        return replace(value, **{name: hostile(getattr(value, name), payload) for name in free})
    if isinstance(value, str):
        return f"{value}{payload}{value}"
    if isinstance(value, tuple):
        return tuple(hostile(item, payload) for item in value)
    if isinstance(value, Mapping):
        return {hostile(key, payload): hostile(item, payload) for key, item in value.items()}
    return value


def test_importing_the_package_loads_no_rich() -> None:
    code = "import sys, amptui.report; sys.exit('rich' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
