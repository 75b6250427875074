"""The stages of a small check, written by hand as the events that the engine tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from amptui.findings.criteria import as_locked
from amptui.findings.evidence import TensorDifference
from amptui.findings.judgement import Proposal, Row, UpdateCounts
from amptui.project import Criteria, Policy
from amptui.protocol import events as told
from amptui.protocol.codec import Floats
from amptui.protocol.facts import (
    CaseFacts,
    CaseFigures,
    Digests,
    Environment,
    IterationRecord,
    ModuleFacts,
    OutputFacts,
    UpdateFacts,
    UpdateRecord,
)
from amptui.session.death import EngineDeath

Told = Sequence["told.Event | EngineDeath"]

CASES = (("plain-1", "ordinary"), ("plain-2", "ordinary"), ("long-3", "edge"), ("tie-4", "boundary"))
LOCKED = Criteria(outputs={"scores": {"atol": 0.25, "rtol": 0.01}}, quality_drop=0.02)
ENVIRONMENT = Environment(
    python="3.11.4",
    executable="/usr/bin/python",
    torch="2.13.0+cpu",
    numpy="2.1.0",
    platform="Linux",
    device="cpu",
    device_name="x86_64",
    accelerator=None,
    threads=4,
    precision={"float32 matmul": "high", "cuda matmul": "tf32"},
    git_commit="0123456789abcdef",
    git_dirty=False,
)


def started(stage: told.StageName) -> told.StageStarted:
    return told.StageStarted(stage=stage)


def ended(stage: told.StageName, *, completed: bool = True) -> told.StageEnded:
    return told.StageEnded(stage=stage, completed=completed)


def opened() -> Told:
    update = UpdateFacts(
        name="main",
        optimizer="AdamW",
        fused=False,
        parameters=1234,
        layers=("conv.weight", "head.weight"),
        loss_at="train.py:12",
        scheduler="CosineAnnealingLR",
        scheduler_every=1,
        every=1,
        accumulate=2,
        reduce="mean",
        clip_norm=1.5,
        clip_value=None,
    )
    return (
        told.EngineStarted(pid=1, environment=ENVIRONMENT),
        started("project"),
        told.ProjectOpened(
            name="tiny",
            spec="train.py:project",
            defined_at="train.py:40",
            modules=(ModuleFacts(path="conv", type="Conv2d", parameters=1234, training=True),),
            parameters=1234,
            updates=(update,),
            cases=tuple(CaseFacts(id=c, index=n, tag=tag, has_target=True) for n, (c, tag) in enumerate(CASES)),
            batches=81,
            iterations=40,
            remainder=1,
            policy=Policy(),
            criteria=None,
            digests=Digests(weights="w", cases="c", batches="b", sources={}),
            has_decide=True,
            has_quality=True,
            environment=ENVIRONMENT,
        ),
        told.CheckpointWritten(name="fp32", path="/s/fp32.pt", sha256="f00dfeed" * 8, tensors=9, bytes=49_356),
        told.Remarked(code="eval-mode", message="the model is in eval mode", where="train.py:7", advice="call train()"),
        told.Probed(dtype="float16", supported=True),
        told.Probed(dtype="bfloat16", supported=False, error="RuntimeError: no kernel", where="train.py:9"),
        ended("project"),
    )


def figures(case: int, *, decision: object = 3, margin: float | None = 0.5) -> CaseFigures:
    identity, tag = CASES[case]
    scores = OutputFacts(
        name="scores",
        dtype="float32",
        shape=(10,),
        nan=0,
        positive_inf=0,
        negative_inf=0,
        lowest=-1.0,
        highest=12.0,
    )
    return CaseFigures(case=identity, index=case, tag=tag, outputs=(scores,), decision=decision, margin=margin)


def baseline(*, finite: bool = True, difference: str | None = None, noise: float = 0.0) -> Told:
    reasons = [] if finite else ["the FP32 stretch is not finite: main at step 3"]
    if difference:
        reasons.append(f"two FP32 runs from the checkpoint differ, first in {difference}")
    return (
        started("baseline"),
        *(
            told.BaselineCaseRun(
                figures=figures(n, margin=0.0003 if n == 3 else 0.5),
                noise={"scores": noise} if noise and n == 2 else {},
                randomness={},
            )
            for n in range(4)
        ),
        told.RepeatProved(
            repeatable=difference is None,
            iterations=3,
            difference=difference,
            step=None if difference is None else 1,
            advice="" if difference is None else "name it in extra_state",
        ),
        told.BaselineDone(
            finite=finite,
            repeatable=difference is None,
            reasons=tuple(reasons),
            quality_before=0.91,
            quality=0.95,
            counts=(counts(),),
            seconds=1.25,
        ),
        told.CriteriaProposed(criteria=LOCKED, proposals=PROPOSALS),
        ended("baseline"),
    )


PROPOSALS = (
    Proposal(name="outputs.scores.atol", value=0.25, reason="given by the project", given=True),
    Proposal(name="outputs.scores.rtol", value=0.01, reason="ten roundings that go the same way", given=False),
    Proposal(name="decision_changes", value=0, reason="none may change", given=False),
    Proposal(name="progress", value=None, reason="shown, not judged", given=False),
)


def locked_by_the_user() -> Told:
    """Criteria of which one was written on the screen before the lock."""
    criteria = replace(LOCKED, decision_changes=1)
    return locked(criteria=criteria, proposals=as_locked(PROPOSALS[2:3], criteria))


def locked(**changed: Any) -> Told:
    facts: dict[str, Any] = {
        "revision": 1,
        "digest": "abcdef0123456789" * 4,
        "criteria": LOCKED,
        "proposals": PROPOSALS,
        "reason": "",
        "after_trial": False,
    }
    return (started("criteria"), told.CriteriaLocked(**{**facts, **changed}), ended("criteria"))


def counts(applied: int = 40, **changed: Any) -> UpdateCounts:
    facts = {"name": "main", "iterations": 40, "applied": applied, "skipped": 0, "withheld": 0, "changed": applied}
    return UpdateCounts(**{**facts, **changed})


def difference(measured: float, *, largest: float, nonfinite: int = 0) -> TensorDifference:
    return TensorDifference(
        name="scores",
        measured=measured,
        limit=0.25,
        largest=largest,
        baseline=1.0,
        trial=1.0 + largest,
        place=(3,),
        elements=10,
        beyond=int(measured > 0.25) + nonfinite,
        nonfinite=nonfinite,
    )


def case_run(case: int, apart: TensorDifference, *, decision: object = 3, stands: bool = True) -> told.TrialCaseRun:
    margin = 0.0003 if case == 3 else 0.5
    return told.TrialCaseRun(
        figures=figures(case, decision=decision, margin=margin),
        differences=(apart,),
        decision_stands=stands,
        baseline_decision=3,
        baseline_margin=margin,
    )


def record(step: int, outcome: Any = "ok", scale: float = 65536.0) -> UpdateRecord:
    applied = outcome == "ok"
    return UpdateRecord(
        step=step,
        update="main",
        outcome=outcome,
        loss=1.0,
        losses=Floats.of([1.0]),
        shown={},
        norms=Floats.of([1.0, 1.0]),
        norm=1.0,
        clipped_to=1.0,
        found_inf=not applied,
        scale=scale,
        applied=applied,
        skipped=outcome == "bad_gradient",
        withheld=outcome == "bad_after_unscale",
        zero_gradient=False,
        learning_rate=0.1,
        bad=() if applied else ("conv.weight",),
    )


def iteration(step: int, outcome: Any = "ok") -> told.IterationDone:
    update = record(step, outcome)
    return told.IterationDone(
        run="trial",
        record=IterationRecord(
            step=step,
            updates=(update,),
            scale_before=65536.0,
            scale_after=65536.0 if update.applied else 32768.0,
            growth_tracker=0,
            growth_interval=2000,
            seconds=0.01,
            memory=1,
        ),
    )


def trip(step: int, outcome: Any = "bad_gradient") -> told.GuardTripped:
    return told.GuardTripped(record=record(step, outcome), words=f"The words about {outcome}.", retained=None)


def progress(done: int) -> told.Progressed:
    return told.Progressed(stage="trial", what="stretch", done=done, total=40)


def trial_started() -> Told:
    return (
        started("trial"),
        told.TrialStarted(
            trial=1, policy=Policy(fp32_regions=["head.norm"]), iterations=40, revision=1, attended=False
        ),
    )


def verdict(name: Any, words: str, rows: Sequence[Row], **changed: Any) -> Told:
    facts: dict[str, Any] = {
        "findings": (),
        "counts": (counts(),),
        "scaler": None,
        "fp32_regions": (),
        "interventions": 0,
    }
    return (
        started("verdict"),
        told.VerdictReached(trial=1, verdict=name, words=words, rows=tuple(rows), **{**facts, **changed}),
        ended("trial"),
        told.Goodbye(why="asked to close"),
    )


def row(criterion: Any, passed: bool | None, **facts: Any) -> Row:
    return Row(criterion=criterion, passed=passed, **facts)
