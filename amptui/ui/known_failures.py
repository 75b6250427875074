"""What is known of each failure of a session: trips that were looked into, findings, retained cases, replays."""

from __future__ import annotations

from dataclasses import dataclass, replace

from amptui.findings.finding import Finding
from amptui.protocol.events import CaseReplayed, GuardTripped
from amptui.session.state import SessionState


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


def any_failure(state: SessionState) -> bool:
    """Whether `known_failures` has any; cheap."""
    trial = state.trial
    return bool(state.findings or state.retained or (trial is not None and (trial.diagnoses or trial.trips)))


def known_failures(state: SessionState) -> tuple[KnownFailure, ...]:
    """Those of the last trial in the order of their diagnoses, then other findings, then other retained cases."""
    found = [*_diagnosed(state)]
    trial = state.trial
    if trial is not None and trial.trips:
        last = trial.trips[-1]
        if not any(_is_of(failure, last) for failure in found):
            found.append(_of_trip(last))
    told = {_place(finding) for failure in found for finding in failure.findings}
    for finding in state.findings:
        if _place(finding) not in told:
            found.append(KnownFailure(step=finding.step, update=finding.update, case=finding.case, findings=(finding,)))
    known = {failure.retained for failure in found}
    for kept in state.retained:
        if kept.id not in known:
            known.add(kept.id)
            found.append(KnownFailure(step=kept.step, update=kept.update, case=kept.case, retained=kept.id))
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


def _diagnosed(state: SessionState) -> list[KnownFailure]:
    trial = state.trial
    if trial is None:
        return []
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
