"""Stage 7, Report: what is written down, where, and how to use it."""

from __future__ import annotations

from pathlib import Path

from textual.app import ComposeResult

from amptui.report.figures import name, shell_word
from amptui.report.page import VALUE, Page
from amptui.session.state import SessionState
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.widgets.told import ToldPane


def tell_report_stage(page: Page, state: SessionState, folder: Path | None) -> None:
    """The session's files, and the commands that read them."""
    if folder is None:
        page.line("This session is in no folder.")
        return
    session = shell_word(folder.name)
    page.field("session", name(folder))
    page.blank()
    page.line("Look at all of this again, on any machine, without torch:")
    page.line((f"amptui open {session}", "bold"), indent=VALUE)
    if state.checkpoints:
        page.line("The FP32 checkpoint, every bit verified, as a file for torch.load:")
        page.line((f"amptui restore {session} -o fp32.pt", "bold"), indent=VALUE)
    if state.retained:
        page.blank()
        page.line("Kept failing iterations (batch, random state, buffers, policy):")
        for case in state.retained:
            step = f"step {case.step}" if case.step is not None else f"case {name(case.case)}"
            page.field(name(case.id), f"{step} · {case.outcome.replace('_', ' ')} · {name(case.path)}")
    if state.revisions:
        page.blank()
        page.line("Criteria, every revision:")
        for locked in state.revisions:
            reason = f" · {name(locked.reason)}" if locked.reason else ""
            page.field(f"revision {locked.revision}", f"SHA-256 {locked.digest[:12]}{reason}")


class ReportStage(Stage):
    def compose(self) -> ComposeResult:
        yield ToldPane(self.look, id="report-told")

    def show(self, shown: Shown) -> None:
        state, folder = shown.view.state, shown.view.folder
        version = (len(state.checkpoints), len(state.retained), len(state.revisions), str(folder))
        self.query_one(ToldPane).show(
            "report   what is written down", version, lambda page: tell_report_stage(page, state, folder)
        )
