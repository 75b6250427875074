"""The criteria of an opened project: as written down, as proposed from its baseline, as locked before a trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from amptui.engine.baseline import Baseline
from amptui.engine.bench import Bench
from amptui.engine.refusals import Refusal
from amptui.engine.told_before import locked_before
from amptui.findings import criteria as proposing
from amptui.findings.judgement import Proposal
from amptui.project import Criteria, Project
from amptui.protocol.codec import to_json
from amptui.protocol.commands import LockCriteria, OpenProject
from amptui.protocol.events import CriteriaLocked, CriteriaProposed, Event
from amptui.session.store import Store
from amptui.spec.run_settings import criteria_over


@dataclass(frozen=True, kw_only=True)
class WrittenCriteria:
    """What the project or the command line wrote down, which of the fields, and the dtype that it is for."""

    criteria: Criteria | None = None
    fields: frozenset[str] = frozenset()
    #: None: the dtype of the project's policy.
    dtype: str | None = None

    @classmethod
    def of(cls, project: Project, command: OpenProject) -> WrittenCriteria:
        fields = frozenset(command.criteria)
        if project.criteria is not None:
            fields |= proposing.written_fields(project.criteria)
        return cls(
            criteria=criteria_over(project.criteria, command.criteria), fields=fields, dtype=command.criteria_dtype
        )


class CriteriaLock:
    """Proposes criteria once there is a baseline, and holds those that are locked."""

    def __init__(
        self, store: Store | None, emit: Callable[[Event], object], written: WrittenCriteria | None = None
    ) -> None:
        self._store, self._emit = store, emit
        self._written = written or WrittenCriteria()
        self._proposed: tuple[Criteria, tuple[Proposal, ...]] | None = None
        self.locked: CriteriaLocked | None = None

    def propose(self, bench: Bench, baseline: Baseline) -> None:
        dtype = self._written.dtype or bench.policy.dtype
        self._proposed = proposing.propose(
            self._written.criteria,
            self._written.fields,
            baseline.evidence.outputs,
            dtype,
            [update.name for update in bench.live.updates],
            has_quality=bench.live.project.quality is not None,
            quality=baseline.evidence.quality,
        )
        criteria, proposals = self._proposed
        self._emit(CriteriaProposed(criteria=criteria, proposals=proposals, dtype=dtype))

    def propose_for(self, dtype: str, bench: Bench, baseline: Baseline) -> None:
        """For another dtype, as more policies are to be tried under the same criteria."""
        if self.locked is not None:
            raise Refusal("order", "the criteria are locked", hint="change them one by one, with a reason")
        self._written = replace(self._written, dtype=dtype)
        self.propose(bench, baseline)

    def lock(self, command: LockCriteria, *, trials: int) -> None:
        """The first lock is revision 1; after a trial a new revision needs a reason, and the old ones stay.

        A new engine that locks what the session had locked already goes on under that revision. `trials`: how many the
        session has begun.
        """
        if self._proposed is None:
            raise Refusal("order", "there is no baseline yet", hint="run the baseline before criteria are locked")
        proposed, proposals = self._proposed
        criteria = command.criteria or proposed
        proposals = proposing.as_locked(proposals, criteria)
        digest = proposing.digest(criteria)
        before = locked_before(self._store) if self.locked is None else None
        if before is not None and before.digest == digest:
            self._hold(replace(before, proposals=proposals))
            return
        reason = command.reason.strip()
        if trials and not reason:
            raise Refusal(
                "reason", "a trial has run under the locked criteria", hint="write down why they are changed now"
            )
        revision = 1 if self.locked is None else self.locked.revision + 1
        if self._store is not None:
            revision = self._store.lock_criteria(to_json(criteria), reason=reason).revision
        self._hold(
            CriteriaLocked(
                revision=revision,
                digest=digest,
                criteria=criteria,
                proposals=proposals,
                reason=reason,
                after_trial=trials > 0,
            )
        )

    def _hold(self, locked: CriteriaLocked) -> None:
        self.locked = locked
        self._emit(locked)
