"""Stage 1, Project: what will be judged, and what was saved before anything may change it."""

from __future__ import annotations

from textual.app import ComposeResult

from amptui.report import told_end, told_project
from amptui.report.page import Page
from amptui.session.state import SessionState
from amptui.ui.stages.stage import Shown, Stage
from amptui.ui.widgets.told import ToldPane


def tell_project_stage(page: Page, state: SessionState) -> None:
    """Project, checkpoint, remarks and probes; before them the engine, after them a refusal."""
    if state.project is None and state.refusal is None:
        engine = "starting" if state.engine == "starting" else f"process {state.pid}"
        page.field("engine", engine)
        if state.environment is not None:
            page.field("torch", state.environment.torch)
        if state.stages.get("project") == "running":
            page.field("project", "being loaded")
    if state.project is not None:
        told_project.tell_project(page, state.project)
    for checkpoint in state.checkpoints:
        told_project.tell_checkpoint(page, checkpoint)
    for probe in state.probes:
        told_project.tell_probe(page, probe)
    for remark in state.remarks:
        page.blank()
        told_project.tell_remark(page, remark)
    if state.refusal is not None:
        page.blank()
        told_end.tell_refusal(page, state.refusal, state)


class ProjectStage(Stage):
    def compose(self) -> ComposeResult:
        yield ToldPane(self.look, id="project-told")

    def show(self, shown: Shown) -> None:
        state = shown.view.state
        version = (
            state.engine,
            state.stages.get("project"),
            state.project,
            len(state.checkpoints),
            len(state.probes),
            len(state.remarks),
            state.refusal,
        )
        self.query_one(ToldPane).show(
            "project   what will be judged", version, lambda page: tell_project_stage(page, state)
        )
