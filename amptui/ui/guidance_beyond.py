"""The two lines of the stages behind the verdict, and of the search for cases."""

from __future__ import annotations

from pathlib import Path

from amptui.findings.policies import policy_name
from amptui.findings.words import counted
from amptui.protocol.events import VerdictReached
from amptui.report.figures import place
from amptui.session.state import SessionState
from amptui.text import display_width
from amptui.ui.advice import ROLES, Guidance, fitting
from amptui.ui.moves import Situation, active, next_move, to_measure
from amptui.ui.pages import Page

#: Cells of two lines at 80 columns.
_TWO_LINES = 158


def verdict_words(reached: VerdictReached, page: Page) -> str:
    """The verdict's sentence; where it is too long for two lines, its word and where the sentence stands."""
    if display_width(reached.words) <= _TWO_LINES:
        return reached.words
    marked = ", with interventions" if reached.interventions else ""
    where = "above" if page == "verdict" else "on page 5"
    return f"{reached.verdict.capitalize()}{marked}: the sentence and the rows that decide it stand {where}."


# Stage 6.


def measuring(state: SessionState) -> str:
    """What runs, and how far it has come."""
    progress = state.progress
    if state.task == "seeds":
        part = f": iteration {progress.done:,} of {progress.total:,}" if progress is not None else ""
        return f"Running the FP32 stretch under other seeds{part}. It is the yardstick for the trial's effect."
    if state.task == "cases":
        part = f": batch {progress.done:,} of {progress.total:,}" if progress is not None else ""
        return f"Looking through the batches in FP32 for inputs that are worth being a case{part}."
    part = f": round {progress.done:,}, of {progress.total:,} at most" if progress is not None else ""
    return f"Timing FP32 and the policy in turn, with nothing else running in the engine{part}."


def at_measure(now: Situation) -> Guidance:
    """Before and after the measurement; why there is none."""
    state = now.state
    reached = state.verdict
    assert reached is not None
    move = next_move(now)
    due = to_measure(state)
    options = {
        "proceed": {
            "measure": "{proceed} measures",
            "show report": "{proceed} goes on to the report",
            "trial": "{proceed} runs the trial again",
        }.get(move or "", ""),
        "unattended": "{unattended} confirms the verdict unattended",
        "mend": "{mend} tries the suggested FP32 modules" if due is None and reached.verdict != "accept" else "",
        "diagnose": "{diagnose} shows why" if due is None and reached.verdict != "accept" else "",
        "policies": "{policies} tries another policy",
        "yardstick": "{yardstick} other seeds",
        "explain": "{explain} explains",
    }
    press = fitting(options, active(now), now.keys)
    if due is not None:
        policy = policy_name(due.started.policy)
        if state.stages.get("measure") == "cancelled":
            return Guidance(f"The measurement was ended early; nothing is stated of {policy}.", press, "warn")
        return Guidance(f"{policy} was accepted. Next: what it brings in time and memory.", press)
    measured = state.measured.get(reached.trial)
    if measured is not None:
        return Guidance("Measured, with the noise of equal runs beside it. Next: the report.", press)
    if reached.verdict != "accept":
        words = f"Nothing is measured: the verdict is {reached.verdict}, and only what holds is worth measuring."
        return Guidance(words, press, ROLES[reached.verdict])
    return Guidance("This policy has been measured. Next: the report.", press)


# Stage 7.


def at_report(now: Situation) -> Guidance:
    """Before and after the report is written."""
    state = now.state
    accepted = any(trial.verdict is not None and trial.verdict.verdict == "accept" for trial in state.trials)
    options = {
        "proceed": "{proceed} writes the report" if not now.written else "{proceed} writes another",
        "copy": "" if not now.written else "{copy} copies its path",
        "next_pane": "{next_pane} then {copy} copies the code" if accepted else "",
        "explain": "{explain} explains",
        "back": "{back} leaves",
    }
    press = fitting(options, active(now), now.keys)
    if now.written:
        return Guidance(f"The report is written: {place(now.written)}", press, "good")
    if not any(trial.verdict is not None for trial in state.trials):
        alive = now.mode == "live" and now.connected
        so_far = "There is no verdict yet, and a report says so." if alive else "A report of what was recorded."
        return Guidance(so_far, press)
    code = "; it holds the training step to paste" if accepted else ""
    return Guidance(f"The report says on what the verdict rests, for a colleague to judge{code}.", press)


# Found cases.


def at_cases(now: Situation) -> Guidance:
    """After the search."""
    found = now.state.found_cases
    if found is None:
        options = {"find_cases": "{find_cases} looks through the batches", "back": "{back} goes back"}
        press = fitting(options, active(now), now.keys)
        return Guidance("Nothing has been looked for, or not to the end.", press, "warn")
    if not found.found:
        return Guidance("Nothing was found that is worth being a case.", now.keys.say("{back} goes back."))
    if found.path is None:
        words = f"{counted(len(found.found), 'case')} worth having, out of {counted(found.samples, 'sample')} in FP32."
        return Guidance(words, now.keys.say("{proceed} writes them to a file, {back} goes back."))
    options = {
        "copy": "{next_pane} then {copy} copies the two lines",
        "edit": "{edit} edits",
        "reload": "{reload} loads the project again",
        "back": "{back} goes back",
    }
    name = Path(found.path).name
    words = f"Written to {place(name)}. The two lines below take them over into your project."
    return Guidance(words, fitting(options, active(now), now.keys), "good")
