"""Several policies side by side: what each passed and failed, and which one to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amptui.findings.gain import Claim
from amptui.findings.judgement import Row, ScaleCourse, UpdateCounts, Verdict
from amptui.findings.words import counted, listed, scale_text
from amptui.project import Policy


@dataclass(frozen=True, kw_only=True)
class TrialSummary:
    """One trial as the comparison sees it."""

    trial: int
    policy: Policy
    #: None where the trial did not end in a verdict.
    verdict: Verdict | None
    rows: tuple[Row, ...] = ()
    counts: tuple[UpdateCounts, ...] = ()
    scaler: ScaleCourse | None = None
    quality: float | None = None
    interventions: int = 0
    #: What was measured; empty where nothing was.
    claims: tuple[Claim, ...] = ()

    @property
    def failed(self) -> tuple[str, ...]:
        """The criteria that failed, each once."""
        return tuple(dict.fromkeys(row.criterion for row in self.rows if row.passed is False))

    @property
    def name(self) -> str:
        return policy_name(self.policy)

    def claim(self, subject: str) -> Claim | None:
        return next((claim for claim in self.claims if claim.subject == subject), None)


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """Which trial's policy to take, or None for FP32, and why."""

    trial: int | None
    words: str


def policy_name(policy: Policy) -> str:
    """A policy in few words, as the command line writes it: `float16`, `float16@1024`, `bfloat16`; and its regions."""
    regions = f" with {counted(len(policy.fp32_regions), 'FP32 region')}" if policy.fp32_regions else ""
    return f"{_dtype_and_scale(policy)}{regions}"


def _dtype_and_scale(policy: Policy) -> str:
    short = policy.dtype
    scaler = policy.effective_scaler
    if policy.scaler != "auto" and (scaler is None) != (policy.dtype == "bfloat16"):
        return f"{short}@{'none' if scaler is None else scale_text(scaler.init_scale)}"
    if scaler is not None and scaler.init_scale != 65536.0:
        return f"{short}@{scale_text(scaler.init_scale)}"
    return short


def recommend(trials: Sequence[TrialSummary]) -> Recommendation:
    """An accepted policy that gains something; among equals the one with less to go wrong.

    Without a measurement acceptance decides alone. A gain within its own noise is none.
    """
    accepted = [trial for trial in trials if trial.verdict == "accept"]
    if not accepted:
        return Recommendation(trial=None, words=f"Stay in FP32: {_why_none(trials)}.")
    measured = [trial for trial in accepted if trial.claims]
    if not measured:
        best = min(accepted, key=_risk)
        return Recommendation(trial=best.trial, words=f"Take {best.name}: {_why(best, accepted)}; not measured yet.")
    gaining = [trial for trial in measured if _gains(trial)]
    if not gaining:
        said = [*map(_no_gain, measured), *(f"{t.name} is accepted, not measured" for t in accepted if not t.claims)]
        return Recommendation(trial=None, words=f"Stay in FP32 on this device: {'; '.join(said)}.")
    best = min(gaining, key=lambda trial: (-_speed(trial), *_risk(trial)))
    close = [t for t in gaining if _speed(t) > 0.95 * _speed(best)]
    best = min(close, key=_risk)
    gains = [claim.words for claim in best.claims if claim.direction == "better"]
    return Recommendation(
        trial=best.trial, words=f"Take {best.name}: {_why(best, accepted)}, and {' and '.join(gains)}."
    )


def by_standing(trials: Sequence[TrialSummary]) -> list[TrialSummary]:
    """The accepted ones, those that were measured before the others, and then the one with less to go wrong first."""
    return sorted((t for t in trials if t.verdict == "accept"), key=lambda trial: (not trial.claims, _risk(trial)))


def _no_gain(trial: TrialSummary) -> str:
    slower = _direction(trial, "time") == "worse"
    return f"{trial.name} is accepted, but {'takes longer' if slower else 'gains nothing beyond the noise'}"


def _gains(trial: TrialSummary) -> bool:
    return _direction(trial, "time") == "better" or (
        _direction(trial, "memory") == "better" and _direction(trial, "time") != "worse"
    )


def _direction(trial: TrialSummary, subject: str) -> str | None:
    claim = trial.claim(subject)
    return claim.direction if claim is not None else None


def _speed(trial: TrialSummary) -> float:
    """The speed-up that may be stated; 1 where none may."""
    claim = trial.claim("time")
    return claim.figure if claim is not None and claim.direction != "none" and claim.figure is not None else 1.0


def _risk(trial: TrialSummary) -> tuple[int, int, int, int]:
    """Less is better: interventions, held-back updates, a scaler to look after, the order in which they were asked."""
    held = sum(count.skipped + count.withheld for count in trial.counts)
    return (trial.interventions, int(trial.scaler is not None), held, trial.trial)


def _why(best: TrialSummary, accepted: Sequence[TrialSummary]) -> str:
    others = [trial for trial in accepted if trial is not best]
    if others and best.scaler is None and all(trial.scaler is not None for trial in others):
        return "it is accepted and needs no loss scale"
    return "it is accepted"


def _why_none(trials: Sequence[TrialSummary]) -> str:
    if not trials:
        return "no trial was run"
    parts = []
    for trial in trials:
        if trial.verdict is None:
            parts.append(f"{trial.name} did not reach a verdict")
        elif trial.verdict == "inconclusive":
            parts.append(f"{trial.name} is inconclusive")
        else:
            failed = f" ({listed(trial.failed)})" if trial.failed else ""
            parts.append(f"{trial.name} is rejected{failed}")
    return "; ".join(parts)
