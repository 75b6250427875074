"""The readable account that `amptui check` prints: stage by stage, as the events come.

It reads nothing but events and the state that they reduce to, so a recorded session gives the same account.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from amptui.findings.words import scale_text
from amptui.protocol import events as told
from amptui.protocol.events import Event, StageName
from amptui.report import told_baseline, told_end, told_measure, told_project, told_trial, told_verdict
from amptui.report.figures import name, words
from amptui.report.page import Page
from amptui.session.death import EngineDeath
from amptui.session.state import RunState, SessionState

if TYPE_CHECKING:
    from rich.console import Console

_STAGES: Mapping[StageName, tuple[str, str]] = {
    "project": ("1 Project", "What will be judged: loaded, frozen, and saved before anything may change it."),
    "baseline": ("2 Baseline", "The project in true FP32, which the trial is held against."),
    "criteria": ("3 Criteria", "What the trial must hold, written down before it runs."),
    "trial": ("4 Trial", "The same cases and the same batches under the policy, with every update guarded."),
    "verdict": ("5 Verdict", "Whether the trial held what was locked beforehand."),
    "measure": ("6 Measure", "What the policy gains in time and memory."),
    "report": ("7 Report", "What is written down."),
}
#: Any of these says that all cases of the trial have been run.
_AFTER_CASES = (
    told.GuardTripped,
    told.CaseRetained,
    told.IterationDone,
    told.FinalCaseRun,
    told.TrialDone,
    told.Cancelled,
    told.EngineFailed,
)


class Account:
    """Prints to `console` what happens in `session`. `ascii` keeps to plain ASCII.

    `spec` and `options` are what the check was given: a command to go on with repeats them.

    On a terminal one progress line passes at the bottom, painted at most four times a second and erased afterwards;
    into a pipe or a file go text and newlines alone.
    """

    def __init__(
        self,
        console: Console,
        *,
        spec: str,
        session: str,
        options: Sequence[str] = (),
        ascii: bool = False,  # noqa: A002
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._page = Page(console, ascii=ascii, clock=clock)
        self._spec, self._session, self._options = spec, session, tuple(options)
        self._begun = False
        self._stage_told: StageName | None = None
        self._trial = told_trial.TrialAccount()

    def begin(self) -> None:
        """Says what is checked, where it is kept. The first event does it too."""
        if not self._begun:
            self._begun = True
            self._page.line(("amptui check ", "bold"), name(self._spec), indent=0, hang=2)

    def on_event(self, event: Event, state: SessionState) -> None:
        """Tells `event`; `state` is the session after it."""
        self.begin()
        if isinstance(event, told.TrialStarted):
            self._trial = told_trial.TrialAccount()
        if isinstance(event, _AFTER_CASES):
            self._tell_cases(state)
        tell = self._tellers.get(type(event))
        if tell is not None:
            tell(self, event, state)

    def on_death(self, death: EngineDeath, state: SessionState) -> None:
        self.begin()
        self._tell_cases(state)
        told_end.tell_death(self._page, death, state)

    def finish(self, state: SessionState, exit_code: int, *, json: str | None = None) -> None:
        """The last lines; `json` is the file that the result was written to."""
        self.begin()
        told_measure.tell_policies(self._page, state)
        told_end.tell_end(
            self._page, state, exit_code, session=self._session, json=json, spec=self._spec, options=self._options
        )
        self._page.clear_progress()

    def _tell_cases(self, state: SessionState) -> None:
        if not self._trial.cases_told and state.trial is not None:
            self._trial.cases_told = True
            told_trial.tell_cases(self._page, state)

    def _stage(self, event: told.StageStarted, _state: SessionState) -> None:
        if event.stage == "measure" and self._stage_told == "measure":
            self._page.blank()  # several measurements are one stage
            return
        self._stage_told = event.stage
        self._page.heading(*_STAGES[event.stage])

    def _progress(self, event: told.Progressed, state: SessionState) -> None:
        more = ""
        if event.stage == "trial" and event.what == "stretch" and state.trial is not None:
            more = _so_far(state.trial.run)
        self._page.progress(f"{event.stage}, {name(event.what)}", event.done, event.total, more)

    def _failure(self, event: told.CodeFailed, _state: SessionState) -> None:
        if event.under == "trial":  # a failure in FP32 is refused, and told there
            told_trial.tell_failure(self._page, event, self._trial)

    def _cancelled(self, event: told.Cancelled, _state: SessionState) -> None:
        self._page.marked("warn", f"{event.stage.capitalize()}: cancelled.")

    def _intervened(self, event: told.Intervened, _state: SessionState) -> None:
        self._page.marked("warn", f"step {event.step}: {words(event.what)} (by the user; this marks the verdict)")

    _tellers: Mapping[type[Event], Callable[[Account, Any, SessionState], None]] = {
        told.StageStarted: _stage,
        told.StageEnded: lambda self, _event, _state: self._page.clear_progress(),
        told.Progressed: _progress,
        told.ProjectOpened: lambda self, event, _state: told_project.tell_project(self._page, event),
        told.CheckpointWritten: lambda self, event, _state: told_project.tell_checkpoint(self._page, event),
        told.Remarked: lambda self, event, _state: told_project.tell_remark(self._page, event),
        told.Probed: lambda self, event, _state: told_project.tell_probe(self._page, event),
        told.RepeatProved: lambda self, event, _state: told_baseline.tell_repeat(self._page, event),
        told.BaselineDone: lambda self, event, state: told_baseline.tell_baseline(self._page, event, state),
        told.CriteriaLocked: lambda self, event, state: told_baseline.tell_criteria(self._page, event, state),
        told.TrialStarted: lambda self, event, _state: told_trial.tell_policy(self._page, event),
        told.GuardTripped: lambda self, event, _state: told_trial.tell_trip(self._page, event, self._trial),
        told.CodeFailed: _failure,
        told.Intervened: _intervened,
        told.TrialDone: lambda self, event, state: told_trial.tell_trial_done(self._page, event, state, self._trial),
        told.VerdictReached: lambda self, event, state: told_verdict.tell_verdict(self._page, event, state),
        told.ForecastMade: lambda self, event, _state: told_measure.tell_forecast(self._page, event),
        told.PrecisionMapped: lambda self, event, state: told_measure.tell_precision(self._page, event, state),
        told.Measured: lambda self, event, _state: told_measure.tell_measured(self._page, event),
        told.SeedsMeasured: lambda self, event, state: told_measure.tell_seeds(self._page, event, state),
        told.FellBack: lambda self, event, _state: told_end.tell_fallback(self._page, event),
        told.Refused: lambda self, event, state: told_end.tell_refusal(self._page, event, state),
        told.Cancelled: _cancelled,
        told.Goodbye: lambda self, event, state: told_end.tell_goodbye(self._page, event, state),
        told.EngineFailed: lambda self, event, _state: told_end.tell_engine_error(self._page, event),
    }


def _so_far(run: RunState) -> str:
    """`39 applied, 1 skipped` over all updates of an iteration, and the scale."""
    counts = run.counts.values()
    parts = [f"{sum(c.applied for c in counts):,} applied"]
    for total, what in ((sum(c.skipped for c in counts), "skipped"), (sum(c.withheld for c in counts), "withheld")):
        if total:
            parts.append(f"{total:,} {what}")
    scaled = run.scale is not None and run.scale.final not in (0.0, 1.0)
    scale = f" · scale {scale_text(run.scale.final)}" if run.scale is not None and scaled else ""
    return f"{', '.join(parts)}{scale}"
