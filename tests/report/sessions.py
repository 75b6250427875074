"""Small sessions written by hand, as their events: what an account, a screen or a report is shown."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

from amptui.findings.evidence import TensorDifference
from amptui.findings.finding import Finding
from amptui.findings.judgement import Proposal, Row, ScaleCourse, UpdateCounts
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
from amptui.report.account import Account
from amptui.session.death import EngineDeath
from amptui.session.state import SessionState, died, reduce

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


def reduced(events: Iterable[told.Event | EngineDeath]) -> SessionState:
    state = SessionState()
    for event in events:
        state = died(state, event) if isinstance(event, EngineDeath) else reduce(state, event)
    return state


def account_of(events: Told, exit_code: int = 0, *, console: Console | None = None, **options: Any) -> str:
    """What the account of `events` prints; by default into a pipe of 80 columns."""
    console = console or pipe()
    account = Account(console, spec="train.py:project", session="a-session", **options)
    state = SessionState()
    for event in events:
        if isinstance(event, EngineDeath):
            state = died(state, event)
            account.on_death(event, state)
        else:
            state = reduce(state, event)
            account.on_event(event, state)
    account.finish(state, exit_code, json="result.json")
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def pipe(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False, _environ={})


# The stages.


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


# Whole sessions.


def accepted() -> Told:
    rows = [row("difference", True, case=case, what="output scores, before the stretch") for case, _ in CASES]
    late = {"what": "mean loss of main over the last quarter", "baseline": 0.5, "trial": 0.51, "measured": 0.02}
    return (
        *opened(),
        *baseline(),
        *locked(),
        *trial_started(),
        *(case_run(n, difference(0.001 * n, largest=0.002 * n)) for n in range(4)),
        trip(0),
        told.CaseRetained(
            id="kept-0", step=0, update="main", case=None, outcome="bad_gradient", path="/s/kept-0.pt", bytes=2048
        ),
        iteration(0, "bad_gradient"),
        trip(1),
        iteration(1, "bad_gradient"),
        *(iteration(step) for step in range(2, 40)),
        told.TrialDone(
            trial=1,
            completed=True,
            counts=(counts(38, skipped=2, first_applied=2),),
            scaler=ScaleCourse(initial=65536.0, final=16384.0, lowest=16384.0),
            quality=0.949,
            seconds=75.0,
        ),
        *verdict("accept", "Accept: 4 cases and 40 iterations held.", [*rows, row("progress", None, **late)]),
    )


FAILED_ROWS = (
    row(
        "difference",
        False,
        baseline=1.25,
        trial=7.75,
        limit=0.125,
        measured=6.5,
        case="plain-2",
        what="output scores, before the stretch",
    ),
    row(
        "difference",
        False,
        baseline=2.5,
        trial=math.nan,
        limit=0.125,
        measured=math.inf,
        case="long-3",
        what="output scores, before the stretch",
    ),
    row(
        "decision", False, baseline=3, trial=8, limit="the same", case="tie-4", what="decision (a tie in the baseline)"
    ),
    row("updates", False, baseline=1.0, trial=0.75, limit=0.9, measured=0.75, what="30 of 40 updates of main applied"),
)


def rejected() -> Told:
    findings = (
        Finding(
            kind="overflow",
            severity="fault",
            stage="forward",
            step=5,
            update="main",
            module="blocks.3.norm",
            op="pow",
            line="net.py:31",
            fp32_ok=True,
            evidence=("the square reaches 80,000", "float16 ends at 65,504"),
            advice="Run blocks.3.norm in FP32.",
        ),
        Finding(kind="decision", severity="notice", stage="decision", step=3, case="tie-4", evidence=("a near tie",)),
    )
    failed = told.CodeFailed(
        under="trial",
        exception="RuntimeError",
        message="expected Half but found Float",
        where="net.py:44",
        module="head",
        step=None,
        case="plain-1",
        frames=("train.py:9 in outputs", "net.py:44 in forward"),
    )
    return (
        *opened(),
        *baseline(),
        *locked(),
        *trial_started(),
        failed,
        failed,
        case_run(1, difference(6.5, largest=6.6)),
        case_run(2, difference(math.inf, largest=math.inf, nonfinite=4)),
        case_run(3, difference(0.0, largest=0.001), decision=8, stands=False),
        trip(5, "bad_after_unscale"),
        trip(6),
        trip(7, "bad_after_unscale"),
        told.TrialDone(
            trial=1,
            completed=True,
            counts=(counts(30, skipped=8, withheld=2, first_applied=0),),
            scaler=ScaleCourse(initial=65536.0, final=256.0, lowest=64.0),
            quality=math.nan,
            seconds=0.5,
        ),
        *verdict(
            "reject",
            "Reject: at step 5, the square reaches 80,000.",
            [row("difference", True, case="plain-1", what="output scores, before the stretch"), *FAILED_ROWS],
            findings=findings,
            fp32_regions=("blocks.3.norm",),
        ),
    )


def inconclusive() -> Told:
    return (
        *opened(),
        *baseline(finite=False, difference="weights of sampler", noise=1.5e-7),
        *locked(revision=2, after_trial=True, reason="the loader was shuffled", proposals=()),
        *trial_started(),
        told.Intervened(what="retried", step=4),
        told.TrialDone(trial=1, completed=False, counts=(counts(0),), scaler=None, quality=None, seconds=0.5),
        *verdict("inconclusive", "Inconclusive: the baseline is not finite.", [], interventions=1),
    )


def refused() -> Told:
    return (
        told.EngineStarted(pid=1, environment=ENVIRONMENT),
        started("project"),
        told.Refused(
            code="shared-parameter",
            message="parameter 'w' is in two optimizers",
            where="train.py:21",
            hint="let exactly one optimizer own each parameter",
        ),
        ended("project", completed=False),
    )


def fails_in_fp32() -> Told:
    return (
        *opened(),
        started("baseline"),
        told.CodeFailed(
            under="baseline",
            exception="ValueError",
            message="bad shape",
            where="net.py:8",
            module="",
            step=2,
            case=None,
            frames=("train.py:9 in loss", "net.py:8 in forward"),
        ),
        told.Refused(
            code="fp32-failed",
            message="forward fails in FP32 already: ValueError: bad shape",
            where="net.py:8",
            hint="mend this first",
        ),
        ended("baseline", completed=False),
    )


def killed() -> Told:
    return (
        *opened(),
        *baseline(),
        *locked(),
        *trial_started(),
        trip(0),
        EngineDeath(
            how="SIGKILL",
            words="The engine was killed (SIGKILL): by someone, or by the kernel because memory ran out.",
            last_output=("epoch 1", "epoch 2 \x1b[31mred\x1b[0m"),
        ),
    )


def engine_failed() -> Told:
    return (
        *opened(),
        started("baseline"),
        told.EngineFailed(message="an assertion of amptui does not hold", where="amptui/engine/x.py:3", detail="trace"),
    )


SESSIONS = {
    build.__name__: build for build in (accepted, rejected, inconclusive, refused, fails_in_fp32, killed, engine_failed)
}
