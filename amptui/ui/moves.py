"""Which keys do something now, and the one thing to do next: read off the session's state, for footer and guidance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from amptui.protocol.events import StageName
from amptui.session.state import SessionState, TrialState
from amptui.ui.editing import source_line
from amptui.ui.known_failures import any_failure

Page = Literal[
    "project", "baseline", "criteria", "trial", "verdict", "measure", "report", "output", "events", "help", "diagnosis"
]
STAGES: tuple[StageName, ...] = StageName.__args__  # type: ignore[attr-defined]
_WITH_TABLE: tuple[Page, ...] = ("criteria", "trial", "verdict")
#: `live`: an engine carries out commands; `recorded`: a session is only looked at.
Mode = Literal["live", "recorded"]


@dataclass(frozen=True)
class Situation:
    """Where the session stands, as far as keys and guidance need it."""

    state: SessionState
    page: Page
    mode: Mode = "live"
    #: Whether a line to an engine is open.
    connected: bool = True
    #: Whether a fall back was asked for and has not ended.
    falling_back: bool = False
    #: Whether the engine is being replaced after an edit, and the kept case has not been replayed yet.
    reloading: bool = False
    #: Whether it is known what a new engine would have to open: not where the project never was opened.
    can_restart: bool = True

    @property
    def engine_waits(self) -> bool:
        """Whether the engine would carry out a command for a new stage."""
        return self.connected and self.state.engine == "ready" and "running" not in self.state.stages.values()

    @property
    def can_reload(self) -> bool:
        """Whether a new engine can open the project again now: nothing runs that the user has not paused."""
        if self.mode == "recorded" or not self.can_restart or self.falling_back or self.reloading:
            return False
        state = self.state
        return state.engine != "starting" and not state.busy and bool(state.checkpoints or state.refusal)

    @property
    def in_trial(self) -> bool:
        """Whether the trial's stretch runs or is stepped through."""
        return self.state.stages.get("trial") == "running" and self.state.trial is not None

    @property
    def trip_waits(self) -> bool:
        """Whether the guard holds an update back and waits for what the user wants."""
        paused, trial = self.state.paused, self.state.trial
        if paused is None or trial is None or not trial.trips or paused.why.startswith("after this iteration"):
            return False
        return waits_at_trip(trial, paused.step, paused.why)


def waits_at_trip(trial: TrialState, step: int, why: str) -> bool:
    """Whether the pause at `step` is the guard's question about an update that it held back."""
    return why == "the guard held an update back" and trial.trips[-1].record.step == step


def next_stage(state: SessionState) -> StageName | None:
    """The stage that is due: what has been done before it still holds."""
    if state.project is None or state.refusal is not None:
        return "project" if state.project is None else None
    if state.baseline is None or (state.proposed is None and state.locked is None):
        return "baseline"
    if state.locked is None:
        return "criteria"
    if state.verdict is None or state.fell_back is not None:
        return "trial"
    return None


def active(now: Situation) -> frozenset[str]:
    """Ids of the keys that do something."""
    ids = {"help", "back", "copy", "explain", "zoom", "next_pane", "previous_pane", "command_palette", "suspend"}
    ids |= {f"stage_{number}" for number in range(1, 8)} | {"output", "events"}
    state = now.state
    if now.page in _WITH_TABLE:
        ids.add("filter")
    if now.page in ("baseline", "trial") and state.project is not None and len(state.project.updates) > 1:
        ids.add("other_update")
    if any_failure(state):
        ids.add("diagnose")
    if source_line(state) is not None:
        ids.add("edit")
    if now.mode == "recorded":
        return frozenset(ids)
    if now.can_reload:
        ids.add("reload")
    if not now.connected or state.engine in ("dead", "ended", "failed"):
        if not now.can_restart:
            return frozenset(ids)
        return frozenset(ids | {"new_engine"} | ({"fall_back"} if state.checkpoints else set()))
    if state.checkpoints and not now.falling_back:
        ids.add("fall_back")
    if now.in_trial:
        ids |= _in_trial(now)
    elif now.engine_waits:
        ids |= _between_stages(now)
    elif "running" in state.stages.values():
        ids.add("cancel")
    return frozenset(ids)


def _in_trial(now: Situation) -> set[str]:
    if now.state.paused is None:
        return {"pause", "cancel"}
    ids = {"phase", "iteration", "proceed", "until", "pause", "cancel"}
    return ids | ({"retry"} if now.trip_waits else set())


def _between_stages(now: Situation) -> set[str]:
    state = now.state
    ids = {"proceed"} if next_stage(state) is not None or state.verdict is not None else set()
    if state.locked is not None:
        ids |= {"phase", "iteration", "unattended", "extend"}
    if state.verdict is not None and state.verdict.fp32_regions:
        ids.add("mend")
    if state.proposed is not None and now.page == "criteria":
        ids.add("change")
    return ids
