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

from amptui.engine.after_verdict import AfterVerdict
from amptui.engine.baseline import Baseline, run_baseline
from amptui.engine.bench import Bench
from amptui.engine.course import Stopped
from amptui.engine.criteria import CriteriaLock
from amptui.engine.ended_stages import events_of
from amptui.engine.environment import environment
from amptui.engine.inbox import Inbox
from amptui.engine.opened_project import opened_project
from amptui.engine.outbox import Outbox
from amptui.engine.recall import recall
from amptui.engine.refusals import Refusal
from amptui.engine.told_before import findings_before, trials_before, tried_before
from amptui.engine.trial import Trial
from amptui.engine.walk import Attended, LeftTrial, Unattended
from amptui.engine.way_back import fall_back
from amptui.findings.verdict import judge
from amptui.protocol.codec import encode
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
    EngineStarted,
    Event,
    StageEnded,
    StageName,
    StageStarted,
    VerdictReached,
)
from amptui.protocol.measuring import TASKS
from amptui.session.folder import SessionFolder
from amptui.session.manifest import CheckpointRecord
from amptui.session.store_reader import RetainedRecord
from amptui.spec.run_settings import policy_over


class Conductor:
    """One session's engine: `run` carries out commands until the client closes it."""

    def __init__(self, inbox: Inbox, outbox: Outbox, folder: SessionFolder) -> None:
        self.inbox, self.outbox, self.folder = inbox, outbox, folder
        self.bench: Bench | None = None
        self.record: CheckpointRecord | None = None
        self.baseline: Baseline | None = None
        self.criteria = CriteriaLock(outbox.store, self.emit)
        #: Of the whole session, also by engines before this one.
        self.trials = trials_before(outbox.store)
        #: The policies of trials that were run to their end.
        self.tried = tried_before(outbox.store)
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
        """Carries out one command to its end; every way in which it can end is an event."""
        at_once: dict[type[Command], Callable[..., None]] = {
            FallBack: self.fall_back,
            ProposeCriteria: self.propose_again,
        }
        stages: dict[type[Command], tuple[StageName, Callable[..., None]]] = {
            OpenProject: ("project", self.open_project),
            RunBaseline: ("baseline", self.run_baseline),
            LockCriteria: ("criteria", self.lock_criteria),
            RunTrial: ("trial", self.run_trial),
            ReplayCase: ("trial", self.replay_case),
            **self.after.stages(),
        }
        kind = type(command)
        if kind in at_once:
            self._carry_out_at_once(command, at_once[kind])
        elif kind in stages:  # Pause, Advance and the like mean nothing between stages
            self._carry_out_as_stage(command, *stages[kind])

    def _carry_out_at_once(self, command: Command, carry_out: Callable[..., None]) -> None:
        try:
            carry_out(command)
        except Refusal as refusal:
            for event in events_of(refusal):
                self.emit(event)

    def _carry_out_as_stage(self, command: Command, stage: StageName, carry_out: Callable[..., None]) -> None:
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

    # The stages.

    def open_project(self, command: OpenProject) -> None:
        store = self.outbox.store
        # a project that is refused half-way must not be taken for the one before
        self.bench, self.record, self.baseline = None, None, None
        self.criteria, self.after = CriteriaLock(store, self.emit), AfterVerdict()
        opened = opened_project(command, folder=self.folder, store=store, emit=self.emit, between=self._between)
        self.bench, self.record = opened.bench, opened.checkpoint
        self.criteria = CriteriaLock(store, self.emit, opened.criteria)
        self.after = AfterVerdict(opened.bench)

    def run_baseline(self, _command: RunBaseline) -> None:
        bench = self._opened_bench()
        self.baseline = run_baseline(bench)
        self.criteria.propose(bench, self.baseline)
        self.after.baseline_done(bench, self.baseline)

    def lock_criteria(self, command: LockCriteria) -> None:
        self.criteria.lock(command, trials=self.trials)

    def run_trial(self, command: RunTrial) -> None:
        bench = self._opened_bench()
        locked = self.criteria.locked
        if self.baseline is None or locked is None:
            raise Refusal("order", "the criteria are not locked", hint="run the baseline and lock the criteria first")
        policy = policy_over(bench.policy, command.policy)
        # what was thought of after a trial is marked; once more, it is the run that confirms it
        late = self.trials > 0 and not command.planned and policy not in (bench.policy, *self.tried)
        self.trials += 1
        trial = Trial(
            bench=bench,
            baseline=self.baseline,
            criteria=locked.criteria,
            policy=policy,
            number=self.trials,
            revision=locked.revision,
            walk=Attended(self.inbox, self.emit) if command.attended else Unattended(),
            repeats=max(1, command.extend),
        )
        evidence = trial.run()
        evidence = replace(evidence, interventions=evidence.interventions + int(late))
        judgement = judge(evidence)
        self.emit(StageStarted(stage="verdict"))
        self.emit(
            VerdictReached(
                trial=trial.number,
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

    # Between the stages.

    def propose_again(self, command: ProposeCriteria) -> None:
        if self.bench is None or self.baseline is None:
            raise Refusal("order", "there is no baseline yet", hint="run the baseline first")
        self.criteria.propose_for(command.dtype, self.bench, self.baseline)

    def fall_back(self, _command: FallBack) -> None:
        if self.bench is None or self.record is None:
            raise Refusal("order", "no checkpoint has been written yet", hint="open a project first")
        repeatable = self.baseline is None or self.baseline.evidence.repeatable
        fall_back(self.bench, self.record, repeatable=repeatable)

    def _opened_bench(self) -> Bench:
        if self.bench is None:
            raise Refusal("order", "no project is open", hint="open a project first")
        return self.bench

    def _between(self) -> None:
        """Between two phases: the safe point at which a stage can be ended."""
        if self.inbox.cancel_asked or self.inbox.closing is not None:
            raise Stopped
