"""Whole small sessions as their events, and the account of them: what a reader is shown."""

from __future__ import annotations

import io
import math
from typing import Any

from rich.console import Console

from amptui.findings.finding import Finding
from amptui.findings.judgement import ScaleCourse
from amptui.protocol import events as told
from amptui.report.account import Account
from amptui.session.death import EngineDeath
from amptui.session.state import SessionState, died, reduce
from tests.report.stages import (
    CASES,
    ENVIRONMENT,
    Told,
    baseline,
    case_run,
    counts,
    difference,
    ended,
    iteration,
    locked,
    opened,
    row,
    started,
    trial_started,
    trip,
    verdict,
)


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


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(width: int = 80, **environment: str) -> Console:
    environment = {"TERM": "xterm-256color", **environment}
    return Console(file=Screen(), width=width, height=24, force_terminal=True, _environ=environment)


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
