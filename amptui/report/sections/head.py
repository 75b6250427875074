"""What stands at the top: the verdict in one sentence, and the figures that a reader asks for first."""

from __future__ import annotations

import time
from collections.abc import Sequence

from amptui.findings.gain import Claim
from amptui.findings.judgement import UpdateCounts, Verdict
from amptui.findings.words import counted, scale_text
from amptui.report.document import Banner, Code, Facts, Mark, Sign, Words
from amptui.report.figures import figure, name, short_digest, words
from amptui.report.recorded import Recorded
from amptui.report.result import UNFINISHED, error
from amptui.report.told_baseline import smallest
from amptui.report.told_interventions import say_interventions
from amptui.report.told_trial import policy_text, scale_course

SIGNS: dict[Verdict, Sign] = {"accept": "ok", "reject": "fail", "inconclusive": "warn"}
WORDS: dict[Verdict, str] = {"accept": "ACCEPTED", "reject": "REJECTED", "inconclusive": "INCONCLUSIVE"}


def title(recorded: Recorded) -> str:
    opened = recorded.state.project
    project = name(opened.name) if opened is not None else "a project that was not opened"
    policy = recorded.policy
    under = f" under {policy.dtype} autocast" if policy is not None and policy.autocast else ""
    return f"{project}{under}"


def subtitle(recorded: Recorded) -> Words:
    began = f" of {moment(recorded.began)}" if recorded.began is not None else ""
    return (f"amptui's report on session{began}: ", Code(recorded.session))


def banner(recorded: Recorded) -> Banner:
    reached = recorded.verdict
    if reached is not None:
        return Banner(SIGNS[reached.verdict], WORDS[reached.verdict], verdict_sentence(reached.words, reached.verdict))
    said = error(recorded.state, alive=recorded.alive) or {}
    where = f" ({said['where']})" if said.get("where") else ""
    hint = f" {said['hint']}" if said.get("hint") else ""
    if recorded.alive and said.get("code") == UNFINISHED:
        sentence = "The session has not ended yet. Write the report again once it has come to a verdict."
        return Banner("warn", "NO VERDICT YET", sentence)
    return Banner("warn", "NO VERDICT", f"{words(said.get('message', ''))}{where}.{hint}")


def verdict_sentence(said: str, verdict: Verdict) -> str:
    """The sentence without the verdict's own word, which stands before it."""
    rest = said.removeprefix(f"{verdict.capitalize()}: ")
    return words(rest[:1].upper() + rest[1:])


def glance(recorded: Recorded) -> Facts:
    """The whole session in a few lines."""
    state, reached = recorded.state, recorded.verdict
    rows: list[tuple[str, Words]] = []
    if recorded.policy is not None:
        rows.append(("Policy", policy_text(recorded.policy)))
    if recorded.trial is not None:
        rows.append(("Held against", "true FP32 on the same weights, batches and random numbers"))
    rows += _cases(recorded)
    if reached is not None:
        rows += [_updates(counts) for counts in reached.counts]
        if reached.scaler is not None:
            rows.append(("Loss scale", scale_course(reached.scaler)))
    rows += _quality(recorded)
    rows += [(claim.subject.capitalize(), words(claim.words)) for claim in _measured(recorded)]
    if state.locked is not None:
        when = "after a trial" if state.locked.after_trial else "before the trial"
        digest = short_digest(state.locked.digest)
        rows.append(("Criteria", f"revision {state.locked.revision}, locked {when}, SHA-256 {digest}…"))
    if reached is not None and reached.findings:
        faults = sum(finding.severity == "fault" for finding in reached.findings)
        notices = len(reached.findings) - faults
        rows.append(("Findings", f"{counted(faults, 'fault')}, {counted(notices, 'notice')}"))
    if reached is not None and reached.interventions:
        rows.append(("Interventions", (Mark("warn"), say_interventions(reached, state))))
    if state.project is not None:
        environment = state.project.environment
        rows.append(("Ran on", f"{environment.device} ({name(environment.device_name)}), torch {environment.torch}"))
    return Facts(rows)


def _cases(recorded: Recorded) -> list[tuple[str, Words]]:
    runs = list(recorded.trial.cases.values()) if recorded.trial is not None else []
    if not runs:
        return []
    judged = [run for run in runs if run.decision_stands is not None]
    parts = [counted(len(runs), "case")]
    if judged:
        standing = sum(run.decision_stands is True for run in judged)
        parts.append(f"{standing:,} of {counted(len(judged), 'decision')} stand")
    margins = [
        (margin, run.figures.case)
        for run in runs
        for margin in (run.baseline_margin, run.figures.margin)
        if margin is not None
    ]
    if margins:
        margin, case = smallest(margins)
        parts.append(f"smallest margin {figure(margin)} ({name(case)})")
    return [("Cases", ", ".join(parts))]


def _updates(counts: UpdateCounts) -> tuple[str, Words]:
    parts = [f"{counts.applied:,} of {counts.iterations:,} applied"]
    parts += [f"{counts.skipped:,} skipped"] if counts.skipped else []
    parts += [f"{counts.withheld:,} withheld"] if counts.withheld else []
    return f"Updates of {name(counts.name)}", ", ".join(parts)


def _quality(recorded: Recorded) -> list[tuple[str, Words]]:
    fp32 = recorded.state.baseline.quality if recorded.state.baseline is not None else None
    trial = recorded.trial.done.quality if recorded.trial is not None and recorded.trial.done is not None else None
    if trial is None:
        return []
    return [("Quality", f"{figure(trial)} after the stretch, in FP32 {figure(fp32)}")]


def _measured(recorded: Recorded) -> Sequence[Claim]:
    measured = recorded.state.measured.get(recorded.trial.number) if recorded.trial is not None else None
    return measured.claims if measured is not None else ()


def moment(unix: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(unix))


def scale_hint(initial: float, final: float) -> str:
    """What an own run may start with, where the scale had to come down first."""
    return (
        f"The scale came down from {scale_text(initial)} to {scale_text(final)}: "
        f"with init_scale={final:g} your run begins where the trial settled."
    )
