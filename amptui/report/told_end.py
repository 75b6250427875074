"""The end of the account: a refusal, an error, a death, and how to go on from here."""

from __future__ import annotations

from collections.abc import Sequence

from amptui.findings.words import counted
from amptui.protocol.events import EngineFailed, FellBack, Goodbye, Refused
from amptui.report.figures import name, place, words
from amptui.report.page import Page
from amptui.report.told_next import tell_next
from amptui.report.told_trial import tell_place
from amptui.session.death import EngineDeath
from amptui.session.folder import ERROR_FILE
from amptui.session.state import SessionState
from amptui.text import shell_word

_CODES = {
    0: "accepted",
    1: "rejected",
    2: "not judged",
    3: "inconclusive",
    130: "interrupted",
}
_FP32_FAILED = "fp32-failed"
_OUTPUT_LINES = 20


def tell_refusal(page: Page, event: Refused, state: SessionState) -> None:
    """What keeps the project from being judged, where, and what to do: one message."""
    page.marked("fail", ("Cannot be judged: ", "bold"), words(event.message))
    if event.code == _FP32_FAILED and state.failures:
        tell_place(page, state.failures[-1])
    elif event.where:
        page.field("where", place(event.where))
    if event.hint:
        page.field("to do", words(event.hint))


def tell_engine_error(page: Page, event: EngineFailed) -> None:
    whose = "The project's code ended the engine: " if event.hint else "The engine met an error of its own: "
    page.marked("fail", (whose, "bold"), words(event.message))
    if event.where:
        page.field("where", place(event.where))
    report = f"Report it with {ERROR_FILE} of the session's folder. Nothing of the project was changed on disk."
    page.field("to do", words(event.hint) if event.hint else report)


def tell_goodbye(page: Page, event: Goodbye, state: SessionState) -> None:
    """Why the engine ended, where nothing else says it: another process told it to."""
    if state.verdict is None and state.refusal is None and state.failure is None:
        page.marked("warn", ("The engine ended before a verdict: ", "bold"), words(event.why))


def tell_death(page: Page, death: EngineDeath, state: SessionState) -> None:
    """How the engine's process ended, in words, and what it printed last."""
    during = f" during {state.stage}" if state.stage is not None else ""
    page.blank()
    said = "" if state.failure is not None else words(death.words)  # its own error has been told
    page.marked("fail", (f"The engine ended{during} ({name(death.how)}). ", "bold"), said)
    lines = death.last_output[-_OUTPUT_LINES:]
    if lines:
        page.line(("Its last output:", "dim"), indent=4)
    for line in lines:
        page.line(("│ ", "dim"), name(line), indent=4, hang=2)


def tell_fallback(page: Page, event: FellBack) -> None:
    proven = ", bit for bit" if event.proven else "; bit for bit could not be proven"
    page.field(
        "fell back",
        f"{name(event.checkpoint)} is restored, {counted(event.verified, 'tensor')} compared{proven}",
        mark="ok" if event.proven else "warn",
    )


def tell_end(
    page: Page,
    state: SessionState,
    exit_code: int,
    *,
    session: str,
    json: str | None,
    spec: str,
    options: Sequence[str] = (),
) -> None:
    """What is left to say whichever way it ended: how to go on, the way back, the files, the exit code.

    `spec` and `options` are what the check was given.
    """
    page.blank()
    page.rule()
    if exit_code == 0:
        page.field("adopt it", "a report with the training step to paste into your own code:")
        page.command("amptui report", shell_word(session), "-o report.html")
    else:
        tell_next(page, state, session=session, spec=spec, options=options)
    if state.checkpoints:
        page.field("go back", "the FP32 checkpoint, every bit verified, as a file for torch.load:")
        page.command("amptui restore", shell_word(session), "-o fp32.pt")
    page.field("session", name(session))
    if state.output_lines:
        page.field("output", f"the project printed {counted(state.output_lines, 'line')}; the session keeps them")
    if json is not None and json != "-":
        page.field("JSON", name(json))
    meaning = _CODES.get(exit_code)
    page.field("exit code", f"{exit_code}{f', {meaning}' if meaning else ''}")
