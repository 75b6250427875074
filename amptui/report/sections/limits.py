"""How far the claim reaches, and what was not run."""

from __future__ import annotations

from collections.abc import Iterator

from amptui.findings.words import counted
from amptui.protocol.events import ProjectOpened
from amptui.report.document import Block, Bullets, Paragraph, Section, Words
from amptui.report.figures import name, words
from amptui.report.recorded import Recorded
from amptui.session.state import SessionState


def limits_section(recorded: Recorded) -> Section | None:
    state = recorded.state
    if state.project is None:
        return None
    blocks: list[Block] = [
        Paragraph("A verdict is about what was run, as it was run. It says nothing about the rest:"),
        Bullets([*_ran(state.project), *_of_the_baseline(state), *_not_run(recorded, state.project)]),
    ]
    return Section("limits", "Limits of the claim", blocks)


def _ran(project: ProjectOpened) -> Iterator[Words]:
    here = project.environment
    yield (
        f"One device, {here.device} ({name(here.device_name)}), with torch {name(here.torch)}: other hardware, other "
        "kernels and other versions round differently. Run amptui again where you train."
    )
    if project.updates:
        every = counted(project.iterations, "iteration")
        yield (
            f"{every} from one checkpoint, in amptui's own training step, which the code to paste repeats. "
            "Gradients later in training may be larger or smaller."
        )
    yield (
        "The weights, cases, batches and source files whose SHA-256 is given. With a change in any of them the verdict "
        "is about something else."
    )
    if here.git_dirty:
        yield "The source had changes that are in no commit: the commit alone does not give this project back."


def _of_the_baseline(state: SessionState) -> Iterator[Words]:
    if state.repeat is not None and state.repeat.iterations:
        first = counted(state.repeat.iterations, "iteration")
        if state.repeat.repeatable:
            yield f"FP32 was repeatable here: the first {first} were run twice, equal bit for bit."
        else:
            yield f"FP32 was not repeatable: two runs of the first {first} differ in {name(state.repeat.difference)}."
    if state.baseline is not None:
        for reason in state.baseline.reasons:
            yield f"The baseline decides nothing: {words(reason)}."


def _not_run(recorded: Recorded, project: ProjectOpened) -> Iterator[Words]:
    state = recorded.state
    if not project.updates:
        yield "No training was run: the project has no updates."
    if not project.cases:
        yield "No evaluation was compared: the project has no cases."
    elif not project.has_decide:
        yield "No decisions were compared: the project has no decide function, outputs alone were."
    if project.updates and not project.has_quality:
        yield "No quality was compared after the stretch: the project has no quality function."
    if project.remainder:
        yield f"{counted(project.remainder, 'batch', 'batches')} at the end did not fill a window and did not run."
    trial = recorded.trial
    if trial is not None and trial.done is not None and not trial.done.completed:
        yield "The stretch was not run to its end."
    yield "Not run: several devices or processes, other batch sizes and shapes, the rest of your data, your own loop."
    if trial is None or trial.number not in state.measured:
        yield "Time and memory were not measured: nothing here says that the policy is faster or smaller."
