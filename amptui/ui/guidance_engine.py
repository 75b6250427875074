"""The two lines where no engine is at work: it has died or ended, is replaced, or is brought back to the checkpoint."""

from __future__ import annotations

from amptui.ui.advice import Guidance
from amptui.ui.frame import STARTING
from amptui.ui.moves import Situation

_NEW_ENGINE = "A new engine is starting: it imports torch and then your project"


def without_engine(now: Situation) -> Guidance | None:
    """None where an engine is at work or waits."""
    state = now.state
    if now.falling_back:
        return Guidance(_falling_back(now), "")
    if now.reloading:
        return Guidance(_reloading(now), "")
    if now.starting:
        return Guidance(STARTING, "")
    if state.engine == "dead" and state.death is not None:
        return Guidance(
            state.death.words,
            _after_death(now),
            "bad",
        )
    if state.engine == "failed" and state.failure is not None:
        whose = "The project's code ended the engine" if state.failure.hint else "The engine met an error of its own"
        return Guidance(f"{whose}: {state.failure.message}", _after_death(now), "bad")
    if state.engine == "ended" or not now.connected:
        press = (
            "{new_engine} starts a new one, {back} leaves."
            if now.can_restart
            else "{stage_7} shows the files, {back} leaves."
        )
        return Guidance(_ended(now), now.keys.say(press), "warn")
    if state.engine == "starting":
        return Guidance(STARTING, "")
    return None


def _ended(now: Situation) -> str:
    """The engine's last word; where it could not go on, why."""
    state = now.state
    if state.goodbye == "refused" and state.refusal is not None:
        return f"The engine has ended: {as_sentence(state.refusal.message, capital=False)}"
    return f"The engine has ended ({state.goodbye or 'left'})."


def as_sentence(text: str, *, capital: bool = True) -> str:
    """`text` with a full stop, however it was written, so that another sentence can follow."""
    begun = text[:1].upper() + text[1:] if capital else text
    return begun if begun.endswith((".", "!", "?")) else f"{begun}."


def _after_death(now: Situation) -> str:
    say = now.keys.say
    if not now.can_restart:
        return say("{output} shows its last output, {stage_7} how to get the checkpoint as a file, {back} leaves.")
    if now.page == "report":
        return say(
            "{proceed} writes the report of what was recorded. {new_engine}: new engine. {output}: its last output."
        )
    if now.state.checkpoints:
        return say(
            "{fall_back}: new engine and back to the checkpoint. {new_engine}: new engine. {output}: its last output."
        )
    return say("{new_engine} starts a new engine, {output} shows its last output, {back} leaves.")


def _falling_back(now: Situation) -> str:
    """What runs on the way back, and what follows."""
    if now.starting:
        return f"{_NEW_ENGINE}. Then the FP32 checkpoint is restored and compared."
    if now.state.stages.get("project") == "running":
        return "The new engine loads your project. Then the FP32 checkpoint is restored and compared."
    if now.running:
        return "Falling back: what runs ends at its next safe point, then the checkpoint is restored."
    return "Falling back: the FP32 checkpoint is restored and compared."


def _reloading(now: Situation) -> str:
    """What runs after an edit, and what follows: a failed iteration only where one was kept."""
    if now.state.aside:
        return "The project is loaded with its source as it is now. The failed iteration runs once more."
    kept = bool(now.state.retained)
    follows = "Then the failed iteration runs once more." if kept else "No failed iteration was kept to run again."
    if now.starting:
        return f"{_NEW_ENGINE}, with its source as it is now. {follows}"
    return f"Loading the project again with its source as it is now. {follows}"
