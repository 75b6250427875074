"""The questions that the screen asks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from amptui.findings.criteria import value_of
from amptui.findings.judgement import Proposal
from amptui.findings.words import listed
from amptui.project import Criteria
from amptui.protocol.commands import Condition, ConditionName
from amptui.protocol.events import Refused
from amptui.report.figures import figure, place
from amptui.session.errors import SessionError
from amptui.session.named_file import file_to_write
from amptui.session.state import SessionState, TrialState
from amptui.text import safe_text
from amptui.ui import policies as trying
from amptui.ui.criteria_form import with_value
from amptui.ui.dialogs.question import Option, Question, sentence
from amptui.ui.key_names import KeyNames
from amptui.ui.raster.prose import Paragraph

_CONDITIONS: tuple[tuple[str, ConditionName, str, str | None], ...] = (
    ("k", "skip", "an update is skipped or withheld", None),
    ("d", "scale_drop", "the loss scale drops", None),
    ("f", "nonfinite", "anything is not finite", None),
    ("n", "norm", "a gradient norm above …", "10"),
    ("l", "loss", "a loss above …", "10"),
    ("s", "step", "step …", ""),
    ("t", "stall", "no update applied in … iterations", "5"),
)


def fall_back(state: SessionState, keys: KeyNames) -> Question:
    """The key that asks confirms, pressed again."""
    running = "running" in state.stages.values()
    words = [sentence("Put weights, optimizer, buffers and random state back to the FP32 checkpoint?")]
    if running:
        words.append(sentence("What runs now ends at its next safe point. What has been recorded stays.", "dim"))
    options = [Option(keys.key("fall_back"), "fall back", "yes")]
    return Question(title="fall back to FP32", paragraphs=words, options=options, role="warn")


def another_trial(trial: TrialState) -> Question:
    """The keys that go on with a trial begin another one where it has ended."""
    verdict = trial.verdict.verdict if trial.verdict is not None else "none"
    words = f"Trial {trial.number} has ended; its verdict ({verdict}) stays in the record. Another one is judged anew."
    return Question(
        title=f"start trial {trial.number + 1}?",
        paragraphs=[sentence(words)],
        options=[Option("y", "start it", "yes"), Option("n", "stay here", "no")],
    )


def engine_hangs(seconds: float, session: str, *, opening: bool = False) -> Question:
    """The engine has not come to a safe point, or a new one has not opened the project."""
    what = (
        f"The new engine has not opened the project in {seconds:.0f} seconds: it imports torch and your code, one of "
        "which is slow, or hangs."
        if opening
        else f"It has not come to a safe point in {seconds:.0f} seconds: one of your project's functions is still "
        "running, or hangs."
    )
    stop = [Option("s", "stop waiting, and leave the engine to what it does", "stop")] if opening else []
    return Question(
        title="the engine does not answer",
        paragraphs=[sentence(what), _on_disk(session)],
        options=[
            Option("N", "end this engine, start a new one and restore the checkpoint there", "new"),
            Option("w", "wait on", "wait"),
            *stop,
        ],
        role="warn",
    )


def nothing_to_restore(obstacle: Refused, session: str, keys: KeyNames) -> Question:
    """The project cannot be opened, so there are no weights to put back."""
    return Question(
        title="no project to fall back in",
        paragraphs=[sentence(f"The project cannot be opened: {safe_text(obstacle.message, 300)}"), _on_disk(session)],
        options=[Option("k", keys.say("keep looking: {edit} edits, {reload} loads it again"), "keep")],
        role="warn",
        enter=True,
    )


def _on_disk(session: str) -> Paragraph:
    return sentence(f"The FP32 checkpoint is on disk, whole: amptui restore {safe_text(session)} -o fp32.pt", "dim")


def mend(modules: Sequence[str], keys: KeyNames) -> Question:
    """The key that asks confirms, pressed again."""
    named = listed([safe_text(module) for module in modules], 4)
    return Question(
        title="leave this trial, and run it with modules in FP32?",
        paragraphs=[
            sentence(f"In FP32: {named}."),
            sentence("The trial that is held ends here; another one runs to its verdict.", "dim"),
        ],
        options=[Option(keys.key("mend"), "leave it, and run the other one", "yes")],
    )


def until() -> Question:
    return Question(
        title="run until …",
        options=[Option(key, label, name) for key, name, label, _ in _CONDITIONS],
    )


def until_value(name: str) -> Question | None:
    """Asks for the figure of a condition that has one."""
    label, proposed = next((label, value) for _, known, label, value in _CONDITIONS if known == name)
    if proposed is None:
        return None
    return Question(title=f"run until {label}", entry=proposed, check=lambda text: condition(name, text))


def condition(name: str, text: str = "") -> Condition:
    """The condition `name`; ValueError where its figure is none."""
    known: ConditionName = next(known for _, known, _, _ in _CONDITIONS if known == name)
    if known in ("skip", "scale_drop", "nonfinite"):
        return Condition(name=known)
    try:
        value = float(text.replace(",", "").strip())
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise ValueError("write a number from 0, such as 10")
    return Condition(name=known, value=value)


def criterion(proposal: Proposal, criteria: Criteria) -> Question:
    """A new value for one criterion."""
    return Question(
        title=proposal.name,
        paragraphs=[sentence(f"Proposed: {figure(proposal.value)}. {proposal.reason}", "dim")],
        entry=_plain(value_of(criteria, proposal.name)),
        check=lambda text: with_value(criteria, proposal.name, text),
    )


def _plain(value: object) -> str:
    return "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def reason(state: SessionState) -> Question:
    """Locked criteria change only with a written reason."""
    after = "A trial has run under them. " if state.trials else ""
    return Question(
        title="why are the locked criteria changed?",
        paragraphs=[
            sentence(f"{after}The reason is kept with the new revision, and every revision stays on record.", "dim")
        ],
        entry="",
        check=_written,
    )


def _written(text: str) -> None:
    if not text.strip():
        raise ValueError("write a reason, or leave with esc")


def policies(state: SessionState, keys: KeyNames) -> Question:
    """Which policies to try, under the same criteria."""
    if state.locked is None:
        words = [
            sentence("Each will run unattended from the checkpoint, under one set of criteria."),
            sentence("The limits are proposed anew, for the coarsest dtype among them.", "dim"),
        ]
    else:
        late = keys.say(
            "A trial has run: a policy that is chosen now counts as an intervention, until {unattended} confirms it."
        )
        before = "What is chosen before the first trial is no intervention."
        words = [
            sentence("Each runs unattended from the checkpoint, under the locked criteria."),
            sentence(late if state.trials else before, "dim"),
        ]
        if state.proposed is not None and state.proposed.dtype == "float16":
            finer = "The limits were proposed for float16; bfloat16 keeps 3 bits fewer, and is held to the same limits."
            words.append(sentence(finer, "dim"))
    options = [Option(choice.key, choice.label, choice.key) for choice in trying.choices(state)]
    return Question(
        title="which policies to try?",
        paragraphs=words,
        options=[*options, Option("w", "write others …", "write")],
    )


def written_policies() -> Question:
    return Question(
        title="policies to try",
        paragraphs=[sentence("Dtypes, with a first loss scale or none behind @; several by commas.", "dim")],
        entry="fp16@1024,bf16",
        check=trying.read,
    )


def report_format() -> Question:
    return Question(
        title="write the report",
        enter=True,
        options=[
            Option("h", "HTML: one file with plots, for a browser, for print, to send", "html"),
            Option("m", "Markdown: for a pull request or an issue", "md"),
            Option("j", "JSON: what check --json writes, and every iteration", "json"),
        ],
    )


def file(title: str, proposed: Path) -> Question:
    """Where to write; a relative path is understood from the working directory."""
    return Question(title=title, entry=place(str(proposed)), check=to_write)


def to_write(text: str) -> Path:
    """The file that `text` names, absolute. Raises ValueError where none can be written there."""
    name = text.strip()
    if name in ("", "-"):
        raise ValueError("write the name of a file, or leave with esc")
    try:
        path = file_to_write(name)
    except SessionError as error:
        raise ValueError(str(error)) from error
    if path.exists() and not path.is_file():
        raise ValueError("this is no ordinary file: write another name")
    return path


def overwrite(path: Path) -> Question:
    return Question(
        title="there is such a file",
        paragraphs=[sentence(place(str(path)))],
        options=[Option("o", "overwrite it", "overwrite"), Option("n", "name another file", "name")],
        role="warn",
    )


def leave(*, running: bool) -> Question:
    words = "A trial can be taken up again: it pauses at its next phase, and waits." if running else ""
    return Question(
        title="leave amptui?",
        paragraphs=[sentence(words, "dim")] if words else [],
        options=[
            Option("l", "leave the engine waiting: amptui attach comes back to it", "leave"),
            Option("e", "end the engine; the session's files stay", "end"),
        ],
    )


def filter_text(now: str) -> Question:
    return Question(title="show only rows that contain", entry=now)
