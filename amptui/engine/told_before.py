"""What the engines of a session told before this one: trials are counted, and criteria held, over the whole session."""

from __future__ import annotations

from amptui.findings.finding import Finding
from amptui.project import Policy
from amptui.protocol.codec import decode
from amptui.protocol.events import CriteriaLocked, Diagnosed, TrialStarted, VerdictReached
from amptui.session.store import Store


def trials_before(store: Store | None) -> int:
    """How many trials the session has begun."""
    return 0 if store is None else sum(1 for _ in store.bodies(TrialStarted.__name__))


def tried_before(store: Store | None) -> list[Policy]:
    """The policies of the session's trials that were run to their end: an inconclusive one may have been cut short."""
    policies: dict[int, Policy] = {}
    tried: list[Policy] = []
    for event in map(decode, store.bodies(TrialStarted.__name__, VerdictReached.__name__) if store is not None else ()):
        if isinstance(event, TrialStarted):
            policies[event.trial] = event.policy
        elif isinstance(event, VerdictReached) and event.verdict != "inconclusive" and event.trial in policies:
            tried.append(policies[event.trial])
    return tried


def locked_before(store: Store | None) -> CriteriaLocked | None:
    """The criteria that were locked last."""
    locked = None
    for body in store.bodies(CriteriaLocked.__name__) if store is not None else ():
        event = decode(body)
        locked = event if isinstance(event, CriteriaLocked) else locked
    return locked


def findings_before(store: Store | None) -> tuple[Finding, ...]:
    """The findings of every trip and verdict of the session."""
    if store is None:
        return ()
    return tuple(
        finding
        for event in map(decode, store.bodies(VerdictReached.__name__, Diagnosed.__name__))
        if isinstance(event, VerdictReached | Diagnosed)
        for finding in event.findings
    )
