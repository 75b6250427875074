"""Carries out what a client asks, stage by stage, in the engine's main thread.

Project, baseline, criteria, trial, verdict; and the way back at any time after the checkpoint was written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from amptui.engine import checkpoint, opening
from amptui.engine.after_verdict import AfterVerdict
from amptui.engine.baseline import Baseline, run_baseline
from amptui.engine.bench import Bench
from amptui.engine.course import Stopped
from amptui.engine.ended_stages import events_of
from amptui.engine.environment import environment
from amptui.engine.identity import noted_changes
from amptui.engine.inbox import Inbox
from amptui.engine.live import LiveProject
from amptui.engine.outbox import Outbox
from amptui.engine.precision import PrecisionSettings
from amptui.engine.preflight import preflight, probe_dtypes
from amptui.engine.recall import recall
from amptui.engine.refusals import Refusal
from amptui.engine.snapshot import Snapshot
from amptui.engine.told_before import findings_before, locked_before, trials_before
from amptui.engine.trial import Trial
from amptui.engine.walk import Attended, LeftTrial, Unattended
from amptui.findings import criteria as proposing
from amptui.findings.judgement import Proposal
from amptui.findings.verdict import judge
from amptui.project import Criteria, Policy
from amptui.protocol.codec import encode, to_json
from amptui.protocol.commands import (
    Cancel,
    Close,
    Command,
    FallBack,
    LockCriteria,
    OpenProject,
    ProposeCriteria,
    ReplayCase,
    RunBaseline,
    RunTrial,
)
from amptui.protocol.events import (
    Cancelled,
    CaseRetained,
    CheckpointWritten,
    CriteriaLocked,
    CriteriaProposed,
    EngineStarted,
    Event,
    FellBack,
    Progressed,
    ProjectOpened,
    Refused,
    StageEnded,
    StageName,
    StageStarted,
    VerdictReached,
)
from amptui.protocol.measuring import TASKS
from amptui.session.errors import SessionError
from amptui.session.folder import SessionFolder
from amptui.session.manifest import FP32, CheckpointRecord
from amptui.session.store_reader import RetainedRecord
from amptui.spec.reference import parse_reference
from amptui.spec.resolve import LoadedProject, load_project
from amptui.spec.run_settings import criteria_over, policy_over

#: The store's name for the command that opened the project last, so that a session can be opened again.
OPENED_WITH = "open_project"


class Conductor:
    """One session's engine: `run` carries out commands until the client closes it."""

    def __init__(self, inbox: Inbox, outbox: Outbox, folder: SessionFolder) -> None:
        self.inbox, self.outbox, self.folder = inbox, outbox, folder
        self.bench: Bench | None = None
        self.baseline: Baseline | None = None
        self.record: CheckpointRecord | None = None
        #: The criteria that the project or the command line wrote down, and which of their fields.
        self.given: Criteria | None = None
        self.written: frozenset[str] = frozenset()
        self.criteria_dtype: str | None = None
        self.proposed: tuple[Criteria, tuple[Proposal, ...]] | None = None
        self.locked: CriteriaLocked | None = None
        #: Of the whole session, also by engines before this one.
        self.trials = trials_before(outbox.store)
        #: The policies of trials that this engine has run to their end.
        self.tried: list[Policy] = []
        #: Whether the project was opened only to replay something.
        self.aside = False
        self.after = AfterVerdict()

    def run(self) -> None:
        self.emit(EngineStarted(pid=os.getpid(), environment=environment(torch.device("cpu"), Path.cwd())))
        while True:
            command = self.inbox.next()
            if command is None:
                continue
            if isinstance(command, Close):
                return
            self.carry_out(command)

    def carry_out(self, command: Command) -> None:
        """Runs one stage to its end; every way in which it can end is an event."""
        if isinstance(command, FallBack):
            self.fall_back()
            return
        if isinstance(command, ProposeCriteria):
            self.propose_again(command)
            return
        stages: dict[type[Command], tuple[StageName, Callable[..., None]]] = {
            OpenProject: ("project", self.open_project),
            RunBaseline: ("baseline", self.run_baseline),
            LockCriteria: ("criteria", self.lock_criteria),
            RunTrial: ("trial", self.run_trial),
            ReplayCase: ("trial", self.replay_case),
            **self.after.stages(),
        }
        if type(command) not in stages:
            return  # Pause, Advance and the like mean nothing between stages
        stage, carry_out = stages[type(command)]
        self.aside = command.aside if isinstance(command, OpenProject) else self.aside
        self.emit(StageStarted(stage=stage, aside=self.aside, task=TASKS.get(type(command))))
        left: Command | None = None
        completed = False
        try:
            carry_out(command)
            completed = True
        except Stopped as stopped:
            self.inbox.take_cancel()
            left = stopped.command if isinstance(stopped, LeftTrial) else None
            self.emit(Cancelled(stage=stage))
        except BaseException as error:
            told = events_of(error)
            if not told:
                raise
            for event in told:
                self.emit(event)
        if self.bench is not None:
            self.bench.switches.restore()
        self.emit(StageEnded(stage=stage, completed=completed))
        if left is not None and not isinstance(left, Cancel | Close):
            self.carry_out(left)

    def emit(self, event: Event) -> object:
        if isinstance(event, CaseRetained) and self.outbox.store is not None:
            path = str(Path(event.path).relative_to(self.folder.path))
            self.outbox.store.add_retained(RetainedRecord(event.id, path, encode(event), time.time()))
        return self.outbox.send(event)

    # Stages.

    def open_project(self, command: OpenProject) -> None:
        """Loads, checks, freezes, writes and verifies the FP32 checkpoint, then looks at one window."""
        # a project that is refused half-way must not be taken for the one before
        self.bench, self.record, self.baseline, self.proposed, self.locked = None, None, None, None, None
        folder = Path(command.folder)
        reference = parse_reference(command.spec, folder=folder)
        loaded = load_project(reference, command.arguments, folder=Path(command.app_dir) if command.app_dir else folder)
        project = loaded.project
        self.given = criteria_over(project.criteria, command.criteria)
        self.written, self.criteria_dtype = frozenset(command.criteria), command.criteria_dtype
        if project.criteria is not None:
            self.written |= proposing.written_fields(project.criteria)
        policy = policy_over(project.policy, command.policy)
        live = opening.open_project(
            project,
            device=command.device,
            iterations=command.iterations,
            title=reference.title,
            regions=policy.fp32_regions,
            folder=self.folder.batches,
            on_progress=lambda done, total: self.emit(
                Progressed(stage="project", what="batches", done=done, total=total)
            ),
        )
        self.record = self._existing_checkpoint(live)
        start = _snapshot(live)
        bench = Bench(
            live=live,
            start=start,
            rng=start.rng,
            precision=PrecisionSettings.current(),
            policy=policy,
            folder=self.folder,
            emit=self.emit,
            between=self._between,
        )
        opened = self._opened(bench, command, loaded)
        self.emit(opened)
        if self.record is None:
            self._write_checkpoint(live)
        if self.outbox.store is not None and not command.aside:
            self.outbox.store.put_meta(OPENED_WITH, encode(command))
            for remark in noted_changes(self.outbox.store, opened.digests):
                self.emit(remark)
        preflight(bench)
        probe_dtypes(bench)
        self.bench = bench
        self.after = AfterVerdict(bench)

    def run_baseline(self, _command: RunBaseline) -> None:
        bench = self._opened_bench()
        self.baseline = run_baseline(bench)
        self._propose(bench, self.baseline)
        self.after.baseline_done(bench, self.baseline)

    def propose_again(self, command: ProposeCriteria) -> None:
        """For another dtype, as more policies are to be tried under the same criteria."""
        if self.bench is None or self.baseline is None:
            self._refuse("order", "there is no baseline yet", "run the baseline first")
        elif self.locked is not None:
            self._refuse("order", "the criteria are locked", "change them one by one, with a reason")
        else:
            self.criteria_dtype = command.dtype
            self._propose(self.bench, self.baseline)

    def lock_criteria(self, command: LockCriteria) -> None:
        """The first lock is revision 1; after a trial a new revision needs a reason, and the old ones stay.

        A new engine that locks what the session had locked already goes on under that revision.
        """
        if self.proposed is None:
            raise Refusal("order", "there is no baseline yet", hint="run the baseline before criteria are locked")
        criteria = command.criteria or self.proposed[0]
        digest = proposing.digest(criteria)
        reason = command.reason.strip()
        before = locked_before(self.outbox.store) if self.locked is None else None
        if before is not None and before.digest == digest:
            self.locked = replace(before, proposals=proposing.as_locked(self.proposed[1], criteria))
            self.emit(self.locked)
            return
        if self.trials and not reason:
            raise Refusal(
                "reason", "a trial has run under the locked criteria", hint="write down why they are changed now"
            )
        revision = 1 if self.locked is None else self.locked.revision + 1
        if self.outbox.store is not None:
            revision = self.outbox.store.lock_criteria(to_json(criteria), reason=reason).revision
        self.locked = CriteriaLocked(
            revision=revision,
            digest=digest,
            criteria=criteria,
            proposals=proposing.as_locked(self.proposed[1], criteria),
            reason=reason,
            after_trial=self.trials > 0,
        )
        self.emit(self.locked)

    def run_trial(self, command: RunTrial) -> None:
        bench = self._opened_bench()
        if self.baseline is None or self.locked is None:
            raise Refusal("order", "the criteria are not locked", hint="run the baseline and lock the criteria first")
        policy = policy_over(bench.policy, command.policy)
        # what was thought of after a trial is marked; once more, it is the run that confirms it
        late = self.trials > 0 and not command.planned and policy not in (bench.policy, *self.tried)
        self.trials += 1
        trial = Trial(
            bench=bench,
            baseline=self.baseline,
            criteria=self.locked.criteria,
            policy=policy,
            number=self.trials,
            revision=self.locked.revision,
            walk=Attended(self.inbox, self.emit) if command.attended else Unattended(),
            repeats=max(1, command.extend),
        )
        evidence = trial.run()
        evidence = replace(evidence, interventions=evidence.interventions + int(late))
        judgement = judge(evidence)
        self.emit(StageStarted(stage="verdict"))
        self.emit(
            VerdictReached(
                trial=self.trials,
                verdict=judgement.verdict,
                words=judgement.words,
                rows=judgement.rows,
                findings=judgement.findings,
                counts=evidence.counts,
                scaler=evidence.scaler,
                fp32_regions=judgement.fp32_regions,
                interventions=evidence.interventions,
            )
        )
        self.after.judged(trial, judgement.verdict)
        if trial.stopped is not None:
            raise trial.stopped
        self.tried.append(policy)

    def replay_case(self, command: ReplayCase) -> None:
        """A retained case once more, on its own weights; what the session has measured stays as it is."""
        bench = self._opened_bench()
        path = self.folder.retained / f"{command.id}.pt"
        if "/" in command.id or not path.is_file():
            raise Refusal(
                "retained", f"there is no retained case {command.id!r} in this session", hint="list them first"
            )
        self.emit(recall(bench.live, bench.start, path, findings_before(self.outbox.store)))

    def fall_back(self) -> None:
        """Back to the FP32 checkpoint on disk: verified before anything live is touched, compared afterwards."""
        bench = self.bench
        if bench is None or self.record is None:
            self._refuse("order", "no checkpoint has been written yet", "open a project first")
            return
        try:
            checkpoint.restore(self.record, bench.live.state, folder=self.folder)
        except SessionError as error:
            self._refuse("checkpoint", str(error), "nothing was changed")
            return
        now = Snapshot.take(bench.live.state)
        different = bench.start.differences(now)
        repeatable = self.baseline is None or self.baseline.evidence.repeatable
        self.emit(
            FellBack(
                checkpoint=self.record.name,
                verified=self.record.tensors,
                proven=different is None and repeatable,
            )
        )

    # Parts of the stages.

    def _propose(self, bench: Bench, baseline: Baseline) -> None:
        dtype = self.criteria_dtype or bench.policy.dtype
        self.proposed = proposing.propose(
            self.given,
            self.written,
            baseline.evidence.outputs,
            dtype,
            [update.name for update in bench.live.updates],
            has_quality=bench.live.project.quality is not None,
            quality=baseline.evidence.quality,
        )
        criteria, proposals = self.proposed
        self.emit(CriteriaProposed(criteria=criteria, proposals=proposals, dtype=dtype))

    def _opened(self, bench: Bench, command: OpenProject, loaded: LoadedProject) -> ProjectOpened:
        live = bench.live
        return ProjectOpened(
            name=live.name,
            spec=command.spec,
            defined_at=str(loaded.defined_at),
            modules=opening.module_facts(live),
            parameters=sum(p.numel() for module in live.modules.values() for p in module.parameters()),
            updates=tuple(update.facts for update in live.updates),
            cases=opening.case_facts(live),
            batches=len(live.batches.batches) + live.batches.remainder,
            iterations=live.batches.iterations if live.updates else 0,
            remainder=live.batches.remainder,
            policy=bench.policy,
            criteria=self.given,
            digests=opening.digests(live, opening.source_digests(live, loaded.sources)),
            has_decide=live.project.decide is not None,
            has_quality=live.project.quality is not None,
            environment=environment(live.device, Path(command.folder)),
        )

    def _existing_checkpoint(self, live: LiveProject) -> CheckpointRecord | None:
        """In a session that is opened again: its FP32 checkpoint, verified and loaded into the live objects."""
        store = self.outbox.store
        record = store.checkpoint(FP32) if store is not None else None
        if record is not None:
            checkpoint.restore(record, live.state, folder=self.folder)
            self.emit(FellBack(checkpoint=record.name, verified=record.tensors, proven=True))
        return record

    def _write_checkpoint(self, live: LiveProject) -> None:
        self.record = checkpoint.write(self.folder, FP32, live.state, position={"iteration": 0})
        if self.outbox.store is not None:
            self.outbox.store.add_checkpoint(self.record)
        self.emit(
            CheckpointWritten(
                name=self.record.name,
                path=str(self.folder.path / self.record.path),
                sha256=self.record.sha256,
                tensors=sum(len(entry.tensors) for entry in self.record.entries),
                bytes=self.record.bytes,
            )
        )

    def _opened_bench(self) -> Bench:
        if self.bench is None:
            raise Refusal("order", "no project is open", hint="open a project first")
        return self.bench

    def _between(self) -> None:
        """Between two phases: the safe point at which a stage can be ended."""
        if self.inbox.cancel_asked or self.inbox.closing is not None:
            raise Stopped

    def _refuse(self, code: str, message: str, hint: str) -> None:
        self.emit(Refused(code=code, message=message, hint=hint))


def _snapshot(live: LiveProject) -> Snapshot:
    try:
        return Snapshot.take(live.state)
    except TypeError as error:
        raise Refusal("state", str(error), hint="amptui must be able to put back all that a run changes") from error
    except RecursionError as error:
        said = "a state is nested without end: something in extra_state, an optimizer or a scheduler contains itself"
        raise Refusal("state", said, hint="keep such a reference out of the state") from error
