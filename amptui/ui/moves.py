"""Which keys do something now, and the one thing to do next: read off the session's state, for footer and guidance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from amptui.findings.verdict import suggested_regions
from amptui.protocol.events import StageName
from amptui.session.state import SessionState, TrialState
from amptui.ui.editing import source_line
from amptui.ui.frame import ALWAYS
from amptui.ui.key_names import AS_DECLARED, KeyNames
from amptui.ui.known_failures import any_failure
from amptui.ui.pages import Page

_WITH_TABLE: tuple[Page, ...] = ("criteria", "trial", "verdict", "measure", "cases")
#: `live`: an engine carries out commands; `recorded`: a session is only looked at.
Mode = Literal["live", "recorded"]
#: What `c` does.
Move = Literal[
    "run on",
    "baseline",
    "show criteria",
    "lock",
    "trial",
    "trials",
    "show verdict",
    "show measure",
    "measure",
    "show report",
    "write report",
    "write cases",
]


#: What the footer calls `c`.
LABELS: Mapping[Move, str] = {
    "run on": "run on",
    "baseline": "baseline",
    "show criteria": "criteria",
    "lock": "lock",
    "trial": "trial",
    "trials": "trials",
    "show verdict": "verdict",
    "show measure": "go on",
    "measure": "measure",
    "show report": "report",
    "write report": "write",
    "write cases": "write",
}


@dataclass(frozen=True)
class Situation:
    """Where the session stands, as far as keys and guidance need it."""

    state: SessionState
    page: Page
    mode: Mode = "live"
    #: Whether a line to an engine is open.
    connected: bool = True
    #: Whether a new engine was asked for and has not said anything yet.
    starting: bool = False
    #: Whether a fall back was asked for and has not ended.
    falling_back: bool = False
    #: Whether the engine is being replaced after an edit, and the kept case has not been replayed yet.
    reloading: bool = False
    #: Whether it is known what a new engine would have to open: not where the project never was opened.
    can_restart: bool = True
    #: Whether criteria were written and are not locked yet.
    criteria_changed: bool = False
    #: The report that was written last, by its path.
    written: str = ""
    #: The names of the policies that were chosen before the criteria were locked, and have not been tried.
    planned: str = ""
    #: How sentences call the keys.
    keys: KeyNames = AS_DECLARED

    @property
    def engine_waits(self) -> bool:
        """Whether the engine would carry out a command for a new stage."""
        return self.connected and self.state.engine == "ready" and not self.running

    @property
    def running(self) -> bool:
        return "running" in self.state.stages.values()

    @property
    def between_engines(self) -> bool:
        """Whether an engine is being replaced, or brought back to the checkpoint: nothing else is asked of it then."""
        return self.starting or self.reloading or self.falling_back

    @property
    def can_reload(self) -> bool:
        """Whether a new engine can open the project again now: nothing runs that the user has not paused."""
        if self.mode == "recorded" or not self.can_restart or self.between_engines:
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


def regions_to_mend(state: SessionState) -> tuple[str, ...]:
    """The modules whose FP32 run mends what failed: as the verdict has them, before it as the trips' replays do."""
    if state.verdict is not None:
        return tuple(state.verdict.fp32_regions)
    trial = state.trial
    diagnosed = trial.diagnoses if trial is not None else ()
    return suggested_regions([finding for one in diagnosed for finding in one.findings])


def waits_at_trip(trial: TrialState, step: int, why: str) -> bool:
    """Whether the pause at `step` is the guard's question about an update that it held back."""
    return why == "the guard held an update back" and trial.trips[-1].record.step == step


def next_stage(state: SessionState) -> StageName | None:
    """The stage up to the verdict that is due: what has been done before it still holds."""
    if state.project is None or state.obstacle is not None:
        return "project" if state.project is None else None
    if state.baseline is None or (state.proposed is None and state.locked is None):
        return "baseline"
    if state.locked is None:
        return "criteria"
    trial = state.trial
    if trial is None or trial.verdict is None or state.fell_back is not None:
        return "trial"
    return "trial" if trial.started.revision != state.locked.revision else None


def to_measure(state: SessionState) -> TrialState | None:
    """The accepted trial that is to be timed next, the last one first; none whose policy has been timed already."""
    mine = state.trials[state.earlier_trials :]
    timed = [trial.started.policy for trial in mine if trial.number in state.measured]
    for trial in reversed(mine):
        accepted = trial.verdict is not None and trial.verdict.verdict == "accept"
        if accepted and trial.started.policy not in timed:
            return trial
    return None


def next_move(now: Situation) -> Move | None:
    """What `c` does now; None where it does nothing."""
    state = now.state
    if now.between_engines:
        return None
    if now.mode == "live" and now.in_trial and now.connected:
        return "run on" if state.paused is not None else None
    if now.page == "report" and _can_report(now):
        return "write report"
    if now.mode == "recorded" or not now.engine_waits:
        return None
    due = next_stage(state)
    if now.page == "criteria" and now.criteria_changed and due != "baseline":
        return "lock"
    found = state.found_cases
    if now.page == "cases" and found is not None and found.found and found.path is None:
        return "write cases"
    if now.page == "measure" and due in (None, "trial") and to_measure(state) is not None:
        return "measure"
    moves: dict[StageName | None, Move] = {
        "baseline": "baseline",
        "criteria": "lock" if now.page == "criteria" else "show criteria",
        "trial": "trials" if now.planned else "trial",
    }
    if due is not None or state.verdict is None:
        return moves.get(due)
    further: dict[Page, Move] = {"verdict": "show measure", "measure": "show report"}
    return further.get(now.page, "show verdict")


def _can_report(now: Situation) -> bool:
    """Whether a report can be written: something is recorded, and nothing else is due or runs."""
    state = now.state
    if state.events == 0:
        return False
    if now.mode == "recorded" or not now.connected or state.engine not in ("starting", "ready"):
        return True
    if not now.engine_waits:
        return False
    return state.verdict is not None or next_stage(state) is None


def active(now: Situation) -> frozenset[str]:
    """Ids of the keys that do something."""
    ids = ALWAYS | _looking(now)
    state = now.state
    if now.mode == "recorded":
        return ids
    if now.between_engines:
        back = {"fall_back"} if state.checkpoints and not now.falling_back else set()
        return ids | back | ({"cancel"} if now.running and not now.starting else set())
    if now.can_reload:
        ids |= {"reload"}
    if not now.connected or state.engine in ("dead", "ended", "failed"):
        if not now.can_restart:
            return ids
        return ids | {"new_engine"} | ({"fall_back"} if state.checkpoints else set())
    if state.checkpoints:
        ids |= {"fall_back"}
    if now.in_trial:
        return ids | _in_trial(now)
    if now.engine_waits:
        return ids | _between_stages(now)
    return ids | ({"cancel"} if now.running else set())


def _looking(now: Situation) -> set[str]:
    """What needs no engine, and `c`, which may need none."""
    state = now.state
    ids: set[str] = set()
    if now.page in _WITH_TABLE:
        ids.add("filter")
    if now.page in ("baseline", "trial") and state.project is not None and len(state.project.updates) > 1:
        ids.add("other_update")
    if any_failure(state):
        ids.add("diagnose")
    if source_line(state) is not None:
        ids.add("edit")
    if next_move(now) is not None:
        ids.add("proceed")
    return ids


def _in_trial(now: Situation) -> set[str]:
    """A run that nobody attends takes no orders but to end."""
    trial = now.state.trial
    if now.state.paused is None:
        return {"pause", "cancel", "unattended"} if trial is not None and trial.started.attended else {"cancel"}
    ids = {"phase", "iteration", "until", "unattended", "pause", "cancel"}
    ids |= {"mend"} if regions_to_mend(now.state) else set()
    return ids | ({"retry"} if now.trip_waits else set())


def _between_stages(now: Situation) -> set[str]:
    state, page, due = now.state, now.page, next_stage(now.state)
    ids: set[str] = set()
    if state.locked is not None and due in (None, "trial"):
        ids |= _trials(now)
    if state.verdict is not None and state.verdict.fp32_regions:
        ids.add("mend")
    if state.proposed is not None and page == "criteria":
        ids |= {"change"} | ({"policies"} if due == "criteria" else set())
    project = state.project
    if project is None or state.obstacle is not None:
        return ids
    if page in ("project", "baseline", "cases") and project.batches:
        ids.add("find_cases")
    has_yardstick = state.baseline is None or state.seeds is not None or not project.updates
    if page == "measure" and len(state.trials) > state.earlier_trials and not has_yardstick:
        ids.add("yardstick")
    return ids


def _trials(now: Situation) -> set[str]:
    """The keys that start a trial: all where it is due; after a verdict where one looks at trials, or must confirm."""
    state, page = now.state, now.page
    ids = {"policies"} if page in ("criteria", "trial", "verdict", "measure") else set()
    if next_stage(state) == "trial":
        return ids | {"phase", "iteration", "unattended", "extend"}
    if state.verdict is None:
        return ids
    if page == "trial":
        ids |= {"phase", "iteration", "unattended", "extend"}
    if page in ("verdict", "measure"):
        ids |= {"extend"} if page == "verdict" else set()
        ids |= {"unattended"} if state.verdict.interventions else set()
    return ids
