"""The lines around every page: what is judged, where one is, what is true, which keys do something."""

from __future__ import annotations

from collections.abc import Mapping

from amptui.project import Policy
from amptui.protocol.events import StageName
from amptui.session.state import SessionState, StageStatus
from amptui.ui.frame import Pieces
from amptui.ui.moves import Mode, Situation
from amptui.ui.pages import STAGES
from amptui.ui.raster.glyphs import Glyphs
from amptui.ui.raster.line import Role


def title(state: SessionState, mode: Mode, glyphs: Glyphs) -> tuple[Pieces, Pieces]:
    """Left: project and policy. Right: what the engine does."""
    left: Pieces = [(" amptui ", "accent")]
    if state.project is not None:
        left.append((f" {state.project.name}", "strong"))
    if state.policy is not None:
        left.append((f" {glyphs.separator} {policy_words(state.policy, glyphs)}", "dim"))
    return left, [*_doing(state, mode, glyphs), (" ", "text")]


def policy_words(policy: Policy, glyphs: Glyphs) -> str:
    """`fp16 autocast · scaler on`."""
    short = {"float16": "fp16", "bfloat16": "bf16"}[policy.dtype]
    parts = [f"{short} autocast" if policy.autocast else f"{short}, autocast off"]
    parts.append("scaler on" if policy.effective_scaler is not None else "no scaler")
    if policy.fp32_regions:
        parts.append(f"{len(policy.fp32_regions)} in FP32")
    return f" {glyphs.separator} ".join(parts)


def _doing(state: SessionState, mode: Mode, glyphs: Glyphs) -> Pieces:
    if mode == "recorded":
        return [("recorded", "dim")]
    if state.engine in ("dead", "failed"):
        return [(f"{glyphs.fail} engine gone", "bad")]
    if state.engine == "ended":
        return [(f"{glyphs.warn} engine ended", "warn")]
    if state.engine == "starting":
        return [("engine starting", "dim")]
    if state.paused is not None:
        return [(f"{glyphs.paused} paused  step {state.paused.step:,}", "warn")]
    if "running" in state.stages.values():
        progress = state.progress
        count = f"  {progress.what} {progress.done:,}/{progress.total:,}" if progress is not None else ""
        return [(f"{glyphs.running} running{count}", "good")]
    return [("ready", "dim")]


def stages(now: Situation, glyphs: Glyphs) -> Pieces:
    """`1 Project✓ 2 Baseline✓ 3 CRITERIA …`: the one looked at in capitals, a mark for how each ended."""
    pieces: Pieces = []
    for number, stage in enumerate(STAGES, start=1):
        here = now.page == stage
        word = stage.upper() if here else stage.capitalize()
        mark, role = _mark(stage, now.state, glyphs)
        if stage == "report" and now.written:
            mark, role = glyphs.ok, "good"
        pieces.append((f" {number} {word}", "accent" if here else "text" if mark else "dim"))
        pieces.append((mark or " ", role))
    return pieces


def _mark(stage: StageName, state: SessionState, glyphs: Glyphs) -> tuple[str, Role]:
    if stage == "verdict":
        return _verdict_mark(state, glyphs)
    if stage == "measure" and state.task == "cases" and state.stages.get(stage) == "running":
        return "", "dim"  # what runs is the search for cases
    statuses: Mapping[StageStatus, tuple[str, Role]] = {
        "running": (glyphs.running, "good"),
        "done": (glyphs.ok, "good"),
        "refused": (glyphs.fail, "bad"),
        "failed": (glyphs.fail, "bad"),
        "cancelled": (glyphs.warn, "warn"),
    }
    status = state.stages.get(stage)
    return statuses[status] if status is not None else ("", "dim")


def _verdict_mark(state: SessionState, glyphs: Glyphs) -> tuple[str, Role]:
    """Of the last trial since the project was opened, which may have none yet."""
    if state.verdict is None or len(state.trials) == state.earlier_trials:
        return "", "dim"
    marks: Mapping[str, tuple[str, Role]] = {
        "accept": (glyphs.ok, "good"),
        "reject": (glyphs.fail, "bad"),
        "inconclusive": (glyphs.warn, "warn"),
    }
    return marks[state.verdict.verdict]
