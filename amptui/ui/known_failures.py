"""What is known of each failure of a session: trips that were looked into, findings, retained cases, replays."""

from __future__ import annotations

from dataclasses import dataclass, replace

from amptui.findings.finding import Finding
from amptui.protocol.events import CaseReplayed, CaseRetained, GuardTripped
from amptui.session.state import SessionState, TrialState


@dataclass(frozen=True, kw_only=True)
class KnownFailure:
    """One failure. `step` is the iteration, or None; `retained` the id of the case that a replay runs."""

    step: int | None
    update: str | None
    case: str | None = None
    retained: str | None = None
    findings: tuple[Finding, ...] = ()
    variations: tuple[tuple[str, str], ...] = ()
    tripped: GuardTripped | None = None
    #: The last replay of the retained case by an engine that was opened again.
    replayed: CaseReplayed | None = None
    #: The trial that it is of, where that is not the last one.
    earlier: TrialState | None = None


def any_failure(state: SessionState) -> bool:
    """Whether `known_failures` has any; cheap."""
    trial = state.trial
    return bool(state.findings or state.retained or (trial is not None and (trial.diagnoses or trial.trips)))


def known_failures(state: SessionState) -> tuple[KnownFailure, ...]:
    """Those of the last trial in the order of their diagnoses, then other findings, then other retained cases.

    Whatever a verdict has found to be the settling of the scale is one failure with what the verdict says of it, also
    where the diagnosis, which came before, could not know yet that a later update would be applied. A retained case of
    an earlier trial keeps what was found of it then.
    """
    trial = state.trial
    found = _of_trial(trial) if trial is not None else []
    told = {_place(finding) for failure in found for finding in failure.findings}
    found += [_of_finding(finding) for finding in state.findings if _place(finding) not in told]
    known = {failure.retained for failure in found}
    for kept in state.retained:
        if kept.id not in known:
            known.add(kept.id)
            found.append(_of_earlier_trial(state, kept))
    replays = {event.id: event for event in state.replayed}
    return tuple(replace(failure, replayed=replays.get(failure.retained or "")) for failure in found)


def first_to_show(state: SessionState, failures: tuple[KnownFailure, ...], case: str | None = None) -> int:
    """The failure that `d` shows first: that of the evaluation case `case`, of the trip, or of the verdict's cause."""
    trial = state.trial
    trip = trial.trips[-1] if trial is not None and trial.trips and state.paused is not None else None
    for number, failure in enumerate(failures):
        if case is not None and case in (failure.case, *(finding.case for finding in failure.findings)):
            return number
        if case is None and trip is not None and _is_of(failure, trip):
            return number
    cause = next((finding for finding in state.findings if finding.severity == "fault"), None)
    for number, failure in enumerate(failures):
        if cause is not None and any(_place(finding) == _place(cause) for finding in failure.findings):
            return number
    return 0


def _of_trial(trial: TrialState) -> list[KnownFailure]:
    """What was looked into, and the last trip where it was not."""
    found = [_settled(failure, trial) for failure in _diagnosed(trial)]
    last = trial.trips[-1] if trial.trips else None
    if last is None or any(_is_of(failure, last) for failure in found) or _settling_of(trial, last) is not None:
        return found
    return [*found, _of_trip(last)]


def _settled(failure: KnownFailure, trial: TrialState) -> KnownFailure:
    settling = _settling_of(trial, failure.tripped) if failure.tripped is not None else None
    return failure if settling is None else replace(failure, findings=(settling,))


def _settling_of(trial: TrialState, trip: GuardTripped) -> Finding | None:
    """The notice of the trial's verdict that says of this trip that the scale was settling, if one does."""
    record = trip.record
    for finding in trial.verdict.findings if trial.verdict is not None else ():
        last = finding.facts.get("last_step", finding.step)
        if (
            is_settling(finding)
            and record.skipped
            and finding.step is not None
            and isinstance(last, int)
            and finding.update == record.update
            and finding.step <= record.step <= last
            and finding.facts.get("outcome", record.outcome) == record.outcome
        ):
            return finding
    return None


def is_settling(finding: Finding) -> bool:
    """Whether this is a skip that a lower scale mended, and that cost too little to matter."""
    return finding.severity == "notice" and finding.kind == "scaler" and "fitting_scale" in finding.facts


def _of_earlier_trial(state: SessionState, kept: CaseRetained) -> KnownFailure:
    """A retained case with what an earlier trial had found of it; the case alone where it had not."""
    for trial in reversed(state.trials[:-1]):
        verdict = trial.verdict.findings if trial.verdict is not None else ()
        for failure in (*_of_trial(trial), *map(_of_finding, verdict)):
            if failure.retained == kept.id and failure.findings:
                return replace(failure, earlier=trial)
    return KnownFailure(step=kept.step, update=kept.update, case=kept.case, retained=kept.id)


def _of_finding(finding: Finding) -> KnownFailure:
    kept = finding.facts.get("retained")
    return KnownFailure(
        step=finding.step,
        update=finding.update,
        case=finding.case,
        retained=kept if isinstance(kept, str) else None,
        findings=(finding,),
    )


def _diagnosed(trial: TrialState) -> list[KnownFailure]:
    trips = {(trip.record.step, trip.record.update): trip for trip in trial.trips}
    return [
        KnownFailure(
            step=event.step if event.case is None else None,
            update=event.update,
            case=event.case,
            retained=event.retained,
            findings=event.findings,
            variations=event.variations,
            tripped=trips.get((event.step, event.update or "")) if event.case is None else None,
        )
        for event in trial.diagnoses
    ]


def _of_trip(trip: GuardTripped) -> KnownFailure:
    record = trip.record
    return KnownFailure(step=record.step, update=record.update, retained=trip.retained, tripped=trip)


def _is_of(failure: KnownFailure, trip: GuardTripped) -> bool:
    return failure.case is None and (failure.step, failure.update) == (trip.record.step, trip.record.update)


def _place(finding: Finding) -> tuple[object, ...]:
    return finding.kind, finding.module, finding.op, finding.line, finding.case
