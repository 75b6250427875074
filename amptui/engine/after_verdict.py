"""What goes beyond the verdict: forecast, map of precision, measurement, yardstick, found cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from amptui.engine.baseline import Baseline
from amptui.engine.bench import Bench
from amptui.engine.case_search import Search, search
from amptui.engine.failures import UserCodeError
from amptui.engine.forecast import forecast
from amptui.engine.measuring.measure import Measurement
from amptui.engine.precision_map import precision_map
from amptui.engine.refusals import Refusal
from amptui.engine.trial import Trial
from amptui.engine.yardstick import measure_seeds
from amptui.findings.judgement import Verdict
from amptui.protocol.commands import Command, FindCases, Measure, MeasureSeeds
from amptui.protocol.events import StageName


class AfterVerdict:
    """One opened project's baseline and judged trials, and what is asked of them afterwards."""

    def __init__(self, bench: Bench | None = None) -> None:
        self._bench = bench
        self._baseline: Baseline | None = None
        self._judged: dict[int, tuple[Trial, Verdict]] = {}
        self._found: Search | None = None

    def stages(self) -> dict[type[Command], tuple[StageName, Callable[[Any], None]]]:
        """What it carries out, by command."""
        return {
            Measure: ("measure", self._measure),
            MeasureSeeds: ("measure", self._measure_seeds),
            FindCases: ("measure", self._find_cases),
        }

    def baseline_done(self, bench: Bench, baseline: Baseline) -> None:
        """Keeps the baseline, and tells what it foretells of each dtype."""
        self._bench, self._baseline = bench, baseline
        bench.emit(forecast(bench, baseline.tape))

    def judged(self, trial: Trial, verdict: Verdict) -> None:
        """Keeps a judged trial, and tells in which dtype what ran in it."""
        self._judged[trial.number] = (trial, verdict)
        trial.bench.emit(precision_map(trial.bench, trial.policy, trial.baseline.tape, trial=trial.number))

    def _measure(self, command: Measure) -> None:
        """Refused unless the trial was accepted: the gain of what does not hold is no gain."""
        trial = self._accepted(command.trial)
        scale = trial.course.scale_course()
        measurement = Measurement(trial.bench, trial.policy, scale, trial.evaluated, trial=trial.number)
        with _told_as_refusal():
            trial.bench.emit(measurement.run(seconds=command.seconds))

    def _measure_seeds(self, command: MeasureSeeds) -> None:
        bench, baseline = self._bench, self._baseline
        if bench is None or baseline is None:
            raise Refusal("order", "there is no baseline yet", hint="run the baseline first")
        if not bench.live.updates:
            raise Refusal("no-updates", "the project trains nothing", hint="only a training stretch depends on seeds")
        with _told_as_refusal():
            bench.emit(measure_seeds(bench, baseline, max(1, command.seeds)))

    def _find_cases(self, command: FindCases) -> None:
        """Looks once: what was found is written later without another look."""
        if self._bench is None:
            raise Refusal("order", "no project is open", hint="open a project first")
        with _told_as_refusal():
            if self._found is None or self._found.boundary != command.boundary:
                self._found = search(self._bench, command.boundary)
            self._bench.emit(self._found.told(command.path))

    def _accepted(self, number: int | None) -> Trial:
        accepted = [trial for trial, verdict in self._judged.values() if verdict == "accept"]
        if number is None and not accepted:
            raise Refusal("not-accepted", "no trial was accepted", hint="only what holds is measured")
        if number is None:
            return accepted[-1]
        if number not in self._judged:
            raise Refusal("order", f"there is no judged trial {number}", hint="run it first")
        trial, verdict = self._judged[number]
        if verdict != "accept":
            raise Refusal("not-accepted", f"trial {number}: {verdict}", hint="only what holds is measured")
        return trial


@contextmanager
def _told_as_refusal() -> Iterator[None]:
    """The project's own failure here says nothing against a verdict that stands."""
    try:
        yield
    except UserCodeError as failure:
        raise Refusal(
            "measurement-failed",
            f"the project fails in {failure.phase}: {failure.exception}: {failure.message}",
            where=failure.where,
            hint="what was judged stands; mend this to go on from it",
        ) from failure
