"""The two lines that lead on: what is true now, and what to press next."""

from __future__ import annotations

from dataclasses import replace

from amptui.findings.words import counted
from amptui.protocol.events import CaseReplayed, StageName, VerdictReached
from amptui.session.state import SessionState, TrialState
from amptui.ui import guidance_beyond as beyond
from amptui.ui.advice import ROLES, Guidance, fitting
from amptui.ui.guidance_engine import as_sentence, without_engine
from amptui.ui.key_names import KeyNames
from amptui.ui.known_failures import known_failures
from amptui.ui.moves import Situation, active, next_move, next_stage

#: From so many trips on, a scale that settles is no explanation any more: 2^16 to 2^8.
_MANY = 9
_RECORDED = (
    "{stage_1} to {stage_7} show the stages, {events} the events, {output} the output, "
    "{explain} explains, {back} leaves."
)


def guidance(now: Situation) -> Guidance:
    """What the two lines say."""
    said = _said(now)
    state = now.state
    at_rest = now.connected and state.engine == "ready" and not state.busy and state.obstacle is None
    if now.page == "diagnosis" and now.mode == "live" and at_rest and not (now.falling_back or now.reloading):
        return replace(said, press=_at_diagnosis(now))
    return said


def _at_diagnosis(now: Situation) -> str:
    """What can be done about the failure that is looked at."""
    proves = now.state.replayed and now.state.baseline is None
    options = {
        "proceed": "{proceed} proves the baseline again" if proves else "{proceed} goes on",
        "mend": "{mend} puts modules in FP32",
        "diagnose": "{diagnose} next failure",
        "edit": "{edit} edits",
        "reload": "{reload} tries the edit",
        "back": "{back} back",
    }
    ids = set(active(now))
    if now.in_trial and "mend" not in ids and _region_advised(now.state):
        options["mend"] = "{mend} after the verdict puts modules in FP32"
        ids.add("mend")
    if len(known_failures(now.state)) < 2:
        ids.discard("diagnose")
    return now.keys.say(", ".join(words for key, words in options.items() if key in ids) + ".")


def _region_advised(state: SessionState) -> bool:
    """Whether a trip of this trial came with the advice to keep a module in FP32, which no replay has named yet."""
    diagnosed = state.trial.diagnoses if state.trial is not None else ()
    return any("fp32_regions" in (finding.advice or "") for one in diagnosed for finding in one.findings)


def _said(now: Situation) -> Guidance:
    state = now.state
    if now.mode == "recorded":
        return _recorded(now)
    gone = without_engine(now)
    if gone is not None:
        return gone
    if state.obstacle is not None:
        hint = as_sentence(state.obstacle.hint or "correct it and run amptui again")
        press = "{hint} {reload} loads it again, {back} leaves." if now.can_reload else "{hint} {back} leaves."
        return Guidance(f"Cannot go on: {state.obstacle.message}", now.keys.say(press, hint=hint), "bad")
    if now.running:
        return _while_running(now)
    if state.refusal is not None:  # of a measurement or of finding cases: nothing else is kept from going on
        hint = f" ({state.refusal.hint})" if state.refusal.hint else ""
        return Guidance(f"Not done: {state.refusal.message}{hint}", _at_rest(now).press, "warn")
    return _at_rest(now)


def _at_rest(now: Situation) -> Guidance:
    """The engine waits."""
    state = now.state
    if now.page == "cases":
        return beyond.at_cases(now)
    if next_move(now) == "write report":
        return beyond.at_report(now)
    due = next_stage(state)
    if now.page == "measure" and state.verdict is not None and due in (None, "trial"):
        said = beyond.at_measure(now)
        fell_back = state.fell_back is not None and next_move(now) == "measure"
        return replace(said, now=_fell_back(now, due).now, role="good") if fell_back else said
    if state.replayed and due == "baseline":
        return _replayed(state.replayed[-1], now.keys)
    if state.fell_back is not None and due in ("baseline", "trial"):
        return _fell_back(now, due)
    return _between(now)


def _recorded(now: Situation) -> Guidance:
    if now.page == "report":
        return beyond.at_report(now)
    return Guidance("A recorded session: everything can be looked at, nothing runs.", now.keys.say(_RECORDED))


def _replayed(event: CaseReplayed, keys: KeyNames) -> Guidance:
    press = keys.say(
        "{proceed} proves the baseline again and goes on. {edit} edits, {reload} replays again, {back} back."
    )
    if event.outcome == "fixed":
        return Guidance("Fixed: the iteration that failed is finite with the source as it is now.", press, "good")
    if event.outcome == "same":
        return Guidance("Not fixed: the iteration fails where it failed before.", press, "bad")
    return Guidance("The first bad place is gone; the iteration now fails in another one.", press, "warn")


def _fell_back(now: Situation, due: StageName | None) -> Guidance:
    done = now.state.fell_back
    assert done is not None
    tensors = counted(done.verified, "tensor")
    proven = "equal bit for bit" if done.proven else "but bit for bit is not proven (2 Baseline says why)"
    press = {
        "baseline": "{proceed} runs the baseline again, which the trial needs, {back} leaves.",
        "trial": "{proceed} runs the trial again from here, {phase} steps through it, {back} leaves.",
    }
    words = f"Back at the FP32 checkpoint: {tensors} compared, {proven}."
    return Guidance(words, now.keys.say(press.get(due or "", "")), "good")


def _while_running(now: Situation) -> Guidance:
    state = now.state
    if now.in_trial:
        return _in_trial(now)
    progress = state.progress
    part = f": {progress.what} {progress.done:,} of {progress.total:,}" if progress is not None else ""
    if state.stages.get("project") == "running":
        return Guidance(f"Loading your project{part}. Nothing of it is changed on disk.", "")
    if state.stages.get("baseline") == "running":
        words = f"Running the project in true FP32{part}. The trial will be held against this."
        return Guidance(words, now.keys.say("{cancel} ends it early."))
    if state.stages.get("measure") == "running":
        return Guidance(beyond.measuring(state), now.keys.say("{cancel} ends it early."))
    return Guidance(f"Working{part}.", "")


def _in_trial(now: Situation) -> Guidance:
    state, paused = now.state, now.state.paused
    trial = state.trial
    assert trial is not None
    if now.trip_waits:
        return _at_trip(state, trial, now.keys)
    if paused is not None:
        return Guidance(
            f"Paused at step {paused.step:,} ({paused.why}). {_cases_off(state) or 'Nothing runs until you say so.'}",
            now.keys.say(_PAUSED),
        )
    progress = state.progress
    attended = trial.started.attended
    if progress is not None and progress.what == "cases":
        return Guidance(
            f"Trying the cases under the policy: {progress.done:,} of {progress.total:,}. The stretch comes next.",
            now.keys.say("{cancel} ends it early."),
        )
    if not attended:
        words = "The trial runs to its verdict: every update is guarded, and a bad one is the skip that it is."
        return Guidance(words, now.keys.say("{cancel} ends it early."))
    return Guidance(
        "The trial runs; every update is guarded, and the first bad one stops it.",
        now.keys.say("{pause} pauses, {unattended} never stops."),
    )


_PAUSED = (
    "{phase} next phase, {iteration} next iteration, {proceed} run on, {until} until…, "
    "{explain} explains, {fall_back} falls back."
)
_HELD = "{proceed} goes on without it, {retry} retries at the new scale, {diagnose} shows why, {fall_back} falls back."


def _at_trip(state: SessionState, trial: TrialState, keys: KeyNames) -> Guidance:
    record = trial.trips[-1].record
    press = keys.say(_HELD)
    if record.skipped:
        words = f"Step {record.step:,}: this update is skipped and the scale halves. "
        usual = keys.say(_usual(trial)) if trial.tripped < _MANY else "They are many by now."
        if _no_scale_fits(trial):
            usual = "No smaller scale was found to mend it."
        usual = _cases_off(state) or usual
        return Guidance(words + usual, press, "warn")
    words = f"Step {record.step:,}: the guard holds back what a plain loop would have written into the weights."
    return Guidance(words, press, "bad")


def _usual(trial: TrialState) -> str:
    """Why one skip needs nothing yet: the scale comes down to one that fits, or it has grown, which it does to try."""
    record, counts, course = trial.trips[-1].record, trial.run.counts, trial.run.scale
    before = counts.get(record.update)
    if before is None or before.first_applied is None or course is None:
        return "Usual while the scale settles; {explain} explains."
    if record.scale > course.lowest:
        return "Usual after the scale has grown; {explain} explains."
    return "Earlier updates did fit this scale; {explain} explains."


def _cases_off(state: SessionState) -> str:
    """What the cases said before the stretch began, where it was bad: a skip is not the news then."""
    tried = [case.trial for case in state.cases.values() if case.trial is not None]
    off = sum(any(d.measured > d.limit or d.nonfinite for d in case.differences) for case in tried)
    changed = sum(case.decision_stands is False for case in tried)
    if not off and not changed:
        return ""
    decisions = f", {counted(changed, 'decision')} changed" if changed else ""
    return f"{off} of {counted(len(tried), 'case')} are off already{decisions}."


def _no_scale_fits(trial: TrialState) -> bool:
    """Whether the last trip was looked into, and FP32 alone got through it."""
    record = trial.trips[-1].record
    for event in reversed(trial.diagnoses):
        if event.case is None and (event.step, event.update) == (record.step, record.update):
            return bool(event.variations) and not any(" at scale " in varied for varied, _ in event.variations)
    return False


_DUE: dict[str, tuple[str, str]] = {
    "baseline": (
        "The project is loaded, checked, and saved as an FP32 checkpoint. Next: how it behaves in true FP32.",
        "{proceed} runs the FP32 baseline. {explain} explains why there is one.",
    ),
    "criteria": (
        "These are the limits that the trial must hold. Once locked they cannot be bent to fit its result.",
        "{proceed} locks them. {change} changes the selected one. {policies} plans several policies.",
    ),
    "trial": (
        "The criteria are locked. Next: the same batches under autocast, every update guarded.",
        "{proceed} runs it and stops at trouble, {phase} goes phase by phase, {unattended} never stops.",
    ),
}


def _between(now: Situation) -> Guidance:
    state, say = now.state, now.keys.say
    due = next_stage(state)
    if due == "baseline" and state.stages.get("baseline") == "cancelled":
        return Guidance("The baseline was ended early.", say("{proceed} runs it again."), "warn")
    if now.page == "criteria" and now.criteria_changed and due != "baseline":
        return Guidance("You have changed the limits. They count once they are locked.", say("{proceed} locks them."))
    if due == "trial" and now.planned:
        words = f"The criteria are locked. Next, one after the other under the same limits: {now.planned}."
        return Guidance(
            words, say("{proceed} runs them unattended, {policies} chooses others, {phase} steps through one.")
        )
    if due == "trial" and state.verdict is not None:
        words = "The limits were changed after a trial: its verdict is about those before. Next: the trial under these."
        return Guidance(words, say(_DUE["trial"][1]))
    if due in _DUE:
        if due == "criteria" and now.page != "criteria":
            return Guidance(
                "The baseline is done. Next: what the trial must hold, written down before it runs.",
                say("{proceed} shows the criteria."),
            )
        if due == "criteria" and now.planned:
            dtype = state.proposed.dtype if state.proposed is not None else ""
            return Guidance(
                f"These limits are for {dtype}, the coarsest, and will hold for: {now.planned}.", say(_DUE[due][1])
            )
        words, press = _DUE[due]
        return Guidance(words, say(press))
    if state.verdict is not None:
        return _after_verdict(now, state.verdict)
    return Guidance("", "")


def _after_verdict(now: Situation, reached: VerdictReached) -> Guidance:
    goes_on = {
        "show measure": "{proceed} goes on to time and memory" if reached.verdict == "accept" else "{proceed} goes on",
        "show verdict": "{proceed} shows the verdict",
    }
    options = {
        "proceed": goes_on.get(next_move(now) or "", ""),
        "unattended": "{unattended} confirms it unattended" if reached.interventions else "{unattended} runs it again",
        "diagnose": "{diagnose} shows why" if reached.verdict != "accept" else "",
        "mend": "{mend} tries the suggested FP32 modules",
        "extend": "{extend} runs ten times as long",
        "policies": "{policies} tries another policy",
        "fall_back": "{fall_back} puts FP32 back",
    }
    return Guidance(
        beyond.verdict_words(reached, now.page), fitting(options, active(now), now.keys), ROLES[reached.verdict]
    )
