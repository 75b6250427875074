"""Stage 7, Report: what it holds and where it was written; the code to paste; the session's files."""

from __future__ import annotations

from pathlib import Path

from textual.app import ComposeResult

from amptui.findings.policies import policy_name
from amptui.report.figures import name, place
from amptui.report.page import Page
from amptui.report.recorded import Recorded, RunCurves, UpdateCurves
from amptui.report.sections.pasted import accepted_code
from amptui.session.folder import SessionFolder
from amptui.session.paths import name_of
from amptui.session.side_by_side import chosen
from amptui.text import shell_word
from amptui.ui.histories import RunHistory
from amptui.ui.moves import Situation
from amptui.ui.raster.line import Role
from amptui.ui.raster.prose import Paragraph
from amptui.ui.session_view import SessionView
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.widgets.text import TextPane, TextValue
from amptui.ui.widgets.told import ToldPane

_HOLDS = (
    "verdict, rows, cases, findings with their mends, plots, time and memory, forecast, code to paste, every revision "
    "of the criteria, versions, and how far the claim reaches"
)


def tell_report_stage(page: Page, now: Situation, folder: Path | None) -> None:
    """What the report holds, how it stands with the session, its files, and the commands that read them."""
    state = now.state
    if folder is None:
        page.line("This session is in no folder.")
        return
    if now.written:
        page.field("written", (place(now.written), "bold"), mark="ok")
    page.field("holds", _HOLDS)
    page.field("formats", "HTML (one file, no scripts, nothing loaded), Markdown, JSON")
    page.field("session", _standing(now))
    session = shell_word(name_of(SessionFolder(folder)))
    if state.checkpoints:
        page.field("go back", (f"amptui restore {session} -o fp32.pt", "bold"))
    page.field("look again", (f"amptui open {session}", "bold"))
    page.field("from a shell", (f"amptui report {session} -o report.html", "bold"))
    page.field("folder", name(folder))
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


def _standing(now: Situation) -> str:
    """Whether it goes on, and whether there is a verdict."""
    judged = any(trial.verdict is not None for trial in now.state.trials)
    if now.mode == "live" and now.connected:
        so_far = "still open: a report holds what has happened up to the moment it is written"
        return so_far + ("" if judged else "; there is no verdict yet")
    return "recorded" if judged else "recorded; it came to no verdict"


def code_to_paste(view: SessionView) -> str:
    """The training step under the accepted policy, as the report holds it; empty where there is none."""
    state = view.state
    if len(state.trials) == state.earlier_trials:  # of another opening of the project, maybe of other code
        return ""
    recorded = Recorded(
        session=view.folder.name if view.folder is not None else "",
        path=str(view.folder),
        state=state,
        baseline=_curves(view.baseline, view.trial),
        trials=tuple(RunCurves() for _ in state.trials),
        began=None,
        ended=None,
    )
    return accepted_code(recorded) or ""


def _curves(*runs: RunHistory) -> RunCurves:
    """As far as code is concerned: the updates whose loss function returns a mapping."""
    last = [(name, history.last) for run in runs for name, history in run.updates.items()]
    mapped = {name: record.mapped_loss for name, record in last if record is not None}
    return RunCurves(updates={name: UpdateCurves(mapped_loss=is_mapped) for name, is_mapped in mapped.items()})


class _ToldReport(ToldPane):
    """Copying takes the path of the report once there is one."""

    written = ""

    def copy_text(self) -> str:
        return self.written or super().copy_text()


class ReportStage(Stage):
    #: What the code was made from, and the code.
    _made: tuple[object, str] = (None, "")

    def compose(self) -> ComposeResult:
        yield _ToldReport(self.look, id="report-told")
        yield TextPane(self.look, id="report-code")

    def show(self, shown: Shown) -> None:
        state, now, folder = shown.view.state, shown.situation, shown.view.folder
        told = self.query_one(_ToldReport)
        told.written = now.written
        version = (
            len(state.checkpoints),
            len(state.retained),
            len(state.revisions),
            str(folder),
            now.written,
            int(now.connected),
            len([trial for trial in state.trials if trial.verdict is not None]),
        )
        told.show("report   what is written down", version, lambda page: tell_report_stage(page, now, folder))
        self._show_code(shown.view)

    def _show_code(self, view: SessionView) -> None:
        state = view.state
        verdicts = (state.earlier_trials, *(id(trial.verdict) for trial in state.trials), len(state.measured))
        if self._made[0] != verdicts:
            self._made = (verdicts, code_to_paste(view))
            code = self._made[1]
            pane = self.query_one(TextPane)
            pane.display = bool(code)
            lines = [Paragraph(((line, "text"),), literal=True) if line else None for line in code.splitlines()]
            trial = chosen(state)
            policy = policy_name(trial.started.policy) if trial is not None else ""
            notes: list[tuple[str, Role]] = [(f"{policy}, plain PyTorch", "dim")]
            pane.show(TextValue(title="code to paste", notes=notes, paragraphs=lines))
